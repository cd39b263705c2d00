//! A deep backlog against a small one: how long a claim takes, how fast a worker process works it off, and how much memory that takes.

use std::time::Instant;

use anyhow::Context;

use super::Session;
use super::processes::work_off;
use super::report::Line;
use super::stage::{QUEUE, SCHEMA, Stage, number};
use super::waits::{Until, Waits};
use crate::say;

const SMALL: u64 = 10_000;
/// Jobs in a claim, and claims at most.
const CLAIM: u64 = 50;
const CLAIMS_MAX: u64 = 100;

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let (stage, history) = (session.stage, session.options.history);
    let deep = session.options.jobs;
    let mut small = None;
    for jobs in [SMALL.min(deep.div_ceil(2)), deep] {
        stage.clear(history).await?;
        stage.load(jobs).await?;
        stage.open().await?;
        let (waits, finished) = claim(stage, (jobs / 2 / CLAIM).clamp(1, CLAIMS_MAX)).await?;
        stage.pause().await?;
        let mut figures = work_off(stage, 1, jobs, &finished, history).await?;
        figures.extend(waits.figures(Until::Claim));
        let p50 = figures.get("claim_p50_ms").copied().unwrap_or(0.0);
        match small {
            None => small = Some(p50),
            Some(small) => {
                figures.insert("claim_of_small", p50 / small);
            }
        }
        let case = format!("{} waiting", say::number(jobs));
        session
            .report
            .add(Line::new("backlog", case, jobs, figures));
    }
    Ok(())
}

/// Claims some jobs, timed, and finishes them. Answers with their numbers.
async fn claim(stage: &Stage, claims: u64) -> anyhow::Result<(Waits, Vec<u64>)> {
    let claim =
        format!("select id, token, tid, payload::text from {SCHEMA}.claim('{{{QUEUE}}}', {CLAIM})");
    let complete = format!(
        "select cardinality(done) from {SCHEMA}.complete('{QUEUE}', $1::bigint[], $2::bigint[], $3::text[])"
    );
    let connection = stage.another().await?;
    let claim = connection.prepare(&claim).await?;
    let complete = connection.prepare(&complete).await?;
    let mut waits = Waits::new();
    let mut finished = Vec::new();
    for _ in 0..claims {
        let began = Instant::now();
        let rows = connection.query(&claim, &[]).await?;
        waits.add_us(u64::try_from(began.elapsed().as_micros())?);
        let ids: Vec<i64> = rows.iter().map(|r| r.get(0)).collect();
        let tokens: Vec<i64> = rows.iter().map(|r| r.get(1)).collect();
        let tids: Vec<String> = rows.iter().map(|r| r.get(2)).collect();
        let done: Option<i32> = connection
            .query_one(&complete, &[&ids, &tokens, &tids])
            .await?
            .get(0);
        let done = done.and_then(|n| usize::try_from(n).ok());
        let done = done.context("a completion without an answer")?;
        anyhow::ensure!(
            done == ids.len(),
            "of {} jobs only {done} were completed",
            ids.len()
        );
        finished.extend(rows.iter().map(|r| number(r.get(3))));
    }
    Ok((waits, finished))
}
