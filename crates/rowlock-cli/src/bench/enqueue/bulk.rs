//! Many at once: in batches of 100, and all by COPY.

use std::time::Instant;

use super::super::Session;
use super::super::figures::Figures;
use super::super::meter::Meter;
use super::super::report::Line;
use super::super::stage::{KIND, QUEUE, SCHEMA, Stage};
use super::super::watch;
use super::expect;

const BATCH: u64 = 100;

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let (stage, jobs, history) = (session.stage, session.options.jobs, session.options.history);
    stage.clear(history).await?;
    let plain = plain_batches(stage, jobs).await?;
    let plain_rate = plain.get("per_second").copied();
    let case = "plain INSERT of 100 rows, 1 producer";
    session.report.add(Line::new("enqueue", case, jobs, plain));

    stage.clear(history).await?;
    let mut ours = batches(stage, jobs).await?;
    if let Some((rate, plain)) = ours.get("per_second").zip(plain_rate) {
        ours.insert("of_plain", rate / plain);
    }
    let case = "batches of 100, 1 producer";
    session.report.add(Line::new("enqueue", case, jobs, ours));

    stage.clear(history).await?;
    let _bar = watch::spinner("by COPY");
    let meter = Meter::read(stage).await?;
    stage.client.bulk((0..jobs).map(|n| stage.job(n))).await?;
    let figures = meter.cost(stage, jobs, Instant::now()).await?;
    expect(stage, jobs).await?;
    session
        .report
        .add(Line::new("enqueue", "by COPY", jobs, figures));
    Ok(())
}

async fn batches(stage: &Stage, jobs: u64) -> anyhow::Result<Figures> {
    let _bar = watch::spinner("in batches of 100");
    let meter = Meter::read(stage).await?;
    let mut n = 0;
    while n < jobs {
        let end = jobs.min(n + BATCH);
        let batch = (n..end).map(|n| stage.job(n));
        stage.client.enqueue_all(batch).await?;
        n = end;
    }
    let figures = meter.cost(stage, jobs, Instant::now()).await?;
    expect(stage, jobs).await?;
    Ok(figures)
}

async fn plain_batches(stage: &Stage, jobs: u64) -> anyhow::Result<Figures> {
    let _bar = watch::spinner("plain INSERTs of 100 rows");
    let connection = stage.another().await?;
    let sql = format!(
        "insert into {SCHEMA}.job (queue, kind, payload) select '{QUEUE}', '{KIND}', p::jsonb from unnest($1::text[]) p returning id"
    );
    let statement = connection.prepare(&sql).await?;
    let meter = Meter::read(stage).await?;
    let mut n = 0;
    while n < jobs {
        let end = jobs.min(n + BATCH);
        let payloads: Vec<String> = (n..end).map(|n| stage.payload(n)).collect();
        connection.query(&statement, &[&payloads]).await?;
        n = end;
    }
    let figures = meter.cost(stage, jobs, Instant::now()).await?;
    expect(stage, jobs).await?;
    Ok(figures)
}
