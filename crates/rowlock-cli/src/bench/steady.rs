//! Producers and a worker together, flat out: batches of 100 in, jobs out as they come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::ledger::Ledger;
use super::meter::Meter;
use super::report::Report;
use super::stage::Stage;

pub(super) async fn run(
    stage: &Stage,
    report: &mut Report,
    jobs: u64,
    producers: usize,
) -> anyhow::Result<()> {
    let jobs = jobs.next_multiple_of(100);
    let ledger = Arc::new(Ledger::new(jobs));
    let worker = stage.worker(&ledger)?.start().await?;
    let meter = Meter::read(stage).await?;
    let next = AtomicU64::new(0);
    let produce = || async {
        loop {
            let n = next.fetch_add(100, Relaxed);
            if n >= jobs {
                return Ok::<_, rowlock::Error>(());
            }
            stage
                .client
                .enqueue_all((n..n + 100).map(|n| stage.job(n)))
                .await?;
        }
    };
    let mut all: Vec<_> = (0..producers.min(4)).map(|_| Box::pin(produce())).collect();
    for producer in futures_util::future::join_all(all.drain(..)).await {
        producer?;
    }
    worker.drained().await;
    let cost = meter.cost(stage, jobs).await?;
    worker.shutdown().await;
    ledger.check(jobs)?;
    report.add(
        format!("steady, flat out, {} producers", producers.min(4)),
        jobs,
        Some(cost),
        None,
    );
    Ok(())
}
