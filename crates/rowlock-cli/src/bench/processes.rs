//! The same backlog worked off by 1, 2, 4 and 8 worker processes with default settings.

use super::Session;
use super::crew::Crew;
use super::figures::Figures;
use super::meter::Meter;
use super::report::{Line, Ratio};
use super::stage::Stage;
use crate::say;

const OF_ONE: &[Ratio] = &[Ratio::new("of_one", "per_second")];
const OF_HALF: &[Ratio] = &[Ratio::new("of_half", "per_second")];

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let (stage, jobs, history) = (session.stage, session.options.jobs, session.options.history);
    let most = session.options.processes.iter().copied().max();
    stage
        .has_room_for(most.unwrap_or_default(), "--processes")
        .await?;
    for processes in session.in_turn(&session.options.processes) {
        stage.clear(history).await?;
        stage.load(jobs).await?;
        let figures = work_off(stage, processes, jobs, &[], history).await?;
        let line = Line::new("processes", case(processes), jobs, figures);
        let line = line.against(case(1), OF_ONE);
        // Of two, half is one.
        session.report.add(if processes > 2 && processes % 2 == 0 {
            line.against(case(processes / 2), OF_HALF)
        } else {
            line
        });
    }
    Ok(())
}

fn case(processes: usize) -> String {
    if processes == 1 {
        "1 process".to_owned()
    } else {
        format!("{} processes", say::number(processes as u64))
    }
}

/// Works off what is there with processes of their own, and checks it. Of all `jobs`, those in `finished` are no longer there.
pub(super) async fn work_off(
    stage: &Stage,
    processes: usize,
    jobs: u64,
    finished: &[u64],
    history: bool,
) -> anyhow::Result<Figures> {
    let _bar = super::watch::spinner("worker processes at work");
    let left = jobs - finished.len() as u64;
    let mut crew = Crew::start(stage, processes, jobs).await?;
    let meter = Meter::read(stage).await?;
    let memory = crew.work(stage).await?;
    let mut figures = meter.cost(stage, left, std::time::Instant::now()).await?;
    let done = crew.end(jobs).await?;
    let seconds = done.end.saturating_duration_since(meter.at).as_secs_f64();
    figures.insert("seconds", seconds);
    figures.insert("per_second", left as f64 / seconds.max(1e-9));
    figures.insert("client_cpu_us", done.cpu_us as f64 / left.max(1) as f64);
    if let Some(memory) = memory {
        figures.insert("worker_rss_start_bytes", memory.start as f64);
        figures.insert("worker_rss_max_bytes", memory.max as f64);
    }
    finished.iter().for_each(|n| done.ledger.ran(*n));
    stage
        .check_acknowledged(&done.ledger, jobs, history)
        .await?;
    Ok(figures)
}
