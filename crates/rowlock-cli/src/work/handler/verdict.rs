//! What becomes of a job, as its handler says it: by a line of JSON, or by a code that the configuration gives a meaning. Pure.

use std::time::Duration;

use rowlock::Outcome;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::settings::Reaction;
use crate::units::parse_duration;

/// `{"rowlock": {"outcome": "retry", "after": "30s", "error": "…"}}`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    rowlock: Said,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    outcome: Word,
    after: Option<String>,
    error: Option<String>,
    result: Option<Box<RawValue>>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Word {
    Done,
    Retry,
    Snooze,
    Cancel,
    Dead,
}

/// What the text says, if it is an outcome at all. One that is meant as an outcome and is none is a failure, not silence.
pub(super) fn explicit(text: &str) -> Option<Outcome> {
    // Most outputs are no JSON; do not make them pay for a parser.
    if !text.starts_with('{') || !text.contains("\"rowlock\"") {
        return None;
    }
    let whole: serde_json::Value = serde_json::from_str(text).ok()?;
    whole.get("rowlock")?;
    let said = match serde_json::from_str::<Line>(text) {
        Ok(line) => line.rowlock,
        Err(e) => return Some(unusable(&e.to_string())),
    };
    Some(said.outcome().unwrap_or_else(|e| unusable(&e)))
}

fn unusable(why: &str) -> Outcome {
    Outcome::Retry {
        error: format!("the handler's outcome cannot be used: {why}"),
        after: None,
    }
}

impl Said {
    fn outcome(self) -> Result<Outcome, String> {
        let after = self.after.as_deref().map(parse_duration).transpose()?;
        let error = |otherwise: &str| self.error.clone().unwrap_or_else(|| otherwise.to_owned());
        if self.result.is_some() && !matches!(self.outcome, Word::Done) {
            return Err("only \"done\" takes a result".into());
        }
        if after.is_some() && !matches!(self.outcome, Word::Retry | Word::Snooze) {
            return Err("only \"retry\" and \"snooze\" take \"after\"".into());
        }
        Ok(match (self.outcome, after) {
            (Word::Done, _) => match &self.result {
                Some(result) => Outcome::done(result),
                None => Outcome::Done(None),
            },
            (Word::Retry, after) => Outcome::Retry {
                error: error("the handler asked for another attempt"),
                after,
            },
            (Word::Snooze, Some(after)) => Outcome::Snooze(after),
            (Word::Snooze, None) => return Err("\"snooze\" needs \"after\"".into()),
            (Word::Cancel, _) => Outcome::Cancel(error("the handler cancelled it")),
            (Word::Dead, _) => Outcome::Dead(error("the handler gave it up")),
        })
    }
}

/// What a code means for the job. `wait`: what the handler itself asked for, which wins over the configured time.
pub(super) fn by_code(reaction: Reaction, error: String, wait: Option<Duration>) -> Outcome {
    match reaction {
        Reaction::Done => Outcome::Done(None),
        Reaction::Retry(after) => Outcome::Retry {
            error,
            after: wait.or(after),
        },
        Reaction::Snooze(time) => Outcome::Snooze(wait.unwrap_or(time)),
        Reaction::Cancel => Outcome::Cancel(error),
        Reaction::Dead => Outcome::Dead(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        format!("{:?}", explicit(text))
    }

    #[test]
    fn outcomes_are_read() {
        for (text, part) in [
            (r#"{"rowlock": {"outcome": "done"}}"#, "Done(None)"),
            (
                r#"{"rowlock": {"outcome": "done", "result": [1]}}"#,
                "Done(Some(RawValue([1])))",
            ),
            (
                r#"{"rowlock": {"outcome": "retry", "after": "30s", "error": "busy"}}"#,
                "error: \"busy\", after: Some(30s)",
            ),
            (
                r#"{"rowlock": {"outcome": "snooze", "after": "1m"}}"#,
                "Snooze(60s)",
            ),
            (
                r#"{"rowlock": {"outcome": "cancel", "error": "gone"}}"#,
                "Cancel(\"gone\")",
            ),
            (r#"{"rowlock": {"outcome": "dead"}}"#, "Dead("),
        ] {
            assert!(said(text).contains(part), "{text}: {}", said(text));
        }
    }

    #[test]
    fn what_is_no_outcome_says_nothing() {
        for text in [
            "",
            "done",
            "{}",
            "{\"a\": \"rowlock\"}",
            "{\"rowlock",
            "[1]",
        ] {
            assert!(explicit(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_bad_outcome_is_a_failure_with_its_reason() {
        for (text, part) in [
            (r#"{"rowlock": {"outcome": "finished"}}"#, "unknown variant"),
            (
                r#"{"rowlock": {"outcome": "snooze"}}"#,
                "needs \\\"after\\\"",
            ),
            (
                r#"{"rowlock": {"outcome": "retry", "after": "soon"}}"#,
                "is no duration",
            ),
            (
                r#"{"rowlock": {"outcome": "done", "reslut": 1}}"#,
                "unknown field",
            ),
            (
                r#"{"rowlock": {"outcome": "dead", "result": 1}}"#,
                "only \\\"done\\\"",
            ),
        ] {
            assert!(
                said(text).contains("Retry") && said(text).contains(part),
                "{text}: {}",
                said(text)
            );
        }
    }
}
