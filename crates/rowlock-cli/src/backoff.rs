//! A retry policy as text, for the configuration and the command line: `exponential 1m, max 1h, jitter 0.1`. Pure.

use std::time::Duration;

use rowlock::Backoff;

use crate::nearest::did_you_mean;
use crate::units::{duration_text, parse_duration};

const SHAPES: [&str; 4] = ["exponential", "linear", "fixed", "list"];
const PARTS: [&str; 3] = ["factor", "max", "jitter"];
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Reads `SHAPE DELAY[, factor N][, max TIME][, jitter SHARE]`, where the shape is exponential, linear, fixed or list.
pub(crate) fn parse_backoff(text: &str) -> Result<Backoff, String> {
    let mut parts = text.split(',').map(str::trim);
    let mut shape = parts.next().unwrap_or_default().split_whitespace();
    let name = shape.next().unwrap_or_default();
    let delays = shape.map(delay).collect::<Result<Vec<_>, _>>()?;
    let mut policy = match (name, &delays[..]) {
        ("exponential", [base]) => Backoff::exponential(*base),
        ("linear", [base]) => Backoff::linear(*base),
        ("fixed", [base]) => Backoff::fixed(*base),
        ("list", [_, ..]) if delays.len() <= 100 => Backoff::list(delays),
        ("list", _) => {
            return Err("\"list\" takes 1 to 100 delays, such as \"list 1s 10s 1m\"".into());
        }
        (shape, _) if SHAPES.contains(&shape) => {
            return Err(format!(
                "{shape:?} takes one delay, such as \"{shape} 30s\""
            ));
        }
        (other, _) => {
            return Err(format!(
                "{other:?} is no shape of a backoff; {}",
                did_you_mean(other, SHAPES)
            ));
        }
    };
    for part in parts {
        let (what, value) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
        let value = value.trim();
        policy = match what {
            "factor" if name != "exponential" => {
                return Err(format!("only \"exponential\" has a factor, not {name:?}"));
            }
            "factor" => policy.factor(number(what, value, 1.0..=100.0)?),
            "max" => policy.max(delay(value)?),
            "jitter" => policy.jitter(number(what, value, 0.0..=1.0)?),
            other => {
                return Err(format!(
                    "{other:?} is no part of a backoff; {}",
                    did_you_mean(other, PARTS)
                ));
            }
        };
    }
    Ok(policy)
}

fn delay(text: &str) -> Result<Duration, String> {
    let delay = parse_duration(text)?;
    if delay > YEAR {
        return Err(format!("{} is longer than a year", duration_text(delay)));
    }
    Ok(delay)
}

fn number(what: &str, text: &str, range: std::ops::RangeInclusive<f64>) -> Result<f64, String> {
    let (least, most) = (range.start(), range.end());
    let wrong = || format!("{what} must be a number from {least} to {most}, not {text:?}");
    text.parse()
        .ok()
        .filter(|n| range.contains(n))
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read() {
        let secs = Duration::from_secs;
        for (text, policy) in [
            ("exponential 1m", Backoff::exponential(secs(60))),
            ("fixed 30s, jitter 0", Backoff::fixed(secs(30)).jitter(0.0)),
            (
                "linear 10s, max 1h",
                Backoff::linear(secs(10)).max(secs(3600)),
            ),
            (
                "exponential 1s, factor 3",
                Backoff::exponential(secs(1)).factor(3.0),
            ),
            ("list 1s 5s 1m", Backoff::list([secs(1), secs(5), secs(60)])),
        ] {
            assert_eq!(parse_backoff(text), Ok(policy), "{text}");
        }
    }

    #[test]
    fn bad_policies_say_what_is_wrong() {
        for (text, part) in [
            ("exponental 1m", "did you mean \"exponential\""),
            ("", "is no shape"),
            ("fixed", "takes one delay"),
            ("fixed 30", "is no duration"),
            ("list", "1 to 100"),
            ("fixed 1s, factor 2", "only \"exponential\""),
            ("exponential 1s, jiter 0.1", "did you mean \"jitter\""),
            ("exponential 1s, jitter 2", "from 0 to 1"),
            ("fixed 4000d", "longer than a year"),
        ] {
            let error = parse_backoff(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
