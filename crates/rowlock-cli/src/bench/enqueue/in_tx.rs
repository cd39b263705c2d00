//! In the caller's own transaction, which inserts a row of its own: alone, with a job, and with a plain INSERT in place of the job, once
//! prepared beforehand and once sent as the job is: a library can keep nothing prepared in a session that is not its own.

use std::sync::Arc;
use std::time::Instant;

use tokio_postgres::types::Type;

use super::super::Session;
use super::super::figures::Figures;
use super::super::meter::Meter;
use super::super::report::Line;
use super::super::stage::{SCHEMA, Stage};
use super::numbers::{Numbers, hand_out};
use super::{expect, plain_insert, signed};

const CALLERS: usize = 8;
const JOBS_MAX: u64 = 40_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum With {
    Nothing,
    PreparedInsert,
    PlainInsert,
    Job,
}

const CASES: [(With, &str); 4] = [
    (With::Nothing, "in a transaction: alone, 8 callers"),
    (
        With::PreparedInsert,
        "in a transaction: and a prepared INSERT, 8 callers",
    ),
    (
        With::PlainInsert,
        "in a transaction: and a plain INSERT, 8 callers",
    ),
    (With::Job, "in a transaction: and a job, 8 callers"),
];

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let stage = session.stage;
    let most = session.options.jobs.min(JOBS_MAX);
    let mut rates: Vec<f64> = Vec::new();
    for (with, case) in CASES {
        stage.clear(session.options.history).await?;
        let (jobs, mut figures) = measure(stage, most, with).await?;
        let rate = figures.get("per_second").copied().unwrap_or(0.0);
        for (name, other) in ["of_alone", "of_prepared", "of_plain"]
            .into_iter()
            .zip(&rates)
        {
            figures.insert(name, rate / other);
        }
        rates.push(rate);
        session
            .report
            .add(Line::new("enqueue", case, jobs, figures));
    }
    Ok(())
}

async fn measure(stage: &Stage, most: u64, with: With) -> anyhow::Result<(u64, Figures)> {
    let sql = format!("create table {SCHEMA}.caller (n bigint primary key, note text)");
    stage.sql.batch_execute(&sql).await?;
    let connections = stage.others(CALLERS).await?;
    let meter = Meter::read(stage).await?;
    let callers = connections.into_iter().map(|connection| {
        let (client, padding) = (stage.client.clone(), stage.padding().to_owned());
        move |numbers| call(connection, client, with, numbers, padding)
    });
    let (jobs, open) = hand_out("in transactions", most, callers).await?;
    let figures = meter.cost(stage, jobs, Instant::now()).await?;
    drop(open);
    let rows = stage
        .count(&format!("select count(*) from {SCHEMA}.caller"))
        .await?;
    anyhow::ensure!(rows == signed(jobs), "{jobs} transactions left {rows} rows");
    expect(stage, if with == With::Nothing { 0 } else { jobs }).await?;
    Ok((jobs, figures))
}

/// A caller: one transaction after the other.
async fn call(
    mut connection: tokio_postgres::Client,
    client: rowlock::Client,
    with: With,
    numbers: Arc<Numbers>,
    padding: String,
) -> anyhow::Result<tokio_postgres::Client> {
    let own = format!("insert into {SCHEMA}.caller (n, note) values ($1, 'what the caller does')");
    let own = connection.prepare(&own).await?;
    let prepared = connection.prepare(&plain_insert()).await?;
    while let Some(n) = numbers.next() {
        let mut tx = connection.transaction().await?;
        tx.execute(&own, &[&signed(n)]).await?;
        match with {
            With::Nothing => {}
            With::PreparedInsert => {
                tx.query_one(&prepared, &[&super::payload(n, &padding)])
                    .await?;
            }
            With::PlainInsert => {
                let payload = super::payload(n, &padding);
                tx.query_typed(&plain_insert(), &[(&payload, Type::TEXT)])
                    .await?;
            }
            With::Job => {
                let job = super::job(n, &padding);
                client.enqueue_new(job).in_tx(&mut tx).await?;
            }
        }
        tx.commit().await?;
    }
    Ok(connection)
}
