//! A constant rate while somebody holds vacuum back: the way Postgres queues die.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ledger::Ledger;
use super::meter::Meter;
use super::report::{Latency, Report};
use super::stage::Stage;

pub(super) async fn run(
    stage: &Stage,
    report: &mut Report,
    rate: u64,
    duration: Duration,
) -> anyhow::Result<()> {
    offered(stage, report, rate, duration, "nobody").await?;
    stage.clear().await?;
    let reader = stage.another().await?;
    reader
        .batch_execute("begin isolation level repeatable read; select count(*) from pg_class")
        .await?;
    offered(stage, report, rate, duration, "a reader").await?;
    drop(reader);
    stage.clear().await?;
    let writer = stage.another().await?;
    writer
        .batch_execute(
            "create temp table if not exists pin (n int); begin; insert into pin values (1)",
        )
        .await?;
    offered(stage, report, rate, duration, "a writer").await?;
    Ok(())
}

/// Offers jobs at a constant rate, in batches of a few every 5 ms, and measures how long each waits.
async fn offered(
    stage: &Stage,
    report: &mut Report,
    rate: u64,
    duration: Duration,
    who: &str,
) -> anyhow::Result<()> {
    let jobs = (rate as f64 * duration.as_secs_f64()) as u64;
    let ledger = Arc::new(Ledger::new(jobs));
    let worker = stage.worker(&ledger)?.start().await?;
    let meter = Meter::read(stage).await?;
    let began = Instant::now();
    let mut enqueued_us = Vec::with_capacity(usize::try_from(jobs).unwrap_or(0));
    let mut n = 0;
    while n < jobs {
        tokio::time::sleep_until(began + Duration::from_secs_f64(n as f64 / rate as f64)).await;
        let due = ((began.elapsed().as_secs_f64() * rate as f64) as u64 + 1)
            .min(jobs)
            .max(n + 1);
        let before = ledger.now_us();
        stage
            .client
            .enqueue_all((n..due).map(|n| stage.job(n)))
            .await?;
        enqueued_us.extend(std::iter::repeat_n(
            before,
            usize::try_from(due - n).unwrap_or(0),
        ));
        n = due;
    }
    worker.drained().await;
    let cost = meter.cost(stage, jobs).await?;
    worker.shutdown().await;
    ledger.check(jobs)?;
    let waits = |range: std::ops::Range<u64>| {
        range
            .filter_map(|n| {
                Some(
                    ledger
                        .started_us(n)?
                        .saturating_sub(enqueued_us[usize::try_from(n).ok()?]),
                )
            })
            .collect()
    };
    report.add(
        format!("{rate}/s, vacuum held back by {who}"),
        jobs,
        Some(cost),
        Latency::of(waits(0..jobs)),
    );
    report.add(
        format!("… its last fifth, {who}"),
        jobs / 5,
        None,
        Latency::of(waits(jobs - jobs / 5..jobs)),
    );
    Ok(())
}
