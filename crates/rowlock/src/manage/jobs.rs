//! Jobs: find one, list many, cancel, retry, delete.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::dead::DeadReason;
use super::filter::{JobFilter, Next};
use super::{row, words};
use crate::client::Client;
use crate::db::{Param, RawJson};
use crate::error::{Error, Result};
use crate::job::JobId;
use crate::unreadable;

/// Most ids that one call of the database's functions takes.
const IDS_MAX: usize = 10_000;

words! {
    /// Where a job is in its life.
    pub enum JobState ("state", "is no state of a job") {
        /// It is for later: because it was enqueued so, or because it failed and waits for its next attempt.
        Scheduled = "scheduled",
        /// It waits for a worker.
        Ready = "ready",
        /// A worker has it.
        Running = "running",
        /// It finished with success.
        Done = "done",
        /// It was cancelled before it could finish.
        Cancelled = "cancelled",
        /// It could not start before its expiry.
        Expired = "expired",
        /// It failed for good and is kept until somebody redrives or discards it.
        Dead = "dead",
    }
}

words! {
    /// In which table a job is.
    pub enum Place ("place", "is no place of a job") {
        /// Among those that still have to run.
        Live = "live",
        /// In the history.
        Finished = "finished",
        /// Among the dead letters.
        Dead = "dead",
    }
}

words! {
    /// What became of a wish to cancel.
    pub enum CancelAnswer ("answer", "is no answer to cancel") {
        /// It waited, and has ended.
        Cancelled = "cancelled",
        /// It runs, and its handler has been told.
        Asked = "asked",
        /// An open transaction holds its row: try again.
        Busy = "busy",
        /// It has ended already, or never was.
        NotLive = "not_live",
    }
}

words! {
    /// What became of a wish to run a job again, or sooner.
    pub enum RetryAnswer ("answer", "is no answer to retry") {
        /// It was dead and is live again, with no failure counted.
        Revived = "revived",
        /// It had finished; a copy of it was enqueued.
        Copied = "copied",
        /// It waited for a later time and is due now.
        Hastened = "hastened",
        /// It waits for a worker already.
        Ready = "ready",
        /// It runs already.
        Running = "running",
        /// Its unique key is taken by another live job.
        Duplicate = "duplicate",
        /// An open transaction holds its row: try again.
        Busy = "busy",
        /// There is no such job.
        NotFound = "not_found",
    }
}

words! {
    /// What became of a wish to delete.
    pub enum DeleteAnswer ("answer", "is no answer to delete") {
        /// It is gone.
        Deleted = "deleted",
        /// It runs, and was left alone: cancel it first.
        Running = "running",
        /// An open transaction holds its row: try again.
        Busy = "busy",
        /// There is no such job.
        NotFound = "not_found",
    }
}

/// One failed attempt of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct JobError {
    /// Which attempt it was.
    pub attempt: i32,
    /// When it failed.
    pub at: Timestamp,
    /// The id of the worker that ran it; 0 for a caller without a name.
    pub worker: i64,
    /// What went wrong.
    pub error: String,
}

impl Default for JobError {
    fn default() -> Self {
        Self {
            attempt: 0,
            at: Timestamp::UNIX_EPOCH,
            worker: 0,
            error: String::new(),
        }
    }
}

/// Everything about a job, wherever it is. As JSON it is also a line of an [archive](Client::archive_to).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobInfo {
    /// In which table it is.
    pub place: Place,
    /// Where it is in its life.
    pub state: JobState,
    /// Its identity.
    pub id: JobId,
    /// The queue it belongs to.
    pub queue: String,
    /// What sort of job it is.
    pub kind: String,
    /// From -4 to 4; higher runs first.
    pub priority: i16,
    /// Its data: a JSON object, as it is stored. See [`payload_as`](Self::payload_as).
    pub payload: Box<RawValue>,
    /// How many times it has been started.
    pub attempt: i32,
    /// How many attempts failed, as counted against `max_attempts`.
    pub failures: i16,
    /// How many times its worker died or lost its connection.
    pub crashes: i16,
    /// After how many failures it is dead: its own setting, else its kind's, else its queue's.
    pub max_attempts: Option<i16>,
    /// Whether it is ready because its last worker died or lost its connection.
    #[serde(default)]
    pub crashed: bool,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it is or was due.
    pub run_at: Timestamp,
    /// When its last attempt started.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When it finished or died.
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// Until when its worker holds it, unless the worker extends that.
    #[serde(default)]
    pub lease_until: Option<Timestamp>,
    /// By when it must have started.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// When somebody asked it to stop.
    #[serde(default)]
    pub cancel_at: Option<Timestamp>,
    /// How long one attempt may run: its own setting, else its kind's.
    #[serde(default)]
    pub timeout_ms: Option<i64>,
    /// Why it is dead.
    #[serde(default)]
    pub reason: Option<DeadReason>,
    /// No other live job of the queue has this key.
    #[serde(default)]
    pub unique_key: Option<String>,
    /// Its own retry policy, if it has one.
    #[serde(default)]
    pub backoff: Option<Box<RawValue>>,
    /// Labels to find it by.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub tags: Vec<String>,
    /// What was carried along with it.
    #[serde(default)]
    pub metadata: Option<Box<RawValue>>,
    /// The W3C traceparent of whoever enqueued it.
    #[serde(default)]
    pub trace: Option<String>,
    /// What went wrong so far, oldest first.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub errors: Vec<JobError>,
    /// What its handler returned.
    #[serde(default)]
    pub result: Option<Box<RawValue>>,
    /// How far its handler says it has come.
    #[serde(default)]
    pub progress: Option<Box<RawValue>>,
    /// The worker of its last attempt.
    #[serde(default)]
    pub worker: Option<i64>,
    /// That worker's name, as long as it is remembered.
    #[serde(default)]
    pub worker_name: Option<String>,
    /// The machine of that worker.
    #[serde(default)]
    pub worker_host: Option<String>,
}

fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl JobInfo {
    /// The payload as a Rust type.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.payload.get()).map_err(|e| {
            Error::json(
                format!("read the payload of job {}", self.id),
                unreadable::error(&e),
            )
        })
    }

    /// The newest error.
    #[must_use]
    pub fn last_error(&self) -> Option<&JobError> {
        self.errors.last()
    }

    fn read(r: &Row) -> Result<Self> {
        let payload = row::raw(r, "payload")?
            .ok_or_else(|| Error::Setup("a job came without its payload".into()))?;
        let reason: Option<&str> = r.get("reason");
        Ok(Self {
            place: row::word(r, "place")?,
            state: row::word(r, "state")?,
            id: JobId(r.get("id")),
            queue: r.get("queue"),
            kind: r.get("kind"),
            priority: r.get("priority"),
            payload,
            attempt: r.get("attempt"),
            failures: r.get("failures"),
            crashes: r.get("crashes"),
            max_attempts: r.get("max_attempts"),
            crashed: r.get("crashed"),
            created_at: row::moment(r, "created_at"),
            run_at: row::moment(r, "run_at"),
            started_at: row::time(r, "started_at"),
            ended_at: row::time(r, "ended_at"),
            lease_until: row::time(r, "lease_until"),
            expires_at: row::time(r, "expires_at"),
            cancel_at: row::time(r, "cancel_at"),
            timeout_ms: r.get("timeout_ms"),
            reason: reason.map(str::parse).transpose()?,
            unique_key: r.get("unique_key"),
            backoff: row::raw(r, "backoff")?,
            tags: r.get::<_, Option<_>>("tags").unwrap_or_default(),
            metadata: row::raw(r, "metadata")?,
            trace: r.get("trace"),
            errors: row::json(r, "errors")?.unwrap_or_default(),
            result: row::raw(r, "result")?,
            progress: row::raw(r, "progress")?,
            worker: r.get("worker"),
            worker_name: r.get("worker_name"),
            worker_host: r.get("worker_host"),
        })
    }
}

/// A list of jobs, and whether it is all of them.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<JobInfo>,
    /// Where the list goes on, if there may be more: see [`JobFilter::after`].
    pub next: Option<Next>,
    /// How many rows were looked at.
    pub visited: u64,
    /// Whether the search stopped for its bound on rows or time: then jobs that fit may lie beyond, where `next` leads, and if
    /// there is no `next`, in queues that are too long to be searched for what runs.
    pub cut: bool,
}

impl IntoIterator for JobPage {
    type Item = JobInfo;
    type IntoIter = std::vec::IntoIter<JobInfo>;

    fn into_iter(self) -> Self::IntoIter {
        self.jobs.into_iter()
    }
}

/// What [`Client::cancel`] answers for one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cancel {
    /// The job.
    pub id: JobId,
    /// What became of it.
    pub answer: CancelAnswer,
}

/// What [`Client::retry`] answers for one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Retry {
    /// The job.
    pub id: JobId,
    /// The live job that runs in its place: itself, its copy, or the one that has its unique key.
    pub new_id: Option<JobId>,
    /// What became of it.
    pub answer: RetryAnswer,
}

/// What [`Client::delete`] answers for one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Delete {
    /// The job.
    pub id: JobId,
    /// What became of it.
    pub answer: DeleteAnswer,
}

impl Client {
    /// A job, wherever it is now; `None` if it never was, or its history has been cleared.
    ///
    /// ```no_run
    /// # async fn f(client: rowlock::Client, id: rowlock::JobId) -> rowlock::Result<()> {
    /// if let Some(job) = client.job(id).await? {
    ///     println!("{} is {} after {} attempts", job.kind, job.state, job.attempt);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn job(&self, id: JobId) -> Result<Option<JobInfo>> {
        let rows = self
            .rows(
                "look up a job",
                "select * from rowlock.find_job($1)",
                &[(&id.0, Type::INT8)],
            )
            .await?;
        rows.first().map(JobInfo::read).transpose()
    }

    /// Jobs that fit a filter, newest first. It takes a bounded time, however many jobs there are, and says when it had to
    /// stop before it had seen them all.
    ///
    /// Newest means the latest id; of one queue, if only live states are wanted, the latest to be due, and if only dead ones are
    /// wanted, the latest to die. Running jobs, if only they are wanted, come in the order in which they are claimed.
    ///
    /// ```no_run
    /// # use rowlock::manage::{JobFilter, JobState};
    /// # async fn f(client: rowlock::Client) -> rowlock::Result<()> {
    /// let dead = JobFilter::new().state(JobState::Dead).queue("mail").error("timeout");
    /// let page = client.jobs(&dead).await?;
    /// if let Some(next) = page.next {
    ///     let more = client.jobs(&dead.after(next)).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn jobs(&self, filter: &JobFilter) -> Result<JobPage> {
        filter.check()?;
        let (json, next) = (filter.to_json(), filter.next().map(Next::to_string));
        let mut rows = self
            .rows(
                "list jobs",
                "select * from rowlock.find_jobs($1, $2, $3)",
                &[
                    (&RawJson(&json), Type::JSONB),
                    (&filter.jobs_max(), Type::INT4),
                    (&next.as_deref().map(RawJson), Type::JSONB),
                ],
            )
            .await?;
        // The last row is no job: it says how the search went.
        let Some(last) = rows.pop() else {
            return Err(Error::Setup("a search came back without its end".into()));
        };
        Ok(JobPage {
            jobs: rows.iter().map(JobInfo::read).collect::<Result<_>>()?,
            next: row::json(&last, "next")?,
            visited: row::count(&last, "visited"),
            cut: last.get("cut"),
        })
    }

    /// Cancels jobs: a waiting one ends at once, a running one is asked to stop. Answers for each id, in their order.
    ///
    /// More than 10,000 ids take several transactions.
    pub async fn cancel(&self, ids: &[JobId]) -> Result<Vec<Cancel>> {
        let sql = "select id, answer from rowlock.cancel($1)";
        self.each("cancel jobs", sql, ids, |id, r| {
            Ok(Cancel {
                id,
                answer: row::word(r, "answer")?,
            })
        })
        .await
    }

    /// Runs jobs again, or sooner: a dead one comes back, of a finished one a copy is made, a scheduled one is due now. Answers
    /// for each id, in their order.
    ///
    /// More than 10,000 ids take several transactions.
    pub async fn retry(&self, ids: &[JobId]) -> Result<Vec<Retry>> {
        let sql = "select id, new_id, answer from rowlock.retry($1)";
        self.each("retry jobs", sql, ids, |id, r| {
            Ok(Retry {
                id,
                new_id: r.get::<_, Option<i64>>("new_id").map(JobId),
                answer: row::word(r, "answer")?,
            })
        })
        .await
    }

    /// Deletes jobs for good, wherever they are, unless they run. Answers for each id, in their order.
    ///
    /// More than 10,000 ids take several transactions.
    pub async fn delete(&self, ids: &[JobId]) -> Result<Vec<Delete>> {
        let sql = "select id, answer from rowlock.delete($1)";
        self.each("delete jobs", sql, ids, |id, r| {
            Ok(Delete {
                id,
                answer: row::word(r, "answer")?,
            })
        })
        .await
    }

    /// Calls a function that answers with one row for each distinct id, and puts the answers in the order of the ids.
    async fn each<T: Copy>(
        &self,
        doing: &str,
        sql: &str,
        ids: &[JobId],
        read: impl Fn(JobId, &Row) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut answers = HashMap::with_capacity(ids.len());
        for chunk in ids.chunks(IDS_MAX) {
            let chunk: Vec<i64> = chunk.iter().map(|id| id.0).collect();
            let param: Param<'_> = (&chunk, Type::INT8_ARRAY);
            for r in self.rows(doing, sql, &[param]).await? {
                let id = JobId(r.get("id"));
                // An id that was given twice may stand in two chunks: the first answer is the one that did something.
                answers.entry(id).or_insert(read(id, &r)?);
            }
        }
        ids.iter()
            .map(|id| {
                answers
                    .get(id)
                    .copied()
                    .ok_or_else(|| Error::Setup(format!("cannot {doing}: no answer for job {id}")))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_database() {
        assert_eq!("not_live".parse(), Ok(CancelAnswer::NotLive));
        assert_eq!(
            serde_json::to_string(&JobState::Running).unwrap(),
            "\"running\""
        );
        let e = "asleep".parse::<JobState>().unwrap_err();
        assert_eq!(
            e.to_string(),
            "state \"asleep\" is no state of a job: known are scheduled, ready, running, done, cancelled, expired, dead"
        );
    }
}
