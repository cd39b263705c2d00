//! History: run it again, look after it, drop it.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::filter::check_order;
use super::jobs::JobState;
use super::rounds::{self, OnProgress, Tally, check_limit, check_rate};
use super::row;
use crate::client::Client;
use crate::db::Micros;
use crate::error::{Invalid, Result};
use crate::validate;

const REPLAY: &str = "select replayed, duplicates, next from rowlock.replay(max_jobs => $1, next => $2, queue => $3, finished_after => $4, \
                      finished_before => $5, kind => $6, outcome => $7, rate => $8, start_at => $9)";

/// What a replay did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Replayed {
    /// How many copies were enqueued.
    pub replayed: u64,
    /// How many were not, because their unique key is taken by a live job.
    pub duplicates: u64,
}

impl Tally for Replayed {
    fn add(&mut self, r: &Row) -> u64 {
        let (replayed, duplicates) = (row::count(r, "replayed"), row::count(r, "duplicates"));
        self.replayed += replayed;
        self.duplicates += duplicates;
        replayed + duplicates
    }
}

/// A replay, which happens when this is awaited.
#[must_use = "nothing is replayed until this is awaited"]
pub struct Replay<'a> {
    client: &'a Client,
    queue: String,
    finished_after: Timestamp,
    finished_before: Option<Timestamp>,
    kind: Option<String>,
    outcome: Option<JobState>,
    rate: Option<f64>,
    start_at: Option<Timestamp>,
    limit: Option<u64>,
    on_progress: Option<OnProgress<'a, Replayed>>,
}

impl<'a> Replay<'a> {
    /// Only jobs that finished before this time. Never any that finish after the replay begins.
    pub fn finished_before(mut self, at: Timestamp) -> Self {
        self.finished_before = Some(at);
        self
    }

    /// Only jobs of this kind.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Jobs that ended so: done (by default), cancelled or expired.
    pub fn outcome(mut self, outcome: JobState) -> Self {
        self.outcome = Some(outcome);
        self
    }

    /// Jobs that ended in any way.
    pub fn any_outcome(mut self) -> Self {
        self.outcome = None;
        self
    }

    /// Spreads the jobs out: so many per second become due. Without it, all are due at once.
    pub fn rate(mut self, jobs_per_second: f64) -> Self {
        self.rate = Some(jobs_per_second);
        self
    }

    /// When the first of them is due; now, by default.
    pub fn start_at(mut self, at: Timestamp) -> Self {
        self.start_at = Some(at);
        self
    }

    /// Takes at most so many jobs, those that finished first.
    pub fn limit(mut self, jobs: u64) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// Is told after each round what has been done so far.
    pub fn on_progress(mut self, tell: impl FnMut(&Replayed) + Send + 'a) -> Self {
        self.on_progress = Some(Box::new(tell));
        self
    }

    fn check(&self) -> Result<(), Invalid> {
        validate::name("queue", &self.queue)?;
        if let Some(kind) = &self.kind {
            validate::name("kind", kind)?;
        }
        if let Some(outcome) = self.outcome {
            let known = [JobState::Done, JobState::Cancelled, JobState::Expired];
            if !known.contains(&outcome) {
                let rule = "is no outcome: known are done, cancelled, expired";
                return Err(Invalid::new("outcome", outcome, rule));
            }
        }
        if let Some(at) = self.start_at {
            validate::run_at("start_at", at)?;
        }
        check_rate(self.rate)?;
        check_limit(self.limit)?;
        let (after, before) = (Some(self.finished_after), self.finished_before);
        check_order("finished_after", after, "finished_before", before)
    }
}

impl<'a> IntoFuture for Replay<'a> {
    type Output = Result<Replayed>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            self.check()?;
            let micros = |at: Option<Timestamp>| at.map(Micros::from_timestamp);
            rounds::run(
                self.client,
                "replay finished jobs",
                REPLAY,
                &[
                    (&self.queue, Type::TEXT),
                    (
                        &Micros::from_timestamp(self.finished_after),
                        Type::TIMESTAMPTZ,
                    ),
                    (&micros(self.finished_before), Type::TIMESTAMPTZ),
                    (&self.kind, Type::TEXT),
                    (&self.outcome.map(JobState::as_str), Type::TEXT),
                    (&self.rate, Type::FLOAT8),
                    (&micros(self.start_at), Type::TIMESTAMPTZ),
                ],
                self.limit,
                self.on_progress,
            )
            .await
        })
    }
}

/// One step of housekeeping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MaintainStep {
    /// Which step.
    pub step: String,
    /// How much it did.
    pub did: i64,
    /// What there is to say about it; begins with `failed` if it did.
    pub detail: Option<String>,
}

/// What was done about one day of history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PartitionStep {
    /// The table that holds the day.
    pub partition: String,
    /// Begins with `dropped`, `archived`, `locked` (try again later) or `failed`.
    pub answer: String,
}

impl Client {
    /// Enqueues copies of a queue's finished jobs, from a time on; their metadata says `replay_of`.
    ///
    /// ```no_run
    /// # async fn f(client: rowlock::Client, yesterday: jiff::Timestamp) -> rowlock::Result<()> {
    /// let did = client.replay("mail", yesterday).kind("receipt").rate(100.0).await?;
    /// println!("{} jobs run again", did.replayed);
    /// # Ok(())
    /// # }
    /// ```
    pub fn replay(&self, queue: impl Into<String>, finished_after: Timestamp) -> Replay<'_> {
        Replay {
            client: self,
            queue: queue.into(),
            finished_after,
            finished_before: None,
            kind: None,
            outcome: Some(JobState::Done),
            rate: None,
            start_at: None,
            limit: None,
            on_progress: None,
        }
    }

    /// Housekeeping: makes days of history ahead, clears what is past its retention, forgets dead workers. Workers do it by
    /// themselves about once a minute; any number of callers may, anywhere and at any time.
    pub async fn maintain(&self) -> Result<Vec<MaintainStep>> {
        let sql = "select step, did, detail from rowlock.maintain()";
        let rows = self.rows("maintain the queue", sql, &[]).await?;
        let step = |r: &Row| MaintainStep {
            step: r.get("step"),
            did: r.get("did"),
            detail: r.get("detail"),
        };
        Ok(rows.iter().map(step).collect())
    }

    /// Makes the table `archive` in the queue's schema: from then on history that is past its retention is moved there
    /// instead of being deleted. Harmless if it is there.
    pub async fn start_archive(&self) -> Result<()> {
        let sql = "select rowlock.start_archive()";
        self.rows("make the archive table", sql, &[]).await?;
        Ok(())
    }

    /// Drops the days of history that are past the longest retention of all queues. Their rows go first into the table named
    /// by `archive`, with its schema, or into the one of [`start_archive`](Self::start_archive), if there is one.
    pub async fn drop_partitions(&self, archive: Option<&str>) -> Result<Vec<PartitionStep>> {
        archive.map_or(Ok(()), |name| validate::name("archive", name))?;
        let sql = "select partition, answer from rowlock.drop_partitions($1)";
        let mut steps = Vec::new();
        loop {
            // A call moves a bounded number of rows; as long as it stops for that, there is more.
            let rows = self
                .rows("drop old history", sql, &[(&archive, Type::TEXT)])
                .await?;
            let more = rows
                .iter()
                .any(|r| r.get::<_, &str>("answer").starts_with("archived"));
            steps.extend(rows.iter().map(|r| PartitionStep {
                partition: r.get("partition"),
                answer: r.get("answer"),
            }));
            if !more {
                return Ok(steps);
            }
        }
    }
}
