//! Settings of queues as people write and read them: `lease=10s`, `backoff=exponential:1s:max=1h`. Pure.
//!
//! What is printed can be given back: the two directions use the same words.

use std::time::Duration;

use rowlock::Backoff;
use rowlock::manage::{KindInfo, KindSettings, QueueInfo, QueueSettings};
use serde_json::Value;

use super::distance;
use crate::{say, times};

const OF_QUEUE: [&str; 7] = [
    "lease",
    "max-attempts",
    "max-crashes",
    "backoff",
    "retention",
    "max-payload",
    "paused",
];
const OF_KIND: [&str; 4] = ["max-attempts", "backoff", "timeout", "paused"];

/// The settings of a queue.
pub(super) fn of_queue(q: &QueueInfo) -> Vec<(&'static str, String)> {
    vec![
        ("lease", say::ms(i64::from(q.lease_ms))),
        ("max-attempts", q.max_attempts.to_string()),
        (
            "max-crashes",
            q.max_crashes
                .map_or("as-attempts".to_owned(), |n| n.to_string()),
        ),
        ("backoff", backoff_text(&q.backoff)),
        (
            "retention",
            say::ms(i64::try_from(q.retention_ms).unwrap_or(i64::MAX)),
        ),
        (
            "max-payload",
            say::bytes(u64::try_from(q.max_payload_bytes).unwrap_or(0)),
        ),
        ("paused", q.paused.to_string()),
    ]
}

/// The settings that a kind has of its own.
pub(super) fn of_kind(kind: &KindInfo) -> Vec<(&'static str, String)> {
    let mut settings = Vec::new();
    if let Some(n) = kind.max_attempts {
        settings.push(("max-attempts", n.to_string()));
    }
    if let Some(backoff) = &kind.backoff {
        settings.push(("backoff", backoff_text(backoff)));
    }
    if let Some(ms) = kind.timeout_ms {
        settings.push(("timeout", say::ms(ms)));
    }
    if kind.paused {
        settings.push(("paused", "true".to_owned()));
    }
    settings
}

/// `key=value` pairs for a queue.
pub(super) fn parse_queue(pairs: &[String]) -> anyhow::Result<QueueSettings> {
    pairs.iter().try_fold(QueueSettings::new(), |s, pair| {
        let (key, value) = split(pair)?;
        Ok(match key.as_str() {
            "lease" => s.lease(span(value)?),
            "max-attempts" => s.max_attempts(number(&key, value)?),
            "max-crashes" if value == "as-attempts" => s.max_crashes_as_attempts(),
            "max-crashes" => s.max_crashes(number(&key, value)?),
            "backoff" => s.backoff(parse_backoff(value)?),
            "retention" => s.retention(span(value)?),
            "max-payload" => s.max_payload_bytes(bytes(value)?),
            "paused" => s.paused(truth(&key, value)?),
            _ => return Err(unknown(&key, &OF_QUEUE, "a queue")),
        })
    })
}

/// `key=value` pairs for a kind.
pub(super) fn parse_kind(pairs: &[String]) -> anyhow::Result<KindSettings> {
    pairs.iter().try_fold(KindSettings::new(), |s, pair| {
        let (key, value) = split(pair)?;
        Ok(match key.as_str() {
            "max-attempts" => s.max_attempts(number(&key, value)?),
            "backoff" => s.backoff(parse_backoff(value)?),
            "timeout" => s.timeout(span(value)?),
            "paused" => s.paused(truth(&key, value)?),
            _ => return Err(unknown(&key, &OF_KIND, "a kind")),
        })
    })
}

fn split(pair: &str) -> anyhow::Result<(String, &str)> {
    let (key, value) = pair.split_once('=').ok_or_else(|| {
        anyhow::anyhow!("{pair:?} is not of the form key=value, such as lease=10s")
    })?;
    Ok((key.trim().replace('_', "-"), value.trim()))
}

fn unknown(key: &str, known: &[&str], of: &str) -> anyhow::Error {
    let nearest = known
        .iter()
        .min_by_key(|k| distance(k, key))
        .filter(|k| distance(k, key) <= 3);
    let hint = nearest.map_or(String::new(), |k| format!("; did you mean {k}?"));
    anyhow::anyhow!(
        "{key:?} is no setting of {of}: known are {}{hint}",
        known.join(", ")
    )
}

fn span(value: &str) -> anyhow::Result<Duration> {
    times::span(value).map_err(anyhow::Error::msg)
}

fn number(key: &str, value: &str) -> anyhow::Result<u16> {
    value
        .parse()
        .map_err(|_| anyhow::anyhow!("{key} must be a whole number, not {value:?}"))
}

fn truth(key: &str, value: &str) -> anyhow::Result<bool> {
    match value {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        _ => anyhow::bail!("{key} must be true or false, not {value:?}"),
    }
}

/// `65536`, `64kB`, `1 MB`: by steps of 1024.
fn bytes(value: &str) -> anyhow::Result<u32> {
    let wrong = || anyhow::anyhow!("{value:?} is no size: say 65536, 64kB or 1MB");
    let digits = value.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match value[digits.len()..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        _ => return Err(wrong()),
    };
    digits
        .parse::<u32>()
        .ok()
        .and_then(|n| n.checked_mul(unit))
        .ok_or_else(wrong)
}

/// `exponential:1s`, `linear:5s`, `fixed:10s`, `list:1s,5s,30s`; then, as needed, `:factor=3`, `:max=1h`, `:jitter=0.1`.
fn parse_backoff(value: &str) -> anyhow::Result<Backoff> {
    if value.starts_with('{') {
        return serde_json::from_str(value)
            .map_err(|e| anyhow::anyhow!("{value:?} is no backoff: {e}"));
    }
    let mut parts = value.split(':');
    let (shape, time) = (parts.next().unwrap_or_default(), parts.next());
    let time = time.ok_or_else(|| {
        anyhow::anyhow!("{value:?} is no backoff: say exponential:1s, linear:5s, fixed:10s or list:1s,5s,30s, and perhaps :max=1h:jitter=0.1")
    })?;
    let mut backoff = match shape {
        "exponential" => Backoff::exponential(span(time)?),
        "linear" => Backoff::linear(span(time)?),
        "fixed" => Backoff::fixed(span(time)?),
        "list" => {
            let delays: anyhow::Result<Vec<Duration>> = time.split(',').map(span).collect();
            Backoff::list(delays?)
        }
        _ => anyhow::bail!("{shape:?} is no backoff: known are exponential, linear, fixed, list"),
    };
    for part in parts {
        let (key, value) = split(part)?;
        let share = || {
            value
                .parse::<f64>()
                .map_err(|_| anyhow::anyhow!("{key} must be a number, not {value:?}"))
        };
        backoff = match key.as_str() {
            "factor" => backoff.factor(share()?),
            "max" => backoff.max(span(value)?),
            "jitter" => backoff.jitter(share()?),
            _ => return Err(unknown(&key, &["factor", "max", "jitter"], "a backoff")),
        };
    }
    Ok(backoff)
}

/// A backoff in the words that [`parse_backoff`] reads.
fn backoff_text(backoff: &Value) -> String {
    let ms = |value: &Value| value.as_i64().map(|ms| say::ms(ms).replace(' ', ""));
    let text = (|| {
        let shape = backoff["type"].as_str()?;
        let time = match shape {
            "list" => {
                let delays: Option<Vec<String>> =
                    backoff["ms"].as_array()?.iter().map(ms).collect();
                delays?.join(",")
            }
            _ => ms(&backoff["base_ms"])?,
        };
        let mut text = format!("{shape}:{time}");
        if let Some(factor) = backoff["factor"].as_f64().filter(|f| *f != 2.0) {
            text += &format!(":factor={factor}");
        }
        text += &format!(
            ":max={}:jitter={}",
            ms(&backoff["max_ms"])?,
            backoff["jitter"]
        );
        Some(text)
    })();
    text.unwrap_or_else(|| backoff.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pairs(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn settings_are_read() {
        let given = pairs(&[
            "retention=3 days",
            "lease=10s",
            "max_attempts=3",
            "max-crashes=as-attempts",
            "backoff=exponential:1s",
            "max-payload=64kB",
        ]);
        let settings = parse_queue(&given).unwrap();
        assert_eq!(
            serde_json::to_value(&settings).unwrap(),
            json!({"retention": "3 days", "lease_ms": 10_000, "max_attempts": 3, "max_crashes": null, "max_payload_bytes": 65536,
                   "backoff": {"type": "exponential", "base_ms": 1000, "factor": 2.0, "max_ms": 86_400_000, "jitter": 0.1}})
        );
    }

    #[test]
    fn a_backoff_that_was_printed_can_be_given_back() {
        for text in [
            "exponential:1s:max=1d:jitter=0.1",
            "exponential:1s:factor=3.5:max=1h:jitter=0.0",
            "linear:500ms:max=1d:jitter=0.1",
            "list:1s,1m30s,1h:max=1d:jitter=0.1",
        ] {
            let backoff = parse_backoff(text).unwrap();
            assert_eq!(backoff_text(&serde_json::to_value(&backoff).unwrap()), text);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |pair: &str| parse_queue(&pairs(&[pair])).unwrap_err().to_string();
        assert!(error("leese=10s").contains("did you mean lease?"));
        assert!(error("lease").contains("key=value"));
        assert!(error("lease=soon").contains("no span of time"));
        assert!(error("max-attempts=many").contains("whole number"));
        assert!(error("backoff=sometimes").contains("exponential:1s"));
        assert!(error("backoff=cubic:1s").contains("known are exponential"));
        assert!(error("max-payload=5GB").contains("no size"));
        assert!(parse_kind(&pairs(&["lease=1s"])).is_err());
    }
}
