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
mod options;
mod pinned;
mod processes;
mod report;
mod signals;
mod stage;
mod steady;
mod table;
mod waits;
mod watch;

use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
pub(crate) use options::Bench;
use options::{Options, Scenario};
use report::Report;
use stage::Stage;

/// What a scenario needs.
struct Session<'a> {
    stage: &'a Stage,
    options: &'a Options,
    report: &'a mut Report,
}

impl Session<'_> {
    /// The cases, each round with another one first: machines get warm, and other things have their turns on them.
    fn in_turn<T: Clone>(&self, cases: &[T]) -> Vec<T> {
        let mut cases = cases.to_vec();
        if !cases.is_empty() {
            let first = self.report.round() % cases.len();
            cases.rotate_left(first);
        }
        cases
    }
}

impl Bench {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        if crew::is_one() {
            crew::be_one().await?;
            return Ok(Exit::Success);
        }
        let schema = global.database.schema.as_deref();
        anyhow::ensure!(
            schema.is_none_or(|s| s == stage::SCHEMA),
            "a benchmark works in a schema of its own, {}, which it drops: leave --schema and ROWLOCK_SCHEMA out",
            stage::SCHEMA
        );
        let options = self.options()?;
        let place = self.report.as_deref().map(html::Place::take).transpose()?;
        let stage = Stage::set(global, signals::hear()?, options.payload).await?;
        let measured = tokio::select! {
            measured = measure(&stage, &options, self.rounds) => measured,
            () = crate::demo::interrupted() => Err(anyhow::anyhow!("interrupted")),
        };
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
}

async fn measure(stage: &Stage, options: &Options, rounds: u16) -> anyhow::Result<Report> {
    let mut report = Report::new(stage).await?;
    for _ in 0..rounds {
        report.begin_round();
        for scenario in &options.scenarios {
            let mut session = Session {
                stage,
                options,
                report: &mut report,
            };
            scenario.run(&mut session).await?;
        }
        report.end_round();
    }
    report.finish();
    Ok(report)
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
