//! Queues: how full they are, their settings, pause, resume, purge.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::jobs::JobState;
use super::rounds::{self, OnProgress, Tally, check_limit};
use super::row;
use crate::backoff::Backoff;
use crate::client::Client;
use crate::db::RawJson;
use crate::error::{Error, Invalid, Result};
use crate::job::whole_ms;
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

/// Changes to the settings of a queue. What is not named stays as it is.
///
/// ```
/// use std::time::Duration;
/// use rowlock::Backoff;
/// use rowlock::manage::{KindSettings, QueueSettings};
///
/// let settings = QueueSettings::new()
///     .lease(Duration::from_secs(60))
///     .max_attempts(10)
///     .backoff(Backoff::exponential(Duration::from_secs(5)))
///     .retention(Duration::from_secs(30 * 86_400))
///     .kind("report", KindSettings::new().timeout(Duration::from_secs(600)));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[must_use = "settings do nothing until they are given to Client::set_queue"]
pub struct QueueSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u16>,
    /// `Some(None)`: as `max_attempts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_crashes: Option<Option<u16>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_payload_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<Backoff>,
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "as_interval"
    )]
    retention: Option<Duration>,
    /// `None`: the kind's settings are forgotten.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    kinds: BTreeMap<String, Option<KindSettings>>,
}

impl QueueSettings {
    /// No change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the queue is paused. See also [`Client::pause`].
    pub fn paused(mut self, paused: bool) -> Self {
        self.paused = Some(paused);
        self
    }

    /// How long a worker holds a job without saying that it lives: from 1 s to 1 day.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease_ms = Some(whole_ms(lease));
        self
    }

    /// After how many failures a job is dead, unless its kind or the job itself says otherwise.
    pub fn max_attempts(mut self, attempts: u16) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// After how many crashes a job is poison.
    pub fn max_crashes(mut self, crashes: u16) -> Self {
        self.max_crashes = Some(Some(crashes));
        self
    }

    /// A job is poison after as many crashes as it may have attempts.
    pub fn max_crashes_as_attempts(mut self) -> Self {
        self.max_crashes = Some(None);
        self
    }

    /// The largest payload, in bytes of JSON: from 1 kB to 256 MB.
    pub fn max_payload_bytes(mut self, bytes: u32) -> Self {
        self.max_payload_bytes = Some(bytes);
        self
    }

    /// How long a failed attempt waits for the next.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// How long the history is kept, up to ten years; zero for none.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Changes settings of a kind in this queue.
    pub fn kind(mut self, kind: impl Into<String>, settings: KindSettings) -> Self {
        self.kinds.insert(kind.into(), Some(settings));
        self
    }

    /// Forgets all settings of a kind: it is as the queue again.
    pub fn forget_kind(mut self, kind: impl Into<String>) -> Self {
        self.kinds.insert(kind.into(), None);
        self
    }

    fn to_json(&self) -> String {
        // Plain types with text keys: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    fn check(&self) -> Result<(), Invalid> {
        within("lease_ms", self.lease_ms, 1000, 86_400_000)?;
        within("max_attempts", self.max_attempts, 1, 1000)?;
        within("max_crashes", self.max_crashes.flatten(), 1, 1000)?;
        let (least, most) = (1024, 256 * 1024 * 1024);
        within("max_payload_bytes", self.max_payload_bytes, least, most)?;
        self.backoff.as_ref().map_or(Ok(()), Backoff::check)?;
        const RETENTION_MAX: Duration = Duration::from_secs(3650 * 86_400);
        if let Some(retention) = self.retention.filter(|r| *r > RETENTION_MAX) {
            let rule = "is out of range: it must be from 0 to 3650 days";
            return Err(Invalid::new(
                "retention",
                format_args!("{retention:?}"),
                rule,
            ));
        }
        for (kind, settings) in &self.kinds {
            validate::name("kind", kind)?;
            settings
                .as_ref()
                .map_or(Ok(()), |settings| settings.check())?;
        }
        Ok(())
    }
}

/// Changes to the settings of one kind in a queue. What is not named stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[must_use = "settings do nothing until they are given to Client::set_queue"]
pub struct KindSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<Backoff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<i64>,
}

impl KindSettings {
    /// No change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the kind is paused. See also [`Client::pause_kind`].
    pub fn paused(mut self, paused: bool) -> Self {
        self.paused = Some(paused);
        self
    }

    /// After how many failures a job is dead, unless the job itself says otherwise.
    pub fn max_attempts(mut self, attempts: u16) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// How long a failed attempt waits for the next.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// How long one attempt may run, unless the job itself says otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout_ms = Some(whole_ms(timeout));
        self
    }

    fn check(&self) -> Result<(), Invalid> {
        within("max_attempts", self.max_attempts, 1, 1000)?;
        within("timeout_ms", self.timeout_ms, 1, 2_592_000_000)?;
        self.backoff.as_ref().map_or(Ok(()), Backoff::check)
    }
}

fn within<N: Into<i64>>(
    what: &'static str,
    value: Option<N>,
    least: i64,
    most: i64,
) -> Result<(), Invalid> {
    match value.map(Into::into) {
        Some(n) if !(least..=most).contains(&n) => {
            let rule = format!("must be a whole number from {least} to {most}");
            Err(Invalid::new(what, n, rule))
        }
        _ => Ok(()),
    }
}

/// As Postgres reads intervals; whole days as such, because people will see them.
fn as_interval<S: serde::Serializer>(
    value: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    const DAY_MS: i64 = 86_400_000;
    match value.map(whole_ms) {
        None => serializer.serialize_none(),
        Some(ms) if ms % DAY_MS == 0 => {
            serializer.collect_str(&format_args!("{} days", ms / DAY_MS))
        }
        Some(ms) => serializer.collect_str(&format_args!("{ms} milliseconds")),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_are_written_as_the_database_reads_them() {
        let day = Duration::from_secs(86_400);
        let settings = QueueSettings::new()
            .paused(true)
            .lease(Duration::from_secs(60))
            .max_crashes_as_attempts()
            .retention(7 * day)
            .kind("report", KindSettings::new().timeout(day))
            .forget_kind("old");
        settings.check().unwrap();
        assert_eq!(
            serde_json::to_value(&settings).unwrap(),
            json!({"paused": true, "lease_ms": 60000, "max_crashes": null, "retention": "7 days",
                   "kinds": {"report": {"timeout_ms": 86_400_000}, "old": null}})
        );
        let short = QueueSettings::new().retention(Duration::from_millis(1500));
        assert_eq!(short.to_json(), r#"{"retention":"1500 milliseconds"}"#);
        assert_eq!(QueueSettings::new().to_json(), "{}");
    }

    #[test]
    fn bad_settings_are_refused_by_name() {
        let s = QueueSettings::new;
        for (bad, what) in [
            (s().lease(Duration::from_millis(999)), "lease_ms"),
            (s().max_attempts(0), "max_attempts"),
            (s().max_crashes(1001), "max_crashes"),
            (s().max_payload_bytes(1023), "max_payload_bytes"),
            (s().retention(Duration::from_secs(u64::MAX)), "retention"),
            (s().backoff(Backoff::default().jitter(2.0)), "backoff"),
            (s().kind("", KindSettings::new()), "kind"),
            (
                s().kind("k", KindSettings::new().timeout(Duration::ZERO)),
                "timeout_ms",
            ),
        ] {
            assert_eq!(bad.check().unwrap_err().what, what);
        }
    }
}
