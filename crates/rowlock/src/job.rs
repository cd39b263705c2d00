//! A job: its data, its options, its identity.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::backoff::Backoff;
use crate::error::{Error, Invalid, Result};
use crate::validate;

/// The queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// A kind of job: a serde type with a stable name.
///
/// Usually derived:
///
/// ```
/// use rowlock::Job;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(kind = "email.welcome", queue = "mail", max_attempts = 3)]
/// struct WelcomeEmail {
///     user_id: i64,
/// }
///
/// assert_eq!(WelcomeEmail::KIND, "email.welcome");
/// ```
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// The name by which rows of this kind are known. Jobs outlive deployments: it must never change with the code, so it is
    /// written down rather than taken from the type's name.
    const KIND: &'static str;

    /// Former names: jobs enqueued under them are still run by this type's handler.
    const ALIASES: &'static [&'static str] = &[];

    /// What a job of this kind is enqueued with unless the call says otherwise.
    fn options() -> JobOptions {
        JobOptions::default()
    }
}

/// The identity of a job. It stays the same across attempts, retries and redrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for JobId {
    type Err = std::num::ParseIntError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        s.parse().map(Self)
    }
}

/// What an enqueue answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued {
    /// The job; for a duplicate, the one that was there already.
    pub id: JobId,
    /// Whether a job with the same unique key was there already, so that no new one was made.
    pub duplicate: bool,
}

/// Options of a job. Each is optional: what is not set comes from the queue.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct JobOptions {
    /// The queue, [`DEFAULT_QUEUE`] if none is given.
    pub queue: Option<Cow<'static, str>>,
    /// From -4 to 4, 0 by default; higher runs first.
    pub priority: Option<i32>,
    /// After how many failures the job is dead.
    pub max_attempts: Option<u16>,
    /// How long one attempt may run.
    pub timeout: Option<Duration>,
    /// How long a failed attempt waits for the next.
    pub backoff: Option<Backoff>,
    /// Labels to find the job by.
    pub tags: Vec<String>,
}

/// What happens to a job whose unique key is taken by a live one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnConflict {
    /// The first stays as it is; the answer names it.
    #[default]
    Keep,
    /// Debounce: the first, while it waits, becomes the new one in all but its id.
    Replace,
}

/// When a job is due.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum Due {
    #[default]
    Now,
    At(Timestamp),
    /// By the database's clock.
    After(Duration),
}

/// When a job is no longer worth starting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Expiry {
    At(Timestamp),
    After(Duration),
}

/// A job to be enqueued, with its type erased: a kind and a JSON payload. What [`enqueue`](crate::Client::enqueue) builds from
/// a [`Job`], and the way in for those who know kinds only by name.
#[derive(Debug, Clone)]
#[must_use = "a NewJob does nothing until it is given to a client"]
pub struct NewJob {
    pub(crate) kind: Cow<'static, str>,
    pub(crate) payload: Box<RawValue>,
    pub(crate) queue: Cow<'static, str>,
    pub(crate) priority: i32,
    pub(crate) due: Due,
    pub(crate) max_attempts: Option<u16>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) backoff: Option<Backoff>,
    pub(crate) expiry: Option<Expiry>,
    pub(crate) tags: Vec<String>,
    pub(crate) metadata: Option<serde_json::Map<String, serde_json::Value>>,
    pub(crate) unique_key: Option<String>,
    pub(crate) on_conflict: OnConflict,
    pub(crate) trace: Option<String>,
}

impl NewJob {
    /// A job of this kind; the payload must serialise to a JSON object.
    pub fn new(kind: impl Into<Cow<'static, str>>, payload: &impl Serialize) -> Result<Self> {
        let kind = kind.into();
        let payload = serde_json::value::to_raw_value(payload).map_err(|e| {
            Error::json(
                format!("write the payload of a job of kind {kind:?} as JSON"),
                e,
            )
        })?;
        Ok(Self {
            kind,
            payload,
            queue: Cow::Borrowed(DEFAULT_QUEUE),
            priority: 0,
            due: Due::Now,
            max_attempts: None,
            timeout: None,
            backoff: None,
            expiry: None,
            tags: Vec::new(),
            metadata: None,
            unique_key: None,
            on_conflict: OnConflict::Keep,
            trace: None,
        })
    }

    /// A job of a Rust type, with the options of its kind.
    pub fn of<J: Job>(job: &J) -> Result<Self> {
        let mut new = Self::new(J::KIND, job)?;
        let options = J::options();
        if let Some(queue) = options.queue {
            new.queue = queue;
        }
        new.priority = options.priority.unwrap_or(0);
        new.max_attempts = options.max_attempts;
        new.timeout = options.timeout;
        new.backoff = options.backoff;
        new.tags = options.tags;
        Ok(new)
    }

    /// Refuses what the database would refuse, before it travels. The limit on the payload is the queue's, so it is left to
    /// the database. Awaiting an enqueue does this by itself.
    pub fn check(&self) -> Result<(), Invalid> {
        validate::name("kind", &self.kind)?;
        validate::name("queue", &self.queue)?;
        validate::priority(self.priority)?;
        validate::json_object("payload", self.payload.get(), 256 * 1024 * 1024)?;
        match self.due {
            Due::Now => {}
            Due::At(at) => validate::run_at("run_at", at)?,
            Due::After(delay) => validate::delay(delay)?,
        }
        match self.expiry {
            Some(Expiry::At(at)) => validate::run_at("expires_at", at)?,
            Some(Expiry::After(delay)) => validate::delay(delay)?,
            None => {}
        }
        self.max_attempts.map_or(Ok(()), validate::max_attempts)?;
        self.timeout.map_or(Ok(()), validate::timeout)?;
        self.backoff.as_ref().map_or(Ok(()), Backoff::check)?;
        validate::tags(&self.tags)?;
        self.unique_key
            .as_deref()
            .map_or(Ok(()), validate::unique_key)?;
        self.trace.as_deref().map_or(Ok(()), validate::trace)?;
        if let Some(metadata) = &self.metadata {
            let text = serde_json::to_string(metadata).unwrap_or_default();
            validate::json_object("metadata", &text, validate::METADATA_BYTES_MAX)?;
        }
        Ok(())
    }

    /// The options that most jobs do not have, as `rowlock.enqueue_batch` takes them; `None` if there are none.
    pub(crate) fn options_json(&self) -> Option<String> {
        // Serialising these plain types into a string cannot fail.
        self.has_options()
            .then(|| serde_json::to_string(&Options(self)).unwrap_or_default())
    }

    pub(crate) fn has_options(&self) -> bool {
        self.max_attempts.is_some()
            || self.timeout.is_some()
            || self.backoff.is_some()
            || self.expiry.is_some()
            || !self.tags.is_empty()
            || self.metadata.is_some()
            || self.unique_key.is_some()
            || self.trace.is_some()
    }

    /// Whether it is due at once and has no options.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.due, Due::Now) && !self.has_options()
    }

    /// The whole job, as `rowlock.enqueue_many` takes it.
    pub(crate) fn whole_json(&self) -> String {
        serde_json::to_string(&Whole(self)).unwrap_or_default()
    }
}

/// The methods by which a job's options are set, for types that have a `job_mut`: [`NewJob`] and the builder that
/// [`Client::enqueue`](crate::Client::enqueue) hands out, whose job may have failed to serialise.
macro_rules! job_option_methods {
    () => {
        /// The queue to put it in.
        pub fn queue(mut self, queue: impl Into<::std::borrow::Cow<'static, str>>) -> Self {
            if let Some(job) = self.job_mut() {
                job.queue = queue.into();
            }
            self
        }

        /// From -4 to 4; higher runs first. 0 is the default.
        pub fn priority(mut self, priority: i32) -> Self {
            if let Some(job) = self.job_mut() {
                job.priority = priority;
            }
            self
        }

        /// Not before this long from now, by the database's clock.
        pub fn delay(mut self, delay: ::std::time::Duration) -> Self {
            if let Some(job) = self.job_mut() {
                job.due = $crate::job::Due::After(delay);
            }
            self
        }

        /// Not before this time.
        pub fn run_at(mut self, at: ::jiff::Timestamp) -> Self {
            if let Some(job) = self.job_mut() {
                job.due = $crate::job::Due::At(at);
            }
            self
        }

        /// After this many failures the job is dead.
        pub fn max_attempts(mut self, attempts: u16) -> Self {
            if let Some(job) = self.job_mut() {
                job.max_attempts = Some(attempts);
            }
            self
        }

        /// How long one attempt may run.
        pub fn timeout(mut self, timeout: ::std::time::Duration) -> Self {
            if let Some(job) = self.job_mut() {
                job.timeout = Some(timeout);
            }
            self
        }

        /// How long a failed attempt waits for the next.
        pub fn backoff(mut self, backoff: $crate::Backoff) -> Self {
            if let Some(job) = self.job_mut() {
                job.backoff = Some(backoff);
            }
            self
        }

        /// An attempt that has not started by this time is never started: the job ends as expired.
        pub fn expires(mut self, at: ::jiff::Timestamp) -> Self {
            if let Some(job) = self.job_mut() {
                job.expiry = Some($crate::job::Expiry::At(at));
            }
            self
        }

        /// As [`expires`](Self::expires), counted from the enqueue by the database's clock.
        pub fn expires_in(mut self, after: ::std::time::Duration) -> Self {
            if let Some(job) = self.job_mut() {
                job.expiry = Some($crate::job::Expiry::After(after));
            }
            self
        }

        /// Adds a label to find the job by.
        pub fn tag(mut self, tag: impl Into<String>) -> Self {
            if let Some(job) = self.job_mut() {
                job.tags.push(tag.into());
            }
            self
        }

        /// Adds an entry to the job's metadata: carried along, shown, and handed to the handler.
        pub fn metadata(
            mut self,
            key: impl Into<String>,
            value: impl Into<::serde_json::Value>,
        ) -> Self {
            if let Some(job) = self.job_mut() {
                job.metadata
                    .get_or_insert_default()
                    .insert(key.into(), value.into());
            }
            self
        }

        /// At most one live job with this key in the queue. See [`on_conflict`](Self::on_conflict).
        pub fn unique(mut self, key: impl Into<String>) -> Self {
            if let Some(job) = self.job_mut() {
                job.unique_key = Some(key.into());
            }
            self
        }

        /// What happens when the unique key is taken.
        pub fn on_conflict(mut self, on_conflict: $crate::OnConflict) -> Self {
            if let Some(job) = self.job_mut() {
                job.on_conflict = on_conflict;
            }
            self
        }

        /// The W3C traceparent to carry to the run. Inside a handler, that of the running job is carried on by itself.
        pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
            if let Some(job) = self.job_mut() {
                job.trace = Some(traceparent.into());
            }
            self
        }
    };
}
pub(crate) use job_option_methods;

impl NewJob {
    fn job_mut(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    job_option_methods!();
}

/// Serialises the options of a job.
struct Options<'a>(&'a NewJob);

impl Options<'_> {
    fn fill<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let job = self.0;
        if let Some(n) = job.max_attempts {
            map.serialize_entry("max_attempts", &n)?;
        }
        if let Some(timeout) = job.timeout {
            map.serialize_entry("timeout_ms", &whole_ms(timeout))?;
        }
        if let Some(backoff) = &job.backoff {
            map.serialize_entry("backoff", backoff)?;
        }
        match job.expiry {
            Some(Expiry::At(at)) => map.serialize_entry("expires_at", &at)?,
            Some(Expiry::After(delay)) => {
                map.serialize_entry("expires_in_ms", &whole_ms(delay).max(1))?;
            }
            None => {}
        }
        if !job.tags.is_empty() {
            map.serialize_entry("tags", &job.tags)?;
        }
        if let Some(metadata) = &job.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        if let Some(key) = &job.unique_key {
            map.serialize_entry("unique_key", key)?;
            if job.on_conflict == OnConflict::Replace {
                map.serialize_entry("on_conflict", "replace")?;
            }
        }
        if let Some(trace) = &job.trace {
            map.serialize_entry("trace", trace)?;
        }
        Ok(())
    }
}

impl Serialize for Options<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.fill(&mut map)?;
        map.end()
    }
}

/// Serialises a whole job.
struct Whole<'a>(&'a NewJob);

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let job = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", &job.kind)?;
        map.serialize_entry("payload", &job.payload)?;
        map.serialize_entry("queue", &job.queue)?;
        map.serialize_entry("priority", &job.priority)?;
        match job.due {
            Due::Now => {}
            Due::At(at) => map.serialize_entry("run_at", &at)?,
            Due::After(delay) => map.serialize_entry("delay_ms", &whole_ms(delay))?,
        }
        Options(job).fill(&mut map)?;
        map.end()
    }
}

/// Milliseconds, rounded up: a delay is never shorter than asked for.
pub(crate) fn whole_ms(d: Duration) -> i64 {
    i64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_whole_job_as_json() {
        let job = NewJob::new("email", &json!({"to": "x"}))
            .unwrap()
            .queue("mail")
            .priority(2)
            .delay(Duration::from_micros(1500))
            .max_attempts(3)
            .tag("a")
            .metadata("tenant", 7)
            .unique("k")
            .on_conflict(OnConflict::Replace);
        job.check().unwrap();
        let whole: serde_json::Value = serde_json::from_str(&job.whole_json()).unwrap();
        assert_eq!(
            whole,
            json!({"kind": "email", "payload": {"to": "x"}, "queue": "mail", "priority": 2, "delay_ms": 2, "max_attempts": 3,
                   "tags": ["a"], "metadata": {"tenant": 7}, "unique_key": "k", "on_conflict": "replace"})
        );
    }

    #[test]
    fn a_plain_job_has_no_options() {
        assert_eq!(
            NewJob::new("email", &json!({}))
                .unwrap()
                .priority(1)
                .options_json(),
            None
        );
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        let job = || NewJob::new("email", &json!({})).unwrap();
        let far = "9999-01-01T00:00:00Z".parse().unwrap();
        for (bad, what) in [
            (job().queue(""), "queue"),
            (job().priority(5), "priority"),
            (job().run_at(far), "run_at"),
            (job().max_attempts(0), "max_attempts"),
            (job().timeout(Duration::ZERO), "timeout"),
            (job().tag("a\nb"), "tag"),
            (job().unique(""), "unique_key"),
            (job().trace("x".repeat(201)), "trace"),
            (job().metadata("big", "x".repeat(70_000)), "metadata"),
            (job().expires(far), "expires_at"),
            (NewJob::new("email", &[1, 2]).unwrap(), "payload"),
            (
                NewJob::new("email", &json!({"a": "\0"})).unwrap(),
                "payload",
            ),
            ((0..40).fold(job(), |j, n| j.tag(n.to_string())), "tags"),
        ] {
            assert_eq!(bad.check().unwrap_err().what, what);
        }
    }
}
