//! A deep backlog against a small one: how long a claim takes, how fast a worker process works it off, and how much memory that takes.
//!
//! The claims that are timed are those of a worker, which knows where its last one stopped; and the simple form, for workers in other languages, which
//! does not. What they take is completed at once and was loaded on top, so that afterwards as many jobs are worked off as the case says.

use std::time::Instant;

use anyhow::Context;
use jiff::Timestamp;
use tokio_postgres::types::{ToSql, Type};

use super::Session;
use super::processes::work_off;
use super::report::{Line, Ratio};
use super::stage::{KIND, QUEUE, SCHEMA, Stage, number};
use super::waits::{Until, Waits};
use crate::say;

const SMALL: u64 = 10_000;
/// Jobs in a claim, and claims of each form.
const CLAIM: i32 = 50;
const CLAIMS: u64 = 100;

const OF_SMALL: &[Ratio] = &[
    Ratio::new("claim_of_small", "claim_p50_ms"),
    Ratio::new("worker_rss_of_small", "worker_rss_max_bytes"),
];

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let (stage, history) = (session.stage, session.options.history);
    let case = |jobs| format!("{} waiting", say::number(jobs));
    let deep = session.options.backlog;
    for jobs in session.in_turn(&[SMALL, deep]) {
        stage.clear(history).await?;
        let all = jobs + 2 * CLAIMS * CLAIM.unsigned_abs() as u64;
        stage.load(all).await?;
        stage.resume().await?;
        let claims = Claims::time(stage).await?;
        stage.pause().await?;
        let mut figures = work_off(stage, 1, all, &claims.finished, history).await?;
        figures.extend(claims.of_worker.figures(Until::Claim));
        let simple = claims.simple.figures(Until::Claim);
        figures.extend(
            simple
                .get("claim_p50_ms")
                .map(|ms| ("simple_claim_p50_ms", *ms)),
        );
        let line = Line::new("backlog", case(jobs), jobs, figures);
        session.report.add(if jobs == deep {
            line.against(case(SMALL), OF_SMALL)
        } else {
            line
        });
    }
    Ok(())
}

/// What was claimed.
struct Claims {
    of_worker: Waits,
    simple: Waits,
    /// The numbers of the jobs.
    finished: Vec<u64>,
}

impl Claims {
    /// Times the claims and completes what they took.
    async fn time(stage: &Stage) -> anyhow::Result<Self> {
        let connection = stage.another().await?;
        let mut claims = Self {
            of_worker: Waits::new(),
            simple: Waits::new(),
            finished: Vec::new(),
        };
        let mut cursor = Cursor::default();
        for _ in 0..CLAIMS {
            let (us, jobs) = cursor.claim(&connection).await?;
            claims.of_worker.add_us(us);
            claims.complete(&connection, jobs).await?;
        }
        for _ in 0..CLAIMS {
            let (us, jobs) = simple_claim(&connection).await?;
            claims.simple.add_us(us);
            claims.complete(&connection, jobs).await?;
        }
        Ok(claims)
    }

    async fn complete(
        &mut self,
        connection: &tokio_postgres::Client,
        jobs: Vec<Claimed>,
    ) -> anyhow::Result<()> {
        anyhow::ensure!(
            jobs.len() == CLAIM.unsigned_abs() as usize,
            "a claim of {CLAIM} jobs brought {}",
            jobs.len()
        );
        let sql = format!(
            "select cardinality(done) from {SCHEMA}.complete('{QUEUE}', $1::bigint[], $2::bigint[])"
        );
        let ids: Vec<i64> = jobs.iter().map(|job| job.id).collect();
        let tokens: Vec<i64> = jobs.iter().map(|job| job.token).collect();
        let done = connection.query_one(&sql, &[&ids, &tokens]).await?;
        let done: Option<i32> = done.get(0);
        let done = done.context("a completion without an answer")?;
        anyhow::ensure!(
            done == CLAIM,
            "of {CLAIM} claimed jobs only {done} were completed"
        );
        self.finished.extend(jobs.iter().map(|job| job.n));
        Ok(())
    }
}

struct Claimed {
    id: i64,
    token: i64,
    n: u64,
}

/// Where the claims of a worker go on, in each priority, highest first.
struct Cursor {
    at: Vec<Timestamp>,
    id: Vec<i64>,
}

impl Default for Cursor {
    fn default() -> Self {
        Self {
            at: vec![Timestamp::UNIX_EPOCH; 9],
            id: vec![0; 9],
        }
    }
}

impl Cursor {
    /// All these jobs have the priority in the middle.
    const PLACE: usize = 4;

    /// One claim with what the library tells it (crates/rowlock/src/worker/claim/ask.rs), sent as the library sends it. Answers with the microseconds until it was answered.
    async fn claim(
        &mut self,
        connection: &tokio_postgres::Client,
    ) -> anyhow::Result<(u64, Vec<Claimed>)> {
        let sql = format!(
            "select * from {SCHEMA}.claim_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, true, $13, $14)"
        );
        let token = rand::random::<i64>() | 1;
        let (no_times, no_ids) = (None::<Vec<Timestamp>>, None::<Vec<i64>>);
        let parameters: [(&(dyn ToSql + Sync), Type); 14] = [
            (&&[QUEUE][..], Type::TEXT_ARRAY),
            (&&[CLAIM][..], Type::INT4_ARRAY),
            (&CLAIM, Type::INT4),
            (&0i64, Type::INT8),
            (&token, Type::INT8),
            (&30_000i32, Type::INT4),
            (&&[KIND][..], Type::TEXT_ARRAY),
            (&true, Type::BOOL),
            (&self.at, Type::TIMESTAMPTZ_ARRAY),
            (&self.id, Type::INT8_ARRAY),
            (&0i32, Type::INT4),
            (&&[true][..], Type::BOOL_ARRAY),
            (&no_times, Type::TIMESTAMPTZ_ARRAY),
            (&no_ids, Type::INT8_ARRAY),
        ];
        let began = Instant::now();
        let rows = connection.query_typed(&sql, &parameters).await?;
        let us = u64::try_from(began.elapsed().as_micros())?;
        let mut jobs = Vec::new();
        for row in rows {
            // The last row says how the claim went, and is no job.
            let Some(id) = row.get::<_, Option<i64>>("id") else {
                continue;
            };
            let seen: (Timestamp, i64) = (row.get("run_at"), id);
            if seen > (self.at[Self::PLACE], self.id[Self::PLACE]) {
                (self.at[Self::PLACE], self.id[Self::PLACE]) = seen;
            }
            let payload: tokio_postgres::types::Json<&serde_json::value::RawValue> =
                row.get("payload");
            let n = number(payload.0.get());
            jobs.push(Claimed { id, token, n });
        }
        Ok((us, jobs))
    }
}

/// The form for other languages.
async fn simple_claim(connection: &tokio_postgres::Client) -> anyhow::Result<(u64, Vec<Claimed>)> {
    let sql =
        format!("select id, token, payload::text from {SCHEMA}.claim('{{{QUEUE}}}', {CLAIM})");
    let began = Instant::now();
    let rows = connection.query_typed(&sql, &[]).await?;
    let us = u64::try_from(began.elapsed().as_micros())?;
    let claimed = |row: &tokio_postgres::Row| Claimed {
        id: row.get(0),
        token: row.get(1),
        n: number(row.get(2)),
    };
    Ok((us, rows.iter().map(claimed).collect()))
}
