//! What becomes of an attempt, and how a handler's result turns into it. Pure.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::chain;
use crate::tx::BoxError;
use crate::validate;

/// What becomes of an attempt.
///
/// Most handlers return `Result<(), E>` with any error type; an `Outcome` is for those who want more than "done" and "try again".
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The job is finished, with or without a result.
    Done(Option<Box<RawValue>>),
    /// The attempt failed. The job is tried again, after the given time or by its backoff policy, until its attempts are used up.
    Retry {
        /// What went wrong, with its causes.
        error: String,
        /// When to try again; `None` leaves it to the policy.
        after: Option<Duration>,
    },
    /// Not now: run again after this time. Costs no attempt.
    Snooze(Duration),
    /// The job is no longer wanted: it ends as cancelled.
    Cancel(String),
    /// No further attempt would help: the job goes to the dead letters at once.
    Dead(String),
}

impl Outcome {
    /// Finished with a result, which is kept in the history.
    pub fn done(result: &impl Serialize) -> Self {
        match serde_json::value::to_raw_value(result) {
            Ok(result) => match validate::no_nul("result", result.get()) {
                Ok(()) => Self::Done(Some(result)),
                Err(e) => Self::Dead(e.to_string()),
            },
            // The work is done, so doing it again is the worse choice; but the result cannot be kept, and somebody must know.
            Err(e) => Self::Dead(format!("the result cannot be written as JSON: {e}")),
        }
    }

    /// Failed; tried again by the backoff policy.
    pub fn retry(error: impl Into<BoxError>) -> Self {
        from_error(&*error.into())
    }

    /// Failed; tried again after this time.
    pub fn retry_after(error: impl Into<BoxError>, after: Duration) -> Self {
        Self::Retry {
            error: chain(&*error.into()),
            after: Some(after),
        }
    }

    /// Not worth another attempt.
    pub fn dead(error: impl Into<BoxError>) -> Self {
        Self::Dead(chain(&*error.into()))
    }

    /// The word for it in metrics and logs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Retry { .. } => "failed",
            Self::Snooze(_) => "snoozed",
            Self::Cancel(_) => "cancelled",
            Self::Dead(_) => "refused",
        }
    }
}

/// An error that says what should become of the job. Return it (or `?` it) from anywhere in a handler.
///
/// ```
/// use std::time::Duration;
/// use rowlock::Fail;
///
/// fn call_upstream() -> Result<(), Fail> {
///     Err(Fail::retry_after("the upstream asked us to wait", Duration::from_secs(90)))
/// }
/// # assert!(call_upstream().is_err());
/// ```
#[derive(Debug)]
pub struct Fail(Reason);

/// What a [`Fail`] carries. It stands below the `Fail` in the chain of causes: a wrapper such as `anyhow::Error` hides the type of
/// what it wraps, but not what that was caused by.
#[derive(Debug)]
struct Reason {
    source: BoxError,
    fate: Fate,
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    RetryAfter(Duration),
    Snooze(Duration),
    Cancel,
    Dead,
}

impl Fail {
    /// Try again after this time.
    pub fn retry_after(error: impl Into<BoxError>, after: Duration) -> Self {
        Self(Reason {
            source: error.into(),
            fate: Fate::RetryAfter(after),
        })
    }

    /// Run again after this time, at no cost.
    pub fn snooze(reason: impl Into<BoxError>, after: Duration) -> Self {
        Self(Reason {
            source: reason.into(),
            fate: Fate::Snooze(after),
        })
    }

    /// The job is no longer wanted.
    pub fn cancel(reason: impl Into<BoxError>) -> Self {
        Self(Reason {
            source: reason.into(),
            fate: Fate::Cancel,
        })
    }

    /// No further attempt would help.
    pub fn dead(error: impl Into<BoxError>) -> Self {
        Self(Reason {
            source: error.into(),
            fate: Fate::Dead,
        })
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Fail {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl StdError for Reason {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.source()
    }
}

/// A result that is kept in the history: `async fn count(job: Count) -> Result<Done<u64>, Error>`.
#[derive(Debug, Clone, Copy)]
pub struct Done<T>(pub T);

/// What a handler may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a handler",
    label = "not an outcome",
    note = "return `()`, `Outcome`, `Done<T>` with a serialisable result, or a `Result` of one of these with any error type"
)]
pub trait IntoOutcome {
    /// What becomes of the attempt.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done(None)
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl<T: Serialize> IntoOutcome for Done<T> {
    fn into_outcome(self) -> Outcome {
        Outcome::done(&self.0)
    }
}

impl<T: IntoOutcome, E: Into<BoxError>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => from_error(&*error.into()),
        }
    }
}

/// An error becomes a retry, unless it, or one of its causes, is a [`Fail`] that says otherwise.
pub(super) fn from_error(error: &(dyn StdError + 'static)) -> Outcome {
    let text = chain(error);
    let mut cause = Some(error);
    while let Some(e) = cause {
        if let Some(reason) = e.downcast_ref::<Reason>() {
            return match reason.fate {
                Fate::RetryAfter(after) => Outcome::Retry {
                    error: text,
                    after: Some(after),
                },
                Fate::Snooze(after) => Outcome::Snooze(after),
                Fate::Cancel => Outcome::Cancel(text),
                Fate::Dead => Outcome::Dead(text),
            };
        }
        cause = e.source();
    }
    Outcome::Retry {
        error: text,
        after: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the report is not there")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn errors_keep_their_chain() {
        let e = Outer(std::io::Error::other("disk on fire"));
        match Err::<(), _>(e).into_outcome() {
            Outcome::Retry { error, after: None } => {
                assert_eq!(error, "the report is not there: disk on fire");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_fail_is_found_under_other_errors() {
        #[derive(Debug, thiserror::Error)]
        #[error("sending")]
        struct Sending(#[source] Fail);
        let e = Sending(Fail::dead("no such address"));
        match Err::<(), _>(e).into_outcome() {
            Outcome::Dead(error) => assert_eq!(error, "sending: no such address"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_fail_is_found_inside_of_a_wrapper_that_hides_its_type() {
        let wrapped = anyhow::Error::from(Fail::snooze("not yet", Duration::from_secs(5)));
        assert!(matches!(
            Err::<(), _>(wrapped).into_outcome(),
            Outcome::Snooze(_)
        ));
    }

    #[test]
    fn strings_and_boxes_are_errors_too() {
        assert!(matches!(
            Err::<(), _>("no").into_outcome(),
            Outcome::Retry { .. }
        ));
        let boxed: BoxError = "no".into();
        assert!(matches!(
            Err::<Done<i32>, _>(boxed).into_outcome(),
            Outcome::Retry { .. }
        ));
    }

    #[test]
    fn a_result_is_kept_as_json() {
        match Ok::<_, BoxError>(Done(vec![1, 2])).into_outcome() {
            Outcome::Done(Some(json)) => assert_eq!(json.get(), "[1,2]"),
            other => panic!("{other:?}"),
        }
    }
}
