//! Jobs out: a backlog worked off by one worker with default settings, without and with a history.

use super::Session;
use super::report::Line;

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let jobs = session.options.jobs;
    for (history, case) in [(false, "history off"), (true, "history kept")] {
        session.stage.clear(history).await?;
        session.stage.load(jobs).await?;
        let figures = session.stage.work_off(jobs, history).await?;
        session.report.add(Line::new("drain", case, jobs, figures));
    }
    Ok(())
}
