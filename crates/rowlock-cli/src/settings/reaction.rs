//! What an exit code or an HTTP status does to a job, as text: `done`, `retry`, `retry 30s`, `snooze 5m`, `cancel`, `dead`. Pure.

use std::time::Duration;

use serde_json::{Value, json};
use toml::de::DeValue;

use super::value::Setting;
use crate::nearest::did_you_mean;
use crate::units::{duration_text, parse_duration};

/// What becomes of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    Done,
    /// After this time, or by the backoff policy.
    Retry(Option<Duration>),
    Snooze(Duration),
    Cancel,
    Dead,
}

const WORDS: [&str; 5] = ["done", "retry", "snooze", "cancel", "dead"];

impl Setting for Reaction {
    const WANTED: &'static str =
        "\"done\", \"retry\", \"retry 30s\", \"snooze 5m\", \"cancel\" or \"dead\"";

    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        Self::from_text(value.as_str().ok_or(None)?).map_err(Some)
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let (word, time) = match text.trim().split_once(char::is_whitespace) {
            Some((word, time)) => (word, Some(parse_duration(time)?)),
            None => (text.trim(), None),
        };
        match (word, time) {
            ("done", None) => Ok(Self::Done),
            ("retry", after) => Ok(Self::Retry(after)),
            ("snooze", Some(time)) => Ok(Self::Snooze(time)),
            ("snooze", None) => Err("\"snooze\" needs a time, such as \"snooze 5m\"".into()),
            ("cancel", None) => Ok(Self::Cancel),
            ("dead", None) => Ok(Self::Dead),
            (word, Some(_)) if WORDS.contains(&word) => Err(format!("{word:?} takes no time")),
            (word, _) => Err(format!(
                "{word:?} is no outcome; {}",
                did_you_mean(word, WORDS)
            )),
        }
    }

    fn shown(&self) -> Value {
        json!(match self {
            Self::Done => "done".to_owned(),
            Self::Retry(None) => "retry".to_owned(),
            Self::Retry(Some(after)) => format!("retry {}", duration_text(*after)),
            Self::Snooze(time) => format!("snooze {}", duration_text(*time)),
            Self::Cancel => "cancel".to_owned(),
            Self::Dead => "dead".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reactions_are_read_and_shown() {
        for text in ["done", "retry", "retry 30s", "snooze 5m", "cancel", "dead"] {
            assert_eq!(Reaction::from_text(text).unwrap().shown(), json!(text));
        }
        for (bad, part) in [
            ("snooze", "needs a time"),
            ("dead 5s", "takes no time"),
            ("retri", "did you mean \"retry\""),
            ("retry soon", "is no duration"),
        ] {
            let error = Reaction::from_text(bad).unwrap_err();
            assert!(error.contains(part), "{bad}: {error}");
        }
    }
}
