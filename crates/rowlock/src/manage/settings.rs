//! Settings of a queue and of the kinds in it: what to change. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::backoff::Backoff;
use crate::error::Invalid;
use crate::job::whole_ms;
use crate::validate;

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

    /// Whether the queue is paused. See also [`Client::pause`](crate::Client::pause).
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

    pub(super) fn to_json(&self) -> String {
        // Plain types with text keys: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
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

    /// Whether the kind is paused. See also [`Client::pause_kind`](crate::Client::pause_kind).
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
