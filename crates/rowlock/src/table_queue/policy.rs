//! What becomes of a row: when it is done, when it failed, when it keeps failing. Pure.

use std::time::Duration;

use super::{Outcome, validate};
use crate::backoff::Backoff;
use crate::error::Invalid;

/// What happens to a row that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDone {
    /// The row is deleted.
    Delete,
    /// The row is updated: what would stand after `SET`, as in `status = 'done', done_at = now()`. It must make the row one
    /// that is no longer pending. Raw SQL: see [`pending`](super::TableQueueBuilder::pending).
    Set(String),
}

impl OnDone {
    /// [`OnDone::Set`].
    pub fn set(assignments: impl Into<String>) -> Self {
        Self::Set(assignments.into())
    }
}

/// What happens to a row whose handler fails.
///
/// It is tried again after a backoff, and parked once it has failed often enough. A parked row is not touched any more until
/// somebody [retries](super::TableQueue::retry) it; the rows behind it never wait for it.
///
/// ```
/// use std::time::Duration;
/// use rowlock::{Backoff, OnFailed};
///
/// let policy = OnFailed::park_after(3)
///     .backoff(Backoff::exponential(Duration::from_secs(10)))
///     .set("status = 'failed'");
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct OnFailed {
    pub(super) failures_max: u32,
    pub(super) crashes_max: u32,
    pub(super) backoff: Backoff,
    pub(super) set: Option<String>,
}

impl Default for OnFailed {
    /// Parked after 5 failures, a minute after the first and twice as long each time.
    fn default() -> Self {
        Self::park_after(5)
    }
}

impl OnFailed {
    /// Parks a row after so many failures (1 to 1000), or as many crashes.
    pub fn park_after(failures: u32) -> Self {
        Self {
            failures_max: failures,
            crashes_max: failures,
            backoff: Backoff::default(),
            set: None,
        }
    }

    /// Parks a row as poison after it was in hand in so many crashes: batches that ended with their process or their connection.
    /// From the first one on it is worked alone, so that no neighbour is blamed for it.
    pub fn crashes(mut self, at_most: u32) -> Self {
        self.crashes_max = at_most;
        self
    }

    /// How long a row waits between tries.
    pub fn backoff(mut self, policy: Backoff) -> Self {
        self.backoff = policy;
        self
    }

    /// What to set on a row that is parked, as in `status = 'failed'`. Without it the row stays as it is, pending, and is
    /// skipped because its failure is remembered. Raw SQL: see [`pending`](super::TableQueueBuilder::pending).
    pub fn set(mut self, assignments: impl Into<String>) -> Self {
        self.set = Some(assignments.into());
        self
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        for (what, n) in [
            ("on_failed: failures", self.failures_max),
            ("on_failed: crashes", self.crashes_max),
        ] {
            if !(1..=1000).contains(&n) {
                return Err(Invalid::new(what, n, "must be from 1 to 1000"));
            }
        }
        self.backoff.check()
    }

    /// The time that a row is left alone after so many failures or crashes.
    pub(super) fn delay(&self, times: u32, luck: f64) -> Duration {
        self.backoff.delay(times, luck)
    }

    /// What becomes of a row whose handler said `outcome`.
    pub(super) fn judge(&self, outcome: Outcome, known: Known, luck: f64) -> Verdict {
        let failures = known.failures.saturating_add(1);
        match outcome {
            // Not wanted any more is as good as done. A result has no place to go: the handler can write it itself.
            Outcome::Done(_) | Outcome::Cancel(_) => Verdict::Done,
            Outcome::Snooze(delay) => Verdict::Later {
                failures: known.failures,
                delay,
                error: "snoozed by its handler".into(),
                snoozed: true,
            },
            Outcome::Retry { error, after } if failures < self.failures_max => Verdict::Later {
                failures,
                delay: after.unwrap_or_else(|| self.delay(failures, luck)),
                error: validate::storable(&error),
                snoozed: false,
            },
            Outcome::Retry { error, .. } | Outcome::Dead(error) => Verdict::Park {
                failures,
                crashes: 0,
                error: validate::storable(&error),
            },
        }
    }

    /// The verdict on a row that took its process with it too often; `None` while it may be tried again.
    pub(super) fn judge_crashes(&self, known: Known) -> Option<Verdict> {
        (known.crashes >= self.crashes_max).then(|| Verdict::Park {
            failures: known.failures,
            crashes: known.crashes,
            error: format!(
                "poison: {} times the process or the connection ended while it worked on this row",
                known.crashes
            ),
        })
    }
}

/// What is remembered of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) failures: u32,
    pub(super) crashes: u32,
    /// Whether its time to be tried again has not come.
    pub(super) waiting: bool,
    /// Whether anything is remembered at all, and has to be forgotten when the row is done.
    pub(super) noted: bool,
}

/// What becomes of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    Done,
    /// Stays pending and is left alone for a while.
    Later {
        failures: u32,
        delay: Duration,
        error: String,
        snoozed: bool,
    },
    Park {
        failures: u32,
        crashes: u32,
        error: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> OnFailed {
        OnFailed::park_after(3).backoff(Backoff::fixed(Duration::from_secs(7)).jitter(0.0))
    }

    fn failed(known_failures: u32) -> Verdict {
        let known = Known {
            failures: known_failures,
            ..Known::default()
        };
        policy().judge(Outcome::retry("no"), known, 0.5)
    }

    #[test]
    fn a_failure_waits_and_the_last_one_parks() {
        let later = |failures| Verdict::Later {
            failures,
            delay: Duration::from_secs(7),
            error: "no".into(),
            snoozed: false,
        };
        assert_eq!(failed(0), later(1));
        assert_eq!(failed(1), later(2));
        assert!(matches!(failed(2), Verdict::Park { failures: 3, .. }));
        // Retried by hand after it was parked, and failed again.
        assert!(matches!(failed(3), Verdict::Park { failures: 4, .. }));
    }

    #[test]
    fn a_snooze_costs_nothing_and_dead_parks_at_once() {
        let known = Known {
            failures: 2,
            ..Known::default()
        };
        let snoozed = policy().judge(Outcome::Snooze(Duration::from_secs(1)), known, 0.5);
        assert!(matches!(
            snoozed,
            Verdict::Later {
                failures: 2,
                snoozed: true,
                ..
            }
        ));
        let dead = policy().judge(Outcome::dead("never"), Known::default(), 0.5);
        assert!(matches!(dead, Verdict::Park { failures: 1, .. }));
    }

    #[test]
    fn a_handlers_own_delay_counts() {
        let outcome = Outcome::retry_after("busy", Duration::from_secs(90));
        let verdict = policy().judge(outcome, Known::default(), 0.5);
        assert!(
            matches!(verdict, Verdict::Later { delay, .. } if delay == Duration::from_secs(90))
        );
    }

    #[test]
    fn crashes_park_at_their_own_limit() {
        let after = |crashes| {
            let known = Known {
                crashes,
                ..Known::default()
            };
            policy().crashes(2).judge_crashes(known).is_some()
        };
        assert!(!after(1));
        assert!(after(2));
    }

    #[test]
    fn limits_are_checked() {
        assert!(OnFailed::park_after(0).check().is_err());
        assert!(OnFailed::default().crashes(1001).check().is_err());
        assert!(policy().check().is_ok());
    }
}
