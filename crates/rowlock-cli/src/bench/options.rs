//! What can be said on the command line, and what it means for the scenarios that were chosen. An option that none of them uses is refused: it
//! would be ignored.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::say;

/// Measure the queue: throughput, latency, CPU, write-ahead log, with and without what makes other queues slow.
///
/// With no database given, neither with -d or DATABASE_URL nor by PGHOST, PGHOSTADDR, PGPORT, PGDATABASE or PGSERVICE, starts a private PostgreSQL with
/// durable commits. In a given one it works in a schema of its own, rowlock_bench, which it drops before and afterwards, and asks for
/// checkpoints where it may; nothing else is changed there. Only one bench at a time can use a database.
///
/// Wherever jobs run, it is checked that each ran and was acknowledged exactly once. floor runs no job: its rows are counted. idle has none.
///
/// What was measured before a failure or Ctrl-C is shown all the same; the exit code is 1 then.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock bench                          # floor, enqueue, drain, steady and latency\n  \
    rowlock bench floor drain --jobs 1M --rounds 5\n  \
    rowlock bench pinned --rate 2000 --duration 10m --json\n  \
    rowlock bench latency --idle 1h\n  \
    rowlock bench --rounds 3 --report measured.html\n  \
    rowlock bench -d postgres://localhost/scratch enqueue --producers 1,8,32,64")]
pub(crate) struct Bench {
    /// What to measure; several, or none for the usual five: floor, enqueue, drain, steady, latency.
    #[arg(value_enum)]
    pub(super) scenarios: Vec<Scenario>,

    /// How many jobs a scenario works through, such as 50000, 50k or 10M: 200000, if nothing is said, and 1000000 in a backlog.
    ///
    /// For floor, enqueue, drain, steady, pinned, backlog, processes, mixed and features.
    #[arg(long, value_name = "N", value_parser = jobs)]
    jobs: Option<u64>,

    /// Run everything so many times, in turn, and report the middle and the spread.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// For enqueue: producers at once; several numbers, separated by commas. If nothing is said: 1,8,32 one by one, 8 in transactions, 1,4 in
    /// batches and by COPY.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = producers)]
    producers: Option<Vec<usize>>,

    /// For processes: worker processes that work off a backlog; several numbers, separated by commas: 1,2,4,8, if nothing is said.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = processes)]
    processes: Option<Vec<usize>>,

    /// For steady and pinned: jobs per second, where they are offered at a constant rate: 2000, if nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,

    /// For steady and pinned: how long a constant rate is kept up; for idle: how long the workers are watched: 10s, if nothing is said.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    duration: Option<Duration>,

    /// For latency: how many jobs are timed one by one on the idle queue: 1000, if nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    samples: Option<u64>,

    /// For latency: leave the queue idle for this long before the first job.
    #[arg(long, value_parser = crate::times::span, value_name = "TIME")]
    idle: Option<Duration>,

    /// Keep finished jobs in the history. For enqueue, steady, latency, pinned, backlog, processes and mixed; drain is measured both ways in
    /// any case.
    #[arg(long)]
    history: bool,

    /// About so many bytes of payload in each job: 16, if nothing is said, which is its number and nothing else; what is more is text that
    /// cannot be compressed.
    ///
    /// For floor, enqueue, drain, steady, latency, pinned, backlog, processes and features.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    payload: Option<u32>,

    /// For idle: how many workers are watched: 20, if nothing is said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: Option<u16>,

    /// Also write a report with plots, as one HTML file; its name ends in .html.
    #[arg(long, value_name = "FILE.html", value_parser = page)]
    pub(super) report: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Scenario {
    /// The machine's own limit on the same table: COPY in, update and delete by ctid, batches of 500, 4 connections.
    Floor,
    /// Jobs in: one by one, in a transaction, in batches of 100, by COPY; beside plain INSERTs of the same rows. One by one and in a
    /// transaction at most 40,000 jobs or 5 s.
    Enqueue,
    /// Jobs out: a backlog worked off by one worker with default settings, without and with history.
    Drain,
    /// Producers and a worker together: flat out, at a constant rate, and with 10 ms handlers, 1,000 at a time; of those at least 20,000
    /// jobs.
    Steady,
    /// From before the enqueue to the start of the handler and to the durable completion, on an idle queue.
    Latency,
    /// A constant rate, and drains, while nobody, a reader, or a writer holds vacuum back.
    Pinned,
    /// Claim time, drain rate and memory of a worker process with --jobs waiting, against 10,000.
    Backlog,
    /// The same backlog worked off by 1, 2, 4 and 8 worker processes, or as many as --processes says.
    Processes,
    /// 100 queues, priorities, delays, failures, 10 kB payloads, 10 ms handlers, all at once. At most 20,000 jobs.
    Mixed,
    /// What each optional feature costs. At most 40,000 jobs, and 10,000 of those with a transaction each.
    Features,
    /// CPU of Postgres with workers that have nothing to do.
    Idle,
}

use Scenario::{
    Backlog, Drain, Enqueue, Features, Floor, Idle, Latency, Mixed, Pinned, Processes, Steady,
};

/// A deep backlog is compared with one of half as many.
const BACKLOG_MIN: u64 = 20_000;
const BACKLOG: u64 = 1_000_000;

const USUAL: [Scenario; 5] = [Floor, Enqueue, Drain, Steady, Latency];

/// In a scenario, however many are asked for: each has its place in the memory of this program.
const JOBS_MAX: u64 = 100_000_000;

/// What the scenarios are told.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) scenarios: Vec<Scenario>,
    pub(super) rounds: u16,
    pub(super) jobs: u64,
    /// How many wait in a deep backlog.
    pub(super) backlog: u64,
    pub(super) producers: Vec<usize>,
    /// Whether they were given; else each way in has numbers of its own.
    pub(super) producers_given: bool,
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
            once_each(&self.scenarios)
        };
        let given = self.given();
        for ((option, of), given) in USES.into_iter().zip(given) {
            anyhow::ensure!(
                !given || of.iter().any(|s| scenarios.contains(s)),
                "--{option} means nothing here: it is for {}",
                names(of)
            );
        }
        anyhow::ensure!(
            !scenarios.contains(&Backlog) || self.jobs.is_none_or(|n| n >= BACKLOG_MIN),
            "a backlog of fewer than {} jobs is not deep: say more --jobs",
            say::number(BACKLOG_MIN)
        );
        let usual = if scenarios == [Backlog] {
            BACKLOG
        } else {
            200_000
        };
        let options = Options {
            scenarios,
            rounds: self.rounds,
            jobs: self.jobs.unwrap_or(usual),
            backlog: self.jobs.unwrap_or(BACKLOG),
            producers_given: self.producers.is_some(),
            producers: once_each(self.producers.as_deref().unwrap_or(&[1, 8, 32])),
            processes: once_each(self.processes.as_deref().unwrap_or(&[1, 2, 4, 8])),
            rate: self.rate.unwrap_or(2000),
            duration: self.duration.unwrap_or(Duration::from_secs(10)),
            samples: self.samples.unwrap_or(1000),
            idle: self.idle.unwrap_or_default(),
            history: self.history,
            payload: self.payload.unwrap_or(16) as usize,
            workers: self.workers.unwrap_or(20),
        };
        options.check_offered()?;
        Ok(options)
    }

    /// Whether each of [`USES`] was given.
    fn given(&self) -> [bool; USES.len()] {
        [
            self.jobs.is_some(),
            self.producers.is_some(),
            self.processes.is_some(),
            self.rate.is_some(),
            self.duration.is_some(),
            self.samples.is_some(),
            self.idle.is_some(),
            self.history,
            self.payload.is_some(),
            self.workers.is_some(),
        ]
    }
}

/// Each option, and the scenarios that use it.
const USES: [(&str, &[Scenario]); 10] = [
    (
        "jobs",
        &[
            Floor, Enqueue, Drain, Steady, Pinned, Backlog, Processes, Mixed, Features,
        ],
    ),
    ("producers", &[Enqueue]),
    ("processes", &[Processes]),
    ("rate", &[Steady, Pinned]),
    ("duration", &[Steady, Pinned, Idle]),
    ("samples", &[Latency]),
    ("idle", &[Latency]),
    (
        "history",
        &[Enqueue, Steady, Latency, Pinned, Backlog, Processes, Mixed],
    ),
    (
        "payload",
        &[
            Floor, Enqueue, Drain, Steady, Latency, Pinned, Backlog, Processes, Features,
        ],
    ),
    ("workers", &[Idle]),
];

/// An option as the report has it: its name with the unit, its value, and the value for people.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) name: &'static str,
    pub(super) value: serde_json::Value,
    pub(super) text: String,
}

impl Options {
    pub(super) fn uses(&self, scenario: Scenario) -> bool {
        self.scenarios.contains(&scenario)
    }

    /// The options that the chosen scenarios use.
    pub(super) fn in_force(&self) -> Vec<InForce> {
        let all: [(&'static str, serde_json::Value, String); USES.len()] = [
            (
                "jobs",
                self.jobs.into(),
                format!("jobs {}", say::number(self.jobs)),
            ),
            (
                "producers",
                self.producers.clone().into(),
                format!("producers {}", listed(&self.producers)),
            ),
            (
                "processes",
                self.processes.clone().into(),
                format!("processes {}", listed(&self.processes)),
            ),
            (
                "rate_per_second",
                self.rate.into(),
                format!("rate {}/s", say::number(self.rate)),
            ),
            (
                "duration_ms",
                ms(self.duration).into(),
                format!("duration {}", say::duration(self.duration)),
            ),
            (
                "samples",
                self.samples.into(),
                format!("samples {}", say::number(self.samples)),
            ),
            (
                "idle_ms",
                ms(self.idle).into(),
                format!("idle {}", say::duration(self.idle)),
            ),
            (
                "history",
                self.history.into(),
                format!("history {}", if self.history { "kept" } else { "off" }),
            ),
            (
                "payload_bytes",
                self.payload.into(),
                format!("payload about {}", say::bytes(self.payload as u64)),
            ),
            (
                "workers",
                self.workers.into(),
                format!("workers {}", self.workers),
            ),
        ];
        let used = |(option, of): &(&str, &[Scenario])| {
            // Where they are not given, each way in has numbers of its own, which its cases name.
            of.iter().any(|s| self.uses(*s)) && (*option != "producers" || self.producers_given)
        };
        let backlog = self.uses(Backlog).then(|| {
            let text = format!("backlog {}", say::number(self.backlog));
            ("backlog_jobs", self.backlog.into(), text)
        });
        USES.iter()
            .zip(all)
            .filter(|(use_of, _)| used(use_of))
            .map(|(_, option)| option)
            .chain(backlog)
            .map(|(name, value, text)| InForce { name, value, text })
            .collect()
    }

    fn check_offered(&self) -> anyhow::Result<()> {
        let offered = u128::from(self.rate) * self.duration.as_millis() / 1000;
        anyhow::ensure!(
            offered <= u128::from(JOBS_MAX) || !(self.uses(Steady) || self.uses(Pinned)),
            "{} jobs a second for {} are more than {} jobs: say a lower --rate or a shorter --duration",
            say::number(self.rate),
            say::duration(self.duration),
            say::number(JOBS_MAX)
        );
        Ok(())
    }
}

impl Scenario {
    pub(super) fn name(self) -> String {
        self.to_possible_value()
            .map(|v| v.get_name().to_owned())
            .unwrap_or_default()
    }
}

fn names(scenarios: &[Scenario]) -> String {
    let names: Vec<String> = scenarios.iter().map(|s| s.name()).collect();
    names.join(", ")
}

fn listed(numbers: &[usize]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(",")
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The first of each: what is said twice would be taken for two rounds.
fn once_each<T: Copy + PartialEq>(all: &[T]) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for one in all {
        if !kept.contains(one) {
            kept.push(*one);
        }
    }
    kept
}

/// `200000`, `200k`, `10M`.
fn jobs(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is no number from 1 to {JOBS_MAX}: say it in full, or with k or M, as in 200k or 10M"
        )
    };
    let trimmed = text.trim();
    let (digits, factor) = match trimmed.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1000),
        None => match trimmed.strip_suffix('M') {
            Some(digits) => (digits, 1_000_000),
            None => (trimmed, 1),
        },
    };
    let jobs = digits.parse().ok().and_then(|n: u64| n.checked_mul(factor));
    jobs.filter(|n| (1..=JOBS_MAX).contains(n))
        .ok_or_else(wrong)
}

/// The page is HTML, and a name that promises something else would mislead.
fn page(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(end) if end == "html" || end == "htm" => Ok(path),
        _ => Err("the report is an HTML file: let its name end in .html".to_owned()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_in_full_and_short() {
        for (text, wanted) in [
            ("1", 1),
            ("1k", 1000),
            (" 50K ", 50_000),
            ("100M", JOBS_MAX),
        ] {
            assert_eq!(jobs(text), Ok(wanted), "{text}");
        }
        for bad in [
            "",
            "0",
            "0k",
            "k",
            "1.5M",
            "101M",
            "1G",
            "-1",
            "99999999999999999M",
        ] {
            assert!(jobs(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_said_twice_is_done_once() {
        assert_eq!(once_each(&[8, 1, 8, 2, 1]), [8, 1, 2]);
    }

    /// Somebody who reads only the help learns which option belongs to which scenario.
    #[test]
    fn the_help_of_each_option_names_its_scenarios() {
        let command = Bench::augment_args(clap::Command::new("bench"));
        for (option, scenarios) in USES {
            let arg = command.get_arguments().find(|a| a.get_id() == option);
            let arg = arg.unwrap_or_else(|| panic!("--{option}"));
            let help = arg.get_long_help().or(arg.get_help()).unwrap().to_string();
            for scenario in scenarios {
                let name = scenario.name();
                assert!(help.contains(&name), "--{option}, {name}: {help}");
            }
        }
    }
}
