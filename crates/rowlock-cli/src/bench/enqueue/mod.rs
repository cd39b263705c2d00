//! Jobs in: one by one, in batches, by COPY, and in the caller's transaction; each beside plain INSERTs of the same rows, and each round begins with
//! another of the two. Afterwards, off the clock, a worker works off what is there, and each job must run exactly once.

mod bulk;
mod in_tx;
mod numbers;
mod single;

use std::sync::Arc;

use super::Session;
use super::ledger::Ledger;
use super::patience;
use super::report::Ratio;
use super::stage::{KIND, QUEUE, SCHEMA, Stage, job_of, payload, signed};
use super::watch;
use crate::say;

const OF_PLAIN: &[Ratio] = &[Ratio::new("of_plain", "per_second")];

/// Who makes the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Plain,
    Ours,
}

const BOTH: [By; 2] = [By::Plain, By::Ours];

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let producers = numbers_of_producers(session, &[1, 8, 32]);
    for busy in [false, true] {
        for at_once in &producers {
            single::run(session, *at_once, busy).await?;
        }
    }
    for at_once in numbers_of_producers(session, &[8]) {
        in_tx::run(session, at_once).await?;
    }
    bulk::run(session).await
}

/// As they were given, or else what is usual for this way in.
fn numbers_of_producers(session: &Session<'_>, usual: &[usize]) -> Vec<usize> {
    if session.options.producers_given {
        session.options.producers.clone()
    } else {
        usual.to_vec()
    }
}

fn producers(n: usize) -> String {
    say::count(n as u64, "producer")
}

/// The same row that an enqueue makes, by hand; the payload is the parameter.
fn plain_insert() -> String {
    format!(
        "insert into {SCHEMA}.job (queue, kind, payload) values ('{QUEUE}', '{KIND}', $1::text::jsonb) returning id"
    )
}

/// Works off what was enqueued. Fails unless these are the jobs, and each runs exactly once.
async fn each_runs_once(stage: &Stage, jobs: u64, history: bool) -> anyhow::Result<()> {
    let ledger = Arc::new(Ledger::new(jobs));
    let worker = stage.worker(&ledger)?.start().await?;
    let _bar = watch::bar("working off, not measured", jobs, {
        let worker = worker.clone();
        move || worker.handled()
    });
    patience::drained(&worker).await?;
    let stopped = worker.shutdown().await;
    stage.check(&ledger, jobs, stopped, history).await
}

/// The `n`-th job, for tasks that cannot borrow the stage.
fn job(n: u64, padding: &str) -> rowlock::NewJob {
    job_of(payload(n, padding)).queue(QUEUE)
}
