//! One line of a file of jobs, in the words of `rowlock.enqueue_many`. Pure.

use std::time::Duration;

use jiff::Timestamp;
use rowlock::{Backoff, NewJob, OnConflict};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    kind: String,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    queue: Option<String>,
    priority: Option<i32>,
    run_at: Option<Timestamp>,
    delay_ms: Option<u64>,
    max_attempts: Option<u16>,
    timeout_ms: Option<u64>,
    expires_at: Option<Timestamp>,
    expires_in_ms: Option<u64>,
    backoff: Option<Backoff>,
    #[serde(default)]
    tags: Vec<String>,
    metadata: Option<serde_json::Map<String, serde_json::Value>>,
    unique_key: Option<String>,
    on_conflict: Option<Conflict>,
    trace: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Conflict {
    Keep,
    Replace,
}

/// A job, and what the database decides about: how large its payload may be in its queue.
pub(super) struct Parsed {
    pub(super) job: NewJob,
    pub(super) queue: String,
    pub(super) payload_bytes: usize,
}

/// The job that a line stands for, or the rule that it breaks.
pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    let line: Line<'_> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    if line.run_at.is_some() && line.delay_ms.is_some() {
        return Err("has both run_at and delay_ms: one of them can be".into());
    }
    if line.expires_at.is_some() && line.expires_in_ms.is_some() {
        return Err("has both expires_at and expires_in_ms: one of them can be".into());
    }
    if line.on_conflict.is_some() && line.unique_key.is_none() {
        return Err("has on_conflict, but no unique_key".into());
    }
    let empty =
        serde_json::value::to_raw_value(&serde_json::json!({})).map_err(|e| e.to_string())?;
    let payload = line.payload.unwrap_or(&empty);
    let payload_bytes = payload.get().len();
    let queue = line
        .queue
        .unwrap_or_else(|| rowlock::DEFAULT_QUEUE.to_owned());
    let mut job = NewJob::new(line.kind, &payload)
        .map_err(|e| e.to_string())?
        .queue(queue.clone())
        .priority(line.priority.unwrap_or(0));
    let ms = Duration::from_millis;
    if let Some(at) = line.run_at {
        job = job.run_at(at);
    }
    if let Some(delay) = line.delay_ms {
        job = job.delay(ms(delay));
    }
    if let Some(attempts) = line.max_attempts {
        job = job.max_attempts(attempts);
    }
    if let Some(timeout) = line.timeout_ms {
        job = job.timeout(ms(timeout));
    }
    if let Some(at) = line.expires_at {
        job = job.expires(at);
    }
    if let Some(after) = line.expires_in_ms {
        job = job.expires_in(ms(after));
    }
    if let Some(backoff) = line.backoff {
        job = job.backoff(backoff);
    }
    job = line.tags.into_iter().fold(job, NewJob::tag);
    for (key, value) in line.metadata.into_iter().flatten() {
        job = job.metadata(key, value);
    }
    if let Some(key) = line.unique_key {
        job = job.unique(key);
    }
    if let Some(Conflict::Replace) = line.on_conflict {
        job = job.on_conflict(OnConflict::Replace);
    }
    if let Some(trace) = line.trace {
        job = job.trace(trace);
    }
    job.check().map_err(|e| e.to_string())?;
    Ok(Parsed {
        job,
        queue,
        payload_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_lines_are_jobs_and_bad_ones_say_why() {
        assert!(parse(r#"{"kind": "a"}"#).is_ok());
        let whole = r#"{"kind": "a", "payload": {"n": 1}, "queue": "q", "priority": 2, "delay_ms": 5, "max_attempts": 3, "timeout_ms": 9,
            "expires_in_ms": 7, "tags": ["x"], "metadata": {"a": 1}, "unique_key": "k", "on_conflict": "replace",
            "backoff": {"type": "fixed", "base_ms": 5, "max_ms": 5, "jitter": 0}}"#;
        assert_eq!(
            parse(whole).map_err(|e| e.to_string()).map(|p| p.queue),
            Ok("q".to_owned())
        );
        for (line, part) in [
            ("", "EOF"),
            ("[]", "invalid"),
            (r#"{"payload": {}}"#, "missing field `kind`"),
            (r#"{"kind": "a", "que": "b"}"#, "unknown field `que`"),
            (r#"{"kind": "a", "payload": 5}"#, "is not a JSON object"),
            (r#"{"kind": "a", "priority": 9}"#, "from -4 to 4"),
            (
                r#"{"kind": "a", "run_at": "2030-01-01T00:00:00Z", "delay_ms": 1}"#,
                "both run_at and delay_ms",
            ),
            (
                r#"{"kind": "a", "on_conflict": "replace"}"#,
                "no unique_key",
            ),
        ] {
            let error = parse(line).map(|_| ()).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
