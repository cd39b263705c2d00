//! What can be said on the command line, and what it means for the scenarios that were chosen. An option that none of them uses is refused: it
//! would be ignored.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// Measure the queue: throughput, latency, CPU, write-ahead log, with and without what makes other queues slow.
///
/// With no database given, starts a private PostgreSQL with durable commits. In a given one it works in a schema of its own,
/// rowlock_bench, which it drops before and afterwards. Every scenario checks that each job ran and was acknowledged exactly once.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock bench                          # floor, enqueue, drain, steady and latency\n  \
    rowlock bench floor drain --jobs 1000000 --rounds 5\n  \
    rowlock bench pinned --rate 2000 --duration 10m --json\n  \
    rowlock bench latency --idle 1h\n  \
    rowlock bench --rounds 3 --report measured.html\n  \
    rowlock bench -d postgres://localhost/scratch enqueue --producers 1,8,32,64")]
pub(crate) struct Bench {
    /// What to measure; several, or none for the usual five: floor, enqueue, drain, steady, latency.
    #[arg(value_enum)]
    pub(super) scenarios: Vec<Scenario>,

    /// How many jobs a scenario works through: 200000, if nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    jobs: Option<u64>,

    /// Run everything so many times, in turn, and report the middle and the spread.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(super) rounds: u16,

    /// Producers at once, where jobs are enqueued one by one; several numbers, separated by commas: 1,8,32, if nothing is said.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = producers)]
    producers: Option<Vec<usize>>,

    /// Worker processes that work off a backlog; several numbers, separated by commas: 1,2,4,8, if nothing is said.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = processes)]
    processes: Option<Vec<usize>>,

    /// Jobs per second, where they are offered at a constant rate: 2000, if nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,

    /// How long a constant rate is kept up, and how long idle workers are watched: 10s, if nothing is said.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    duration: Option<Duration>,

    /// How many jobs are timed one by one on the idle queue: 1000, if nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    samples: Option<u64>,

    /// Leave the queue idle for this long before the first of them.
    #[arg(long, value_parser = crate::times::span, value_name = "TIME")]
    idle: Option<Duration>,

    /// Keep finished jobs in the history (drain is measured both ways in any case).
    #[arg(long)]
    history: bool,

    /// Bytes of payload in each job: 16, if nothing is said.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    payload: Option<u32>,

    /// How many idle workers are watched: 20, if nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: Option<u16>,

    /// Also write a report with plots, as one HTML file.
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Scenario {
    /// The machine's own limit on the same table: COPY in, update and delete by ctid, batches of 500, 4 connections.
    Floor,
    /// Jobs in: one by one, in a transaction, in batches of 100, by COPY; beside plain INSERTs of the same rows.
    Enqueue,
    /// Jobs out: a backlog worked off by one worker with default settings, without and with history.
    Drain,
    /// Producers and a worker together: flat out, at a constant rate, and with 10 ms handlers, 1,000 at a time.
    Steady,
    /// From before the enqueue to the start of the handler and to the durable completion, on an idle queue.
    Latency,
    /// A constant rate, and drains, while nobody, a reader, or a writer holds vacuum back.
    Pinned,
    /// Claim time, drain rate and memory of a worker process with --jobs waiting, against 10,000.
    Backlog,
    /// The same backlog worked off by 1, 2, 4 and 8 worker processes, or as many as --processes says.
    Processes,
    /// 100 queues, priorities, delays, failures, 10 kB payloads, 10 ms handlers, all at once.
    Mixed,
    /// What each optional feature costs.
    Features,
    /// CPU of Postgres with workers that have nothing to do.
    Idle,
}

use Scenario::{
    Backlog, Drain, Enqueue, Features, Floor, Idle, Latency, Mixed, Pinned, Processes, Steady,
};

const USUAL: [Scenario; 5] = [Floor, Enqueue, Drain, Steady, Latency];

/// What the scenarios are told.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) scenarios: Vec<Scenario>,
    pub(super) jobs: u64,
    pub(super) producers: Vec<usize>,
    pub(super) processes: Vec<usize>,
    pub(super) rate: u64,
    pub(super) duration: Duration,
    pub(super) samples: u64,
    pub(super) idle: Duration,
    pub(super) history: bool,
    pub(super) payload: usize,
    pub(super) workers: u16,
}

impl Bench {
    pub(super) fn options(&self) -> anyhow::Result<Options> {
        let scenarios = if self.scenarios.is_empty() {
            USUAL.to_vec()
        } else {
            self.scenarios.clone()
        };
        for (option, said, of) in self.uses() {
            anyhow::ensure!(
                !said || of.iter().any(|s| scenarios.contains(s)),
                "--{option} means nothing here: it is for {}",
                names(of)
            );
        }
        Ok(Options {
            scenarios,
            jobs: self.jobs.unwrap_or(200_000),
            producers: self.producers.clone().unwrap_or(vec![1, 8, 32]),
            processes: self.processes.clone().unwrap_or(vec![1, 2, 4, 8]),
            rate: self.rate.unwrap_or(2000),
            duration: self.duration.unwrap_or(Duration::from_secs(10)),
            samples: self.samples.unwrap_or(1000),
            idle: self.idle.unwrap_or_default(),
            history: self.history,
            payload: self.payload.unwrap_or(16) as usize,
            workers: self.workers.unwrap_or(20),
        })
    }

    /// Each option, whether it was given, and the scenarios that use it.
    fn uses(&self) -> [(&'static str, bool, &'static [Scenario]); 10] {
        const JOBS: &[Scenario] = &[
            Floor, Enqueue, Drain, Steady, Pinned, Backlog, Processes, Mixed, Features,
        ];
        const HISTORY: &[Scenario] = &[Enqueue, Steady, Latency, Pinned, Backlog, Processes, Mixed];
        const PAYLOAD: &[Scenario] = &[
            Floor, Enqueue, Drain, Steady, Latency, Pinned, Backlog, Processes, Features,
        ];
        [
            ("jobs", self.jobs.is_some(), JOBS),
            ("producers", self.producers.is_some(), &[Enqueue]),
            ("processes", self.processes.is_some(), &[Processes]),
            ("rate", self.rate.is_some(), &[Steady, Pinned]),
            ("duration", self.duration.is_some(), &[Steady, Pinned, Idle]),
            ("samples", self.samples.is_some(), &[Latency]),
            ("idle", self.idle.is_some(), &[Latency]),
            ("history", self.history, HISTORY),
            ("payload", self.payload.is_some(), PAYLOAD),
            ("workers", self.workers.is_some(), &[Idle]),
        ]
    }
}

fn names(scenarios: &[Scenario]) -> String {
    let name = |s: &Scenario| s.to_possible_value().map(|v| v.get_name().to_owned());
    let names: Vec<String> = scenarios.iter().filter_map(name).collect();
    names.join(", ")
}

fn producers(text: &str) -> Result<usize, String> {
    number_to(256, text)
}

/// Each has five connections.
fn processes(text: &str) -> Result<usize, String> {
    number_to(64, text)
}

fn number_to(most: usize, text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is no number from 1 to {most}");
    let n = text.trim().parse().map_err(|_| wrong())?;
    (1..=most).contains(&n).then_some(n).ok_or_else(wrong)
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = crate::times::span(text)?;
    let right = Duration::from_millis(100)..=Duration::from_secs(86_400);
    if right.contains(&duration) {
        Ok(duration)
    } else {
        Err(format!("{text:?} is not from 100ms to 1d"))
    }
}
