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
mod patience;
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
use crate::say;
pub(crate) use options::Bench;
use options::{Options, Scenario};
use report::Report;
use stage::Stage;

/// Connections that scenarios open for themselves, where no option says how many.
const CONNECTIONS_MAX: usize = 8;

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
        let stage = Stage::set_up(global, signals::hear()?, options.payload).await?;
        let mut report = Report::new(&stage, &options).await?;
        output::aside(&format!("measuring {}", report.place.text()));
        let measured = tokio::select! {
            measured = measure(&stage, &options, &mut report) => measured,
            () = crate::demo::interrupted() => Err(anyhow::anyhow!("interrupted")),
        };
        // Also when something went wrong: nothing of ours stays in somebody's database.
        let taken_down = stage.take_down().await;
        let measured = measured.map_err(|e| e.context(report.whereabouts()));
        report.finish(measured.as_ref().err());
        let shown = show(&report, place, global.format());
        measured?;
        shown?;
        taken_down?;
        Ok(Exit::Success)
    }
}

/// What was measured, also if that is not all: hours must not be lost to what went wrong at the end. What was refused has nothing to show.
fn show(report: &Report, place: Option<html::Place>, format: Format) -> anyhow::Result<()> {
    if report.lines.is_empty() && report.failed.is_some() {
        return Ok(());
    }
    let written = place.map_or(Ok(()), |place| place.write(report));
    match format {
        Format::Json => output::json(report)?,
        Format::Table => table::print(report),
    }
    written
}

async fn measure(stage: &Stage, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    for scenario in &options.scenarios {
        scenario.check_room(stage, options).await?;
    }
    for _ in 0..options.rounds {
        report.begin_round();
        for scenario in &options.scenarios {
            report.begin_scenario(*scenario);
            let mut session = Session {
                stage,
                options,
                report: &mut *report,
            };
            scenario.run(&mut session).await?;
        }
        report.end_round();
    }
    Ok(())
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

    /// Fails unless the server lets in as many connections as it needs.
    async fn check_room(self, stage: &Stage, options: &Options) -> anyhow::Result<()> {
        let most = |numbers: &[usize]| numbers.iter().copied().max().unwrap_or_default();
        match self {
            Self::Enqueue => {
                let producers = most(&options.producers);
                let who = say::count(producers as u64, "producer");
                let connections = producers.max(CONNECTIONS_MAX);
                stage
                    .has_room_beside(connections, &who, Some("--producers"))
                    .await
            }
            Self::Processes => {
                let processes = most(&options.processes);
                stage.has_room_for(processes, "--processes").await
            }
            Self::Idle => {
                let workers = usize::from(options.workers);
                stage.has_room_for(workers, "--workers").await
            }
            _ => {
                let who = format!("the scenario {}", self.name());
                stage.has_room_beside(CONNECTIONS_MAX, &who, None).await
            }
        }
    }
}
