//! `rowlock bench`: how fast the queue is on this machine, with every job accounted for.
//!
//! Each scenario runs in a schema of its own, `rowlock_bench`, which is made anew and dropped afterwards. Compare ratios within one run:
//! absolute numbers belong to the machine and the moment.

mod drain;
mod enqueue;
mod latency;
mod ledger;
mod meter;
mod pinned;
mod report;
mod stage;
mod steady;

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use report::Report;
use stage::Stage;

/// Measure the queue: throughput, latency, CPU, write-ahead log, with and without what makes other queues slow.
///
/// With no database given, starts a private PostgreSQL with durable commits. Every scenario checks that each job ran exactly once.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock bench                          # enqueue, drain, steady and latency\n  \
    rowlock bench drain --jobs 1000000\n  \
    rowlock bench pinned --rate 2000 --duration 60s --json\n  \
    rowlock bench -d postgres://localhost/scratch enqueue --producers 32")]
pub(crate) struct Bench {
    /// What to measure; several, or none for the usual four.
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,

    /// How many jobs a scenario works through.
    #[arg(long, default_value_t = 200_000, value_name = "N")]
    jobs: u64,

    /// Producers at once, where jobs are enqueued one by one.
    #[arg(long, default_value_t = 8, value_name = "N")]
    producers: usize,

    /// Jobs per second, where they are offered at a constant rate.
    #[arg(long, default_value_t = 2000, value_name = "N")]
    rate: u64,

    /// How long a scenario with a constant rate lasts.
    #[arg(long, default_value = "10s", value_parser = crate::times::span, value_name = "TIME")]
    duration: Duration,

    /// Keep finished jobs in the history.
    #[arg(long)]
    history: bool,

    /// Bytes of payload in each job.
    #[arg(long, default_value_t = 16, value_name = "BYTES")]
    payload: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Jobs in: one by one, in batches of 100, by COPY.
    Enqueue,
    /// Jobs out: a backlog worked off by one worker with default settings.
    Drain,
    /// Producers and a worker together, flat out.
    Steady,
    /// From before the enqueue to the start of the handler, on an idle queue.
    Latency,
    /// A constant rate while a reader, then a writer, holds vacuum back.
    Pinned,
}

const USUAL: [Scenario; 4] = [
    Scenario::Enqueue,
    Scenario::Drain,
    Scenario::Steady,
    Scenario::Latency,
];

impl Bench {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        anyhow::ensure!(
            (1..=100_000_000).contains(&self.jobs),
            "--jobs must be from 1 to 100000000"
        );
        anyhow::ensure!(
            (1..=256).contains(&self.producers),
            "--producers must be from 1 to 256"
        );
        anyhow::ensure!(
            (1..=1_000_000).contains(&self.rate),
            "--rate must be from 1 to 1000000"
        );
        let scenarios = if self.scenarios.is_empty() {
            USUAL.to_vec()
        } else {
            self.scenarios.clone()
        };
        let stage = Stage::set(global, self.history, self.payload).await?;
        let mut report = Report::new(&stage).await?;
        for scenario in scenarios {
            stage.clear().await?;
            match scenario {
                Scenario::Enqueue => {
                    enqueue::run(&stage, &mut report, self.jobs, self.producers).await?;
                }
                Scenario::Drain => drain::run(&stage, &mut report, self.jobs).await?,
                Scenario::Steady => {
                    steady::run(&stage, &mut report, self.jobs, self.producers).await?;
                }
                Scenario::Latency => latency::run(&stage, &mut report, self.jobs.min(2000)).await?,
                Scenario::Pinned => {
                    pinned::run(&stage, &mut report, self.rate, self.duration).await?;
                }
            }
        }
        stage.strike().await?;
        match global.format() {
            Format::Json => output::json(&report)?,
            Format::Table => report.print(),
        }
        Ok(Exit::Success)
    }
}
