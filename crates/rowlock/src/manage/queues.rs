//! Queues: how full they are, pause, resume, purge. What can be set about them is in `settings`.

use std::collections::BTreeMap;
use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::jobs::JobState;
use super::rounds::{self, OnProgress, Tally, check_limit};
use super::row;
use super::settings::QueueSettings;
use crate::client::Client;
use crate::db::RawJson;
use crate::error::{Error, Invalid, Result};
use crate::validate;

const COLUMNS: &str = "name, paused, ready, running, scheduled, dead, capped, oldest_ready_at, \
                       (extract(epoch from oldest_wait) * 1000)::bigint as oldest_wait_ms, paused_kinds, \
                       (extract(epoch from retention) * 1000)::bigint as retention_ms, lease_ms, max_attempts, max_crashes, backoff, \
                       max_payload_bytes, kinds, created_at";
const PURGE: &str = "select purged, next from rowlock.purge(max_jobs => $1, next => $2, queue => $3, kind => $4, state => $5)";

/// A queue: what waits in it, and its settings. Each number counts up to 10,000.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueInfo {
    /// Its name.
    pub name: String,
    /// Whether it is paused: it takes jobs, but none is started.
    pub paused: bool,
    /// Jobs that wait for a worker.
    pub ready: u64,
    /// Jobs that a worker has.
    pub running: u64,
    /// Jobs that are for later.
    pub scheduled: u64,
    /// Dead letters.
    pub dead: u64,
    /// Whether one of the numbers stopped at 10,000, so that there may be more.
    pub capped: bool,
    /// When the job that has waited longest was due.
    pub oldest_ready_at: Option<Timestamp>,
    /// How long it has waited.
    pub oldest_wait_ms: Option<u64>,
    /// The kinds that are paused in it.
    pub paused_kinds: Vec<String>,
    /// How long its history is kept.
    pub retention_ms: u64,
    /// How long a worker holds a job without saying that it lives.
    pub lease_ms: i32,
    /// After how many failures a job is dead, unless its kind or the job itself says otherwise.
    pub max_attempts: i16,
    /// After how many crashes a job is poison; as `max_attempts` if there is no number.
    pub max_crashes: Option<i16>,
    /// How long a failed attempt waits for the next.
    pub backoff: serde_json::Value,
    /// The largest payload that it takes.
    pub max_payload_bytes: i32,
    /// Settings of kinds in it.
    pub kinds: BTreeMap<String, KindInfo>,
    /// When it was first named.
    pub created_at: Timestamp,
}

/// Settings of one kind in a queue. What is not there is as in the queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct KindInfo {
    /// Whether the kind is paused.
    pub paused: bool,
    /// After how many failures a job is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i16>,
    /// How long a failed attempt waits for the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<serde_json::Value>,
    /// How long one attempt may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
}

impl QueueInfo {
    fn read(r: &Row) -> Result<Self> {
        Ok(Self {
            name: r.get("name"),
            paused: r.get("paused"),
            ready: row::count(r, "ready"),
            running: row::count(r, "running"),
            scheduled: row::count(r, "scheduled"),
            dead: row::count(r, "dead"),
            capped: r.get("capped"),
            oldest_ready_at: row::time(r, "oldest_ready_at"),
            oldest_wait_ms: r
                .get::<_, Option<i64>>("oldest_wait_ms")
                .map(|ms| u64::try_from(ms).unwrap_or(0)),
            paused_kinds: r.get("paused_kinds"),
            retention_ms: row::count(r, "retention_ms"),
            lease_ms: r.get("lease_ms"),
            max_attempts: r.get("max_attempts"),
            max_crashes: r.get("max_crashes"),
            backoff: row::json(r, "backoff")?.unwrap_or_default(),
            max_payload_bytes: r.get("max_payload_bytes"),
            kinds: row::json(r, "kinds")?.unwrap_or_default(),
            created_at: row::moment(r, "created_at"),
        })
    }
}

/// What a purge did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Purged {
    /// How many waiting jobs are gone.
    pub purged: u64,
}

impl Tally for Purged {
    fn add(&mut self, r: &Row) -> u64 {
        let purged = row::count(r, "purged");
        self.purged += purged;
        purged
    }
}

/// A purge, which happens when this is awaited.
#[must_use = "nothing is purged until this is awaited"]
pub struct Purge<'a> {
    client: &'a Client,
    queue: String,
    kind: Option<String>,
    state: Option<JobState>,
    limit: Option<u64>,
    on_progress: Option<OnProgress<'a, Purged>>,
}

impl<'a> Purge<'a> {
    /// Only jobs of this kind.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Only ready, or only scheduled jobs.
    pub fn state(mut self, state: JobState) -> Self {
        self.state = Some(state);
        self
    }

    /// Takes at most so many jobs, those that would have run first.
    pub fn limit(mut self, jobs: u64) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// Is told after each round what has been done so far.
    pub fn on_progress(mut self, tell: impl FnMut(&Purged) + Send + 'a) -> Self {
        self.on_progress = Some(Box::new(tell));
        self
    }
}

impl<'a> IntoFuture for Purge<'a> {
    type Output = Result<Purged>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            validate::name("queue", &self.queue)?;
            if let Some(kind) = &self.kind {
                validate::name("kind", kind)?;
            }
            if let Some(state) = self
                .state
                .filter(|s| !matches!(s, JobState::Ready | JobState::Scheduled))
            {
                let rule = "is no state of a waiting job: known are ready and scheduled";
                return Err(Invalid::new("state", state, rule).into());
            }
            check_limit(self.limit)?;
            rounds::run(
                self.client,
                "purge a queue",
                PURGE,
                &[
                    (&self.queue, Type::TEXT),
                    (&self.kind, Type::TEXT),
                    (&self.state.map(JobState::as_str), Type::TEXT),
                ],
                self.limit,
                self.on_progress,
            )
            .await
        })
    }
}

impl Client {
    /// All queues, by name.
    pub async fn queues(&self) -> Result<Vec<QueueInfo>> {
        let sql = format!("select {COLUMNS} from rowlock.queues order by name");
        let rows = self.rows("list queues", &sql, &[]).await?;
        rows.iter().map(QueueInfo::read).collect()
    }

    /// A queue; `None` if no job has named it yet.
    pub async fn queue(&self, name: &str) -> Result<Option<QueueInfo>> {
        validate::name("queue", name)?;
        let sql = format!("select {COLUMNS} from rowlock.queues where name = $1");
        let rows = self
            .rows("look at a queue", &sql, &[(&name, Type::TEXT)])
            .await?;
        rows.first().map(QueueInfo::read).transpose()
    }

    /// Changes settings of a queue, and makes the queue if there is none of this name. Answers with the queue as it is then.
    ///
    /// ```no_run
    /// # use rowlock::manage::QueueSettings;
    /// # async fn f(client: rowlock::Client) -> rowlock::Result<()> {
    /// client.set_queue("mail", QueueSettings::new().max_attempts(10)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_queue(&self, name: &str, settings: QueueSettings) -> Result<QueueInfo> {
        validate::name("queue", name)?;
        settings.check()?;
        let json = settings.to_json();
        self.rows(
            "change a queue",
            "select rowlock.set_queue($1, $2)",
            &[(&name, Type::TEXT), (&RawJson(&json), Type::JSONB)],
        )
        .await?;
        let queue = self.queue(name).await?;
        queue.ok_or_else(|| Error::Setup(format!("queue {name:?} vanished as it was being set")))
    }

    /// Pauses a queue: it still takes jobs, and those that run go on, but none is started.
    pub async fn pause(&self, queue: &str) -> Result<()> {
        self.switch("pause a queue", "pause", queue, None).await
    }

    /// Lets a paused queue go on.
    pub async fn resume(&self, queue: &str) -> Result<()> {
        self.switch("resume a queue", "resume", queue, None).await
    }

    /// Pauses one kind of job in a queue; the others go on.
    pub async fn pause_kind(&self, queue: &str, kind: &str) -> Result<()> {
        self.switch("pause a kind", "pause", queue, Some(kind))
            .await
    }

    /// Lets a paused kind of job go on.
    pub async fn resume_kind(&self, queue: &str, kind: &str) -> Result<()> {
        self.switch("resume a kind", "resume", queue, Some(kind))
            .await
    }

    async fn switch(
        &self,
        doing: &str,
        function: &str,
        queue: &str,
        kind: Option<&str>,
    ) -> Result<()> {
        validate::name("queue", queue)?;
        kind.map_or(Ok(()), |kind| validate::name("kind", kind))?;
        let sql = format!("select rowlock.{function}($1, $2)");
        self.rows(doing, &sql, &[(&queue, Type::TEXT), (&kind, Type::TEXT)])
            .await?;
        Ok(())
    }

    /// Deletes the waiting jobs of a queue, without a trace; running ones are left alone. Jobs that are enqueued while it goes on
    /// may be taken too.
    ///
    /// ```no_run
    /// # use rowlock::manage::JobState;
    /// # async fn f(client: rowlock::Client) -> rowlock::Result<()> {
    /// let did = client.purge("mail").kind("newsletter").state(JobState::Scheduled).await?;
    /// println!("{} jobs are gone", did.purged);
    /// # Ok(())
    /// # }
    /// ```
    pub fn purge(&self, queue: impl Into<String>) -> Purge<'_> {
        Purge {
            client: self,
            queue: queue.into(),
            kind: None,
            state: None,
            limit: None,
            on_progress: None,
        }
    }
}
