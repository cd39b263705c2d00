//! Jobs in: one by one, in batches, by COPY, and in the caller's transaction; each beside plain INSERTs of the same rows.

mod bulk;
mod in_tx;
mod numbers;
mod single;

use super::Session;
use super::stage::{KIND, QUEUE, SCHEMA, Stage, job_of, payload, signed};

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let producers = session.options.producers.clone();
    for at_once in &producers {
        single::run(session, *at_once, false).await?;
    }
    for at_once in producers.iter().filter(|n| **n > 1) {
        single::run(session, *at_once, true).await?;
    }
    in_tx::run(session).await?;
    bulk::run(session).await
}

/// The same row that an enqueue makes, by hand; the payload is the parameter.
fn plain_insert() -> String {
    format!(
        "insert into {SCHEMA}.job (queue, kind, payload) values ('{QUEUE}', '{KIND}', $1::text::jsonb) returning id"
    )
}

/// Fails unless exactly these jobs are there, each once.
async fn expect(stage: &Stage, jobs: u64) -> anyhow::Result<()> {
    let sql = format!("select count(*), count(distinct payload ->> 'n') from {SCHEMA}.job");
    let row = stage.sql.query_one(&sql, &[]).await?;
    let (found, distinct): (i64, i64) = (row.get(0), row.get(1));
    anyhow::ensure!(
        found == signed(jobs) && distinct == found,
        "{jobs} jobs were enqueued, but {found} are there, of {distinct} numbers"
    );
    Ok(())
}

/// The `n`-th job, for tasks that cannot borrow the stage.
fn job(n: u64, padding: &str) -> rowlock::NewJob {
    job_of(payload(n, padding)).queue(QUEUE)
}
