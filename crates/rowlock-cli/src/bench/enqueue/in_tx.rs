//! In the caller's own transaction, which inserts a row of its own: alone, with a job, and with a plain INSERT in place of the job, once
//! prepared beforehand and once sent as the job is: a library can keep nothing prepared in a session that is not its own.

use std::sync::Arc;
use std::time::Instant;

use tokio_postgres::types::Type;

use super::super::Session;
use super::super::figures::Figures;
use super::super::meter::Meter;
use super::super::report::{Line, Ratio};
use super::super::stage::{SCHEMA, Stage};
use super::numbers::{Numbers, hand_out};
use super::{OF_PLAIN, each_runs_once, plain_insert, signed};
use crate::say;

const JOBS_MAX: u64 = 40_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum With {
    Nothing,
    PreparedInsert,
    PlainInsert,
    Job,
}

const ALL: [With; 4] = [
    With::Nothing,
    With::PreparedInsert,
    With::PlainInsert,
    With::Job,
];

const OF_ALONE: &[Ratio] = &[Ratio::new("of_alone", "per_second")];
const OF_PREPARED: &[Ratio] = &[Ratio::new("of_prepared", "per_second")];

impl With {
    fn case(self, callers: usize) -> String {
        let with = match self {
            Self::Nothing => "alone",
            Self::PreparedInsert => "and a prepared INSERT",
            Self::PlainInsert => "and a plain INSERT",
            Self::Job => "and a job",
        };
        format!(
            "in a transaction: {with}, {}",
            say::count(callers as u64, "caller")
        )
    }

    /// What it is compared with.
    fn against(self, line: Line, callers: usize) -> Line {
        if self == Self::Nothing {
            return line;
        }
        let line = line.against(Self::Nothing.case(callers), OF_ALONE);
        if self == Self::PreparedInsert {
            return line;
        }
        let line = line.against(Self::PreparedInsert.case(callers), OF_PREPARED);
        if self == Self::PlainInsert {
            return line;
        }
        line.against(Self::PlainInsert.case(callers), OF_PLAIN)
    }
}

pub(super) async fn run(session: &mut Session<'_>, callers: usize) -> anyhow::Result<()> {
    let (stage, history) = (session.stage, session.options.history);
    let most = session.options.jobs.min(JOBS_MAX);
    for with in session.in_turn(&ALL) {
        stage.clear(history).await?;
        let (transactions, figures) = measure(stage, most, with, callers).await?;
        let jobs = match with {
            With::Nothing => 0,
            _ => transactions,
        };
        each_runs_once(stage, jobs, history).await?;
        let line = Line::new("enqueue", with.case(callers), transactions, figures);
        session.report.add(with.against(line, callers));
    }
    Ok(())
}

async fn measure(
    stage: &Stage,
    most: u64,
    with: With,
    callers: usize,
) -> anyhow::Result<(u64, Figures)> {
    let sql = format!("create table {SCHEMA}.caller (n bigint primary key, note text)");
    stage.sql.batch_execute(&sql).await?;
    let connections = stage.others(callers).await?;
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
