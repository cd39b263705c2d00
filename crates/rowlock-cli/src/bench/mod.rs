//! `rowlock bench`: how fast the queue is on this machine, with every job accounted for.
//!
//! Each scenario runs in a schema of its own, `rowlock_bench`, which is made anew and dropped afterwards. Compare ratios within one run:
//! absolute numbers belong to the machine and the moment.

mod backlog;
mod cpu;
mod crew;
mod drain;
mod enqueue;
mod features;
mod figures;
mod floor;
mod html;
mod idle;
mod latency;
mod ledger;
mod meter;
mod mixed;
mod offered;
mod pinned;
mod processes;
mod report;
mod signals;
mod stage;
mod steady;
mod table;
mod waits;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use report::Report;
use stage::Stage;

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
    /// What to measure; several, or none for the usual five.
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,

    /// How many jobs a scenario works through.
    #[arg(long, default_value_t = 200_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    jobs: u64,

    /// Run everything so many times, in turn, and report the middle and the spread.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Producers at once, where jobs are enqueued one by one; several numbers, separated by commas.
    #[arg(long, default_value = "1,8,32", value_delimiter = ',', value_name = "N", value_parser = producers)]
    producers: Vec<usize>,

    /// Jobs per second, where they are offered at a constant rate.
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,

    /// How long a constant rate is kept up, and how long idle workers are watched.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "TIME")]
    duration: Duration,

    /// How many jobs are timed one by one on the idle queue.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    samples: u64,

    /// Leave the queue idle for this long before the first of them.
    #[arg(long, default_value = "0s", value_parser = crate::times::span, value_name = "TIME")]
    idle: Duration,

    /// Keep finished jobs in the history (drain is measured both ways in any case).
    #[arg(long)]
    history: bool,

    /// Bytes of payload in each job.
    #[arg(long, default_value_t = 16, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    payload: u32,

    /// How many idle workers are watched.
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: u16,

    /// Also write a report with plots, as one HTML file.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// What this program starts itself as, for worker processes.
    #[arg(long = crew::OPTION, hide = true, exclusive = true)]
    worker_process: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
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
    /// The same backlog worked off by 1, 2, 4 and 8 worker processes.
    Processes,
    /// 100 queues, priorities, delays, failures, 10 kB payloads, 10 ms handlers, all at once.
    Mixed,
    /// What each optional feature costs.
    Features,
    /// CPU of Postgres with workers that have nothing to do.
    Idle,
}

const USUAL: [Scenario; 5] = [
    Scenario::Floor,
    Scenario::Enqueue,
    Scenario::Drain,
    Scenario::Steady,
    Scenario::Latency,
];

fn producers(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is no number from 1 to 256");
    let n = text.trim().parse().map_err(|_| wrong())?;
    (1..=256).contains(&n).then_some(n).ok_or_else(wrong)
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

/// What a scenario needs.
struct Session<'a> {
    stage: &'a Stage,
    options: &'a Bench,
    report: &'a mut Report,
}

impl Bench {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        if self.worker_process {
            crew::be_one().await?;
            return Ok(Exit::Success);
        }
        anyhow::ensure!(
            global
                .database
                .schema
                .as_deref()
                .is_none_or(|s| s == stage::SCHEMA),
            "a benchmark works in a schema of its own, {}, which it drops: leave --schema and ROWLOCK_SCHEMA out",
            stage::SCHEMA
        );
        let place = self.report.as_deref().map(html::Place::take).transpose()?;
        let stage = Stage::set(global, signals::hear()?, self.payload as usize).await?;
        let measured = self.measure(&stage).await;
        // Also when something went wrong: nothing of ours stays in somebody's database.
        let struck = stage.strike().await;
        let report = measured?;
        struck?;
        if let Some(place) = place {
            place.write(&report)?;
        }
        match global.format() {
            Format::Json => output::json(&report)?,
            Format::Table => table::print(&report),
        }
        Ok(Exit::Success)
    }

    async fn measure(&self, stage: &Stage) -> anyhow::Result<Report> {
        let mut report = Report::new(stage).await?;
        let scenarios = if self.scenarios.is_empty() {
            &USUAL[..]
        } else {
            &self.scenarios
        };
        for _ in 0..self.rounds {
            report.begin_round();
            for scenario in scenarios {
                let mut session = Session {
                    stage,
                    options: self,
                    report: &mut report,
                };
                scenario.run(&mut session).await?;
            }
            report.end_round();
        }
        report.finish();
        Ok(report)
    }
}

impl Scenario {
    async fn run(self, session: &mut Session<'_>) -> anyhow::Result<()> {
        match self {
            Self::Floor => floor::run(session).await,
            Self::Enqueue => enqueue::run(session).await,
            Self::Drain => drain::run(session).await,
            Self::Steady => steady::run(session).await,
            Self::Latency => latency::run(session).await,
            Self::Pinned => pinned::run(session).await,
            Self::Backlog => backlog::run(session).await,
            Self::Processes => processes::run(session).await,
            Self::Mixed => mixed::run(session).await,
            Self::Features => features::run(session).await,
            Self::Idle => idle::run(session).await,
        }
    }
}
