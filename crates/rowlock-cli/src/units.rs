//! Durations and sizes as people write them: `30s`, `1m30s`, `64KiB`. Pure.

use std::time::Duration;

/// From the longest to the shortest, in milliseconds.
const TIMES_MS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

const SIZES: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// `500ms`, `30s`, `1m30s`, `2h`, `1d`. A bare number is refused: nobody remembers whether it means seconds or milliseconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "{text:?} is no duration: write numbers with a unit (ms, s, m, h, d), such as \"30s\" or \"1m30s\""
        )
    };
    let mut rest = text.trim();
    let mut total_ms: u64 = 0;
    let mut longer_units = 0;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_where(after.trim_start(), |c| !c.is_alphabetic());
        let place = TIMES_MS
            .iter()
            .position(|(name, _)| *name == unit)
            .filter(|place| *place >= longer_units)
            .ok_or_else(wrong)?;
        longer_units = place + 1;
        total_ms = number
            .parse()
            .ok()
            .and_then(|n: u64| n.checked_mul(TIMES_MS[place].1))
            .and_then(|ms| ms.checked_add(total_ms))
            .ok_or_else(wrong)?;
        rest = after.trim_start();
    }
    Ok(Duration::from_millis(total_ms))
}

/// The shortest text that [`parse_duration`] reads back.
pub(crate) fn duration_text(duration: Duration) -> String {
    let mut ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, unit_ms) in TIMES_MS {
        if ms >= unit_ms {
            text.push_str(&format!("{}{unit}", ms / unit_ms));
            ms %= unit_ms;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// `64KiB`, `1MiB`, or bytes as a bare number.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_where(text.trim(), |c| !c.is_ascii_digit());
    let unit = unit.trim();
    let factor = SIZES
        .iter()
        .find(|(name, _)| *name == unit || unit.is_empty() && *name == "B");
    number
        .parse()
        .ok()
        .zip(factor)
        .and_then(|(n, (_, factor)): (u64, _)| n.checked_mul(*factor))
        .ok_or_else(|| {
            format!(
                "{text:?} is no size: write bytes with a unit (B, KiB, MiB, GiB), such as \"64KiB\""
            )
        })
}

/// The shortest text that [`parse_size`] reads back.
pub(crate) fn size_text(bytes: u64) -> String {
    let unit = SIZES
        .iter()
        .find(|(_, size)| bytes >= *size && bytes % size == 0);
    let (name, size) = unit.unwrap_or(&("B", 1));
    format!("{}{name}", bytes / size)
}

fn split_where(text: &str, is_end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("1d 2h", 93_600_000),
            ("0s", 0),
        ] {
            let duration = parse_duration(text).unwrap();
            assert_eq!(duration, Duration::from_millis(ms), "{text}");
            assert_eq!(parse_duration(&duration_text(duration)), Ok(duration));
        }
        assert_eq!(duration_text(Duration::from_secs(90)), "1m30s");
        for bad in ["", "30", "s", "1s1m", "1x", "-5s", "99999999999999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [
            ("64KiB", 65_536),
            ("1 MiB", 1 << 20),
            ("1000", 1000),
            ("0B", 0),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
            assert_eq!(parse_size(&size_text(bytes)), Ok(bytes));
        }
        assert_eq!(size_text(65_536), "64KiB");
        for bad in ["", "KiB", "64kb", "-1", "99999999999GiB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
