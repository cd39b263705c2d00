//! Jobs in: one by one, in batches, by COPY.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::meter::Meter;
use super::report::Report;
use super::stage::{SCHEMA, Stage};

pub(super) async fn run(
    stage: &Stage,
    report: &mut Report,
    jobs: u64,
    producers: usize,
) -> anyhow::Result<()> {
    let singles = jobs.min(20_000 * producers as u64).min(jobs);
    singly(stage, report, singles, 1.max(producers)).await?;
    plain_inserts(stage, report, singles, producers).await?;
    in_batches(stage, report, jobs).await?;
    by_copy(stage, report, jobs).await?;
    Ok(())
}

/// Each producer waits for its job to be durable before it enqueues the next.
async fn singly(
    stage: &Stage,
    report: &mut Report,
    jobs: u64,
    producers: usize,
) -> anyhow::Result<()> {
    let meter = Meter::read(stage).await?;
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..producers {
        let (client, next) = (stage.client.clone(), next.clone());
        let template = stage.job(0);
        tasks.spawn(async move {
            while next.fetch_add(1, Relaxed) < jobs {
                client.enqueue_new(template.clone()).await?;
            }
            Ok::<_, rowlock::Error>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let cost = meter.cost(stage, jobs).await?;
    expect(stage, jobs).await?;
    report.add(
        format!("enqueue singly, {producers} producers"),
        jobs,
        Some(cost),
        None,
    );
    Ok(())
}

/// The same row by a plain INSERT, one connection for each producer: what there is to compare with.
async fn plain_inserts(
    stage: &Stage,
    report: &mut Report,
    jobs: u64,
    producers: usize,
) -> anyhow::Result<()> {
    stage.clear().await?;
    let mut connections = Vec::new();
    for _ in 0..producers {
        connections.push(stage.another().await?);
    }
    let meter = Meter::read(stage).await?;
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for connection in connections {
        let next = next.clone();
        tasks.spawn(async move {
            let sql = format!("insert into {SCHEMA}.job (queue, kind, payload) values ('bench', 'noop', '{{\"n\": 1}}') returning id");
            let statement = connection.prepare(&sql).await?;
            while next.fetch_add(1, Relaxed) < jobs {
                connection.query_one(&statement, &[]).await?;
            }
            Ok::<_, tokio_postgres::Error>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let cost = meter.cost(stage, jobs).await?;
    report.add(
        format!("plain INSERT, {producers} connections"),
        jobs,
        Some(cost),
        None,
    );
    stage.clear().await
}

async fn in_batches(stage: &Stage, report: &mut Report, jobs: u64) -> anyhow::Result<()> {
    let meter = Meter::read(stage).await?;
    let mut n = 0;
    while n < jobs {
        let size = (jobs - n).min(100);
        stage
            .client
            .enqueue_all((n..n + size).map(|n| stage.job(n)))
            .await?;
        n += size;
    }
    let cost = meter.cost(stage, jobs).await?;
    expect(stage, jobs).await?;
    report.add(
        "enqueue in batches of 100, 1 producer",
        jobs,
        Some(cost),
        None,
    );
    stage.clear().await
}

async fn by_copy(stage: &Stage, report: &mut Report, jobs: u64) -> anyhow::Result<()> {
    let meter = Meter::read(stage).await?;
    stage.client.bulk((0..jobs).map(|n| stage.job(n))).await?;
    let cost = meter.cost(stage, jobs).await?;
    expect(stage, jobs).await?;
    report.add("enqueue by COPY", jobs, Some(cost), None);
    Ok(())
}

/// Fails unless exactly so many jobs are there.
async fn expect(stage: &Stage, jobs: u64) -> anyhow::Result<()> {
    let found = stage
        .count(&format!("select count(*) from {SCHEMA}.job"))
        .await?;
    anyhow::ensure!(
        u64::try_from(found).ok() == Some(jobs),
        "{jobs} jobs were enqueued, but {found} are there"
    );
    Ok(())
}
