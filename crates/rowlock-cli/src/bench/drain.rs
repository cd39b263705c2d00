//! Jobs out: a backlog worked off by one worker with default settings.

use std::sync::Arc;

use super::ledger::Ledger;
use super::meter::Meter;
use super::report::Report;
use super::stage::{SCHEMA, Stage};

pub(super) async fn run(stage: &Stage, report: &mut Report, jobs: u64) -> anyhow::Result<()> {
    stage.client.bulk((0..jobs).map(|n| stage.job(n))).await?;
    let _ = stage.sql.batch_execute("checkpoint").await;
    let ledger = Arc::new(Ledger::new(jobs));
    let worker = stage.worker(&ledger)?;
    let meter = Meter::read(stage).await?;
    let stopped = worker.drain().await?;
    let cost = meter.cost(stage, jobs).await?;
    ledger.check(jobs)?;
    anyhow::ensure!(
        stopped.unsettled == 0,
        "{} jobs were not settled",
        stopped.unsettled
    );
    let left = stage
        .count(&format!("select count(*) from {SCHEMA}.job"))
        .await?;
    anyhow::ensure!(left == 0, "{left} jobs are left");
    report.add("drain, 1 worker", jobs, Some(cost), None);
    Ok(())
}
