//! From before the enqueue to the start of the handler, on an idle queue.

use std::sync::Arc;
use std::time::Duration;

use super::ledger::Ledger;
use super::report::{Latency, Report};
use super::stage::Stage;

pub(super) async fn run(stage: &Stage, report: &mut Report, jobs: u64) -> anyhow::Result<()> {
    let ledger = Arc::new(Ledger::new(jobs));
    let worker = stage.worker(&ledger)?.start().await?;
    let mut waits = Vec::new();
    for n in 0..jobs {
        // Long enough for the worker to run dry and wait for the bell.
        tokio::time::sleep(Duration::from_millis(60 + n % 7 * 10)).await;
        let before = ledger.now_us();
        stage.client.enqueue_new(stage.job(n)).await?;
        let started = loop {
            if let Some(started) = ledger.started_us(n) {
                break started;
            }
            anyhow::ensure!(
                ledger.now_us() - before < 10_000_000,
                "job {n} has not started after 10 s"
            );
            tokio::time::sleep(Duration::from_micros(200)).await;
        };
        waits.push(started.saturating_sub(before));
    }
    worker.shutdown().await;
    ledger.check(jobs)?;
    report.add("latency, idle queue", jobs, None, Latency::of(waits));
    Ok(())
}
