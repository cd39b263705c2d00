//! Settings of queues as people write and read them: `lease=10s`, `backoff=exponential:1s`. Pure.
//!
//! What is printed can be given back: the two directions use the same words.

use std::time::Duration;

use rowlock::Backoff;
use rowlock::manage::{KindInfo, KindSettings, QueueInfo, QueueSettings};
use serde_json::Value;

use crate::backoff::parse_backoff;
use crate::exit::mistake;
use crate::nearest::nearest;
use crate::units::{duration_text, parse_size, size_text};
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
            size_text(u64::try_from(q.max_payload_bytes).unwrap_or(0)),
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
            "backoff" => s.backoff(backoff(value)?),
            "retention" => s.retention(span(value)?),
            "max-payload" => s.max_payload_bytes(size(value)?),
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
            "backoff" => s.backoff(backoff(value)?),
            "timeout" => s.timeout(span(value)?),
            "paused" => s.paused(truth(&key, value)?),
            _ => return Err(unknown(&key, &OF_KIND, "a kind")),
        })
    })
}

fn split(pair: &str) -> anyhow::Result<(String, &str)> {
    let (key, value) = pair.split_once('=').ok_or_else(|| {
        mistake(format!(
            "{pair:?} is not of the form key=value, such as lease=10s"
        ))
    })?;
    Ok((key.trim().replace('_', "-"), value.trim()))
}

fn unknown(key: &str, known: &[&str], of: &str) -> anyhow::Error {
    let list = known.join(", ");
    match nearest(key, known.iter().copied()) {
        Some(word) => mistake(format!(
            "{key:?} is no setting of {of}; did you mean {word}? Known are {list}"
        )),
        None => mistake(format!("{key:?} is no setting of {of}; known are {list}")),
    }
}

fn span(value: &str) -> anyhow::Result<Duration> {
    times::span(value).map_err(mistake)
}

fn number(key: &str, value: &str) -> anyhow::Result<u16> {
    value
        .parse()
        .map_err(|_| mistake(format!("{key} must be a whole number, not {value:?}")))
}

fn truth(key: &str, value: &str) -> anyhow::Result<bool> {
    match value {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        _ => Err(mistake(format!(
            "{key} must be true or false, not {value:?}"
        ))),
    }
}

fn size(value: &str) -> anyhow::Result<u32> {
    let bytes = parse_size(value).map_err(mistake)?;
    // What does not fit is out of range, and is refused as such.
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// As in the configuration, `exponential 1s, max 1h`; and in a form that needs no quotes in a shell, `exponential:1s:max=1h`, `list:1s,5s,30s`.
fn backoff(value: &str) -> anyhow::Result<Backoff> {
    let unquoted = |(shape, rest): (&str, &str)| {
        let mut parts = rest.split(':');
        let delays = parts.next().unwrap_or_default().replace(',', " ");
        let more: String = parts
            .map(|p| format!(", {}", p.replace('=', " ")))
            .collect();
        format!("{shape} {delays}{more}")
    };
    let text = value.split_once(':').map_or(value.to_owned(), unquoted);
    parse_backoff(&text).map_err(|e| {
        mistake(format!("{e}. Say backoff=exponential:1s, linear:5s, fixed:10s or list:1s,5s,30s; then, as needed, :factor=2 :max=1h :jitter=0.1"))
    })
}

/// A backoff in words that [`backoff`] reads.
fn backoff_text(backoff: &Value) -> String {
    let time = |value: &Value| Some(duration_text(Duration::from_millis(value.as_u64()?)));
    let text = (|| {
        let shape = backoff["type"].as_str()?;
        let delays = match shape {
            "list" => {
                let delays: Option<Vec<String>> =
                    backoff["ms"].as_array()?.iter().map(time).collect();
                delays?.join(",")
            }
            _ => time(&backoff["base_ms"])?,
        };
        let mut text = format!("{shape}:{delays}");
        if let Some(factor) = backoff["factor"].as_f64().filter(|f| *f != 2.0) {
            text += &format!(":factor={factor}");
        }
        text += &format!(
            ":max={}:jitter={}",
            time(&backoff["max_ms"])?,
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
            "max-payload=64KiB",
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
            let read = backoff(text).unwrap();
            assert_eq!(backoff_text(&serde_json::to_value(&read).unwrap()), text);
        }
    }

    #[test]
    fn both_ways_to_say_a_backoff_are_one() {
        for (shell, config) in [
            ("exponential:1s:max=1h", "exponential 1s, max 1h"),
            ("list:1s,5s:jitter=0", "list 1s 5s, jitter 0"),
        ] {
            assert_eq!(backoff(shell).unwrap(), backoff(config).unwrap());
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
        assert!(error("backoff=exponental:1s").contains("did you mean \"exponential\""));
        assert!(error("max-payload=5 apples").contains("no size"));
        assert!(parse_kind(&pairs(&["lease=1s"])).is_err());
    }
}
