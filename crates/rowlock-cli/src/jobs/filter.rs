//! Which jobs: the filter of `rowlock jobs` on the command line.

use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use rowlock::manage::{DeadReason, JobFilter, JobState};
use serde_json::Value;

use crate::exit::mistake;
use crate::{say, times};

/// Jobs that fit all of it.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Which jobs")]
pub(crate) struct Filter {
    /// Of this queue.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) queue: Option<String>,

    /// Of this kind.
    #[arg(long, short, value_name = "NAME")]
    pub(crate) kind: Option<String>,

    /// In one of these states, separated by commas.
    #[arg(long, short, value_delimiter = ',', value_name = "STATE", value_parser = state_parser())]
    pub(crate) state: Vec<JobState>,

    /// With this tag.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,

    /// Dead for this reason.
    #[arg(long, value_name = "REASON", value_parser = reason_parser())]
    pub(crate) reason: Option<DeadReason>,

    /// With this text in one of their errors, in upper or lower case.
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,

    /// With this value in the payload, such as user.id=7; may be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = path_value)]
    pub(crate) payload: Vec<(String, Value)>,

    /// With this value in the metadata; may be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = path_value)]
    pub(crate) metadata: Vec<(String, Value)>,

    /// Enqueued longer ago than this, such as 2h or 3d.
    #[arg(long, value_name = "TIME", value_parser = times::span)]
    pub(crate) older_than: Option<Duration>,

    /// Enqueued more recently than this.
    #[arg(long, value_name = "TIME", value_parser = times::span)]
    pub(crate) newer_than: Option<Duration>,
}

impl Filter {
    /// Whether it leaves nothing out.
    pub(crate) fn is_empty(&self) -> bool {
        let texts = [&self.queue, &self.kind, &self.tag, &self.error];
        self.state.is_empty()
            && texts.iter().all(|t| t.is_none())
            && self.reason.is_none()
            && self.payload.is_empty()
            && self.metadata.is_empty()
            && self.older_than.is_none()
            && self.newer_than.is_none()
    }

    /// As the library takes it. Ages are counted back from the database's clock.
    pub(crate) fn to_job_filter(&self, now: Timestamp) -> anyhow::Result<JobFilter> {
        if let (Some(older), Some(newer)) = (self.older_than, self.newer_than) {
            if older >= newer {
                return Err(mistake(format!(
                    "nothing is both older than {} and newer than {}: --newer-than must be the longer of the two",
                    say::duration(older),
                    say::duration(newer)
                )));
            }
        }
        let mut filter = JobFilter::new().states(self.state.iter().copied());
        if let Some(queue) = &self.queue {
            filter = filter.queue(queue);
        }
        if let Some(kind) = &self.kind {
            filter = filter.kind(kind);
        }
        if let Some(tag) = &self.tag {
            filter = filter.tag(tag);
        }
        if let Some(reason) = self.reason {
            filter = filter.reason(reason);
        }
        if let Some(error) = &self.error {
            filter = filter.error(error);
        }
        if let Some(ago) = self.older_than {
            filter = filter.created_before(times::before(now, ago)?);
        }
        if let Some(ago) = self.newer_than {
            filter = filter.created_after(times::before(now, ago)?);
        }
        for (path, value) in &self.payload {
            filter = filter.payload(path, value.clone());
        }
        for (path, value) in &self.metadata {
            filter = filter.metadata(path, value.clone());
        }
        Ok(filter)
    }
}

fn state_parser() -> impl TypedValueParser<Value = JobState> {
    PossibleValuesParser::new([
        "scheduled",
        "ready",
        "running",
        "done",
        "cancelled",
        "expired",
        "dead",
    ])
    .try_map(|text| text.parse::<JobState>())
}

pub(crate) fn reason_parser() -> impl TypedValueParser<Value = DeadReason> {
    PossibleValuesParser::new(["failed", "poison", "refused"])
        .try_map(|text| text.parse::<DeadReason>())
}

/// `user.id=7`. A text also fits a number or a truth value that is written so; what only JSON can say may be given as JSON.
pub(crate) fn path_value(text: &str) -> Result<(String, Value), String> {
    let (path, value) = text
        .split_once('=')
        .filter(|(path, _)| !path.is_empty())
        .ok_or_else(|| format!("{text:?} is not of the form path=value, such as user.id=7"))?;
    let value = match serde_json::from_str(value) {
        Ok(json @ (Value::Object(_) | Value::Array(_) | Value::Null | Value::String(_))) => json,
        _ => Value::String(value.to_owned()),
    };
    Ok((path.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_and_values() {
        let of = |text: &str| path_value(text).unwrap();
        assert_eq!(of("user.id=7"), ("user.id".into(), json!("7")));
        assert_eq!(of("q=a=b"), ("q".into(), json!("a=b")));
        assert_eq!(of("tags=[1]"), ("tags".into(), json!([1])));
        assert_eq!(of("x=null"), ("x".into(), json!(null)));
        assert_eq!(of("x=\"7\""), ("x".into(), json!("7")));
        assert!(path_value("=7").is_err());
        assert!(path_value("user").is_err());
    }

    #[test]
    fn a_filter_that_says_nothing_is_empty() {
        assert!(Filter::default().is_empty());
        let by_state = Filter {
            state: vec![JobState::Dead],
            ..Filter::default()
        };
        assert!(!by_state.is_empty());
    }

    #[test]
    fn ages_that_exclude_each_other_are_refused() {
        let filter = Filter {
            older_than: Some(Duration::from_secs(60)),
            newer_than: Some(Duration::from_secs(5)),
            ..Filter::default()
        };
        assert!(filter.to_job_filter(Timestamp::now()).is_err());
    }
}
