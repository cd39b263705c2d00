//! Times, sizes and texts as people read them. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A span in its two largest units: `850ms`, `12s`, `4m 5s`, `3h 20m`, `2d 4h`.
pub(crate) fn span(span: SignedDuration) -> String {
    let ms = span.as_millis().unsigned_abs();
    let s = ms / 1000;
    let two = |a: u128, a_unit: &str, b: u128, b_unit: &str| {
        if b == 0 {
            format!("{a}{a_unit}")
        } else {
            format!("{a}{a_unit} {b}{b_unit}")
        }
    };
    match s {
        0 => format!("{ms}ms"),
        1..=59 => format!("{s}s"),
        60..=3599 => two(s / 60, "m", s % 60, "s"),
        3600..=86_399 => two(s / 3600, "h", s % 3600 / 60, "m"),
        _ => two(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    text
}

/// A span given in milliseconds.
pub(crate) fn ms(ms: i64) -> String {
    span(SignedDuration::from_millis(ms))
}

/// A span that cannot be negative.
pub(crate) fn duration(d: Duration) -> String {
    ms(i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

/// `3m 5s ago`, `in 2h`, `now`.
pub(crate) fn when(at: Timestamp, now: Timestamp) -> String {
    let past = now.duration_since(at);
    if past.abs() < SignedDuration::from_secs(1) {
        "now".to_owned()
    } else if past.is_positive() {
        format!("{} ago", span(past))
    } else {
        format!("in {}", span(past))
    }
}

/// How long something has lasted.
pub(crate) fn since(at: Timestamp, now: Timestamp) -> String {
    span(now.duration_since(at))
}

/// A moment in full, to the second, in UTC like everything in the database.
pub(crate) fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// `1,234,567`.
pub(crate) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 job`, `7 jobs`.
pub(crate) fn count(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", number(n), if n == 1 { "" } else { "s" })
}

/// `512 B`, `12 kB`, `3.4 GB`, by steps of 1024 as Postgres says them.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 10.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// The first `most` characters on one line, with a mark where something was left out. What would move the cursor is left out too: errors and
/// payloads come from anywhere.
pub(crate) fn clip(text: &str, most: usize) -> String {
    let line = plain(text.lines().find(|l| !l.trim().is_empty()).unwrap_or(""));
    let cut = line.chars().count() > most;
    let mut clipped: String = line
        .chars()
        .take(most.saturating_sub(usize::from(cut)))
        .collect();
    if cut {
        clipped.truncate(clipped.trim_end().len());
        clipped.push('…');
    }
    clipped
}

/// A text of others without control characters, other than the breaks of its lines.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c == '\t' { ' ' } else { c })
        .filter(|c| *c == '\n' || !c.is_control())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (given, said) in [
            (0, "0ms"),
            (999, "999ms"),
            (59_999, "59s"),
            (60_000, "1m"),
            (125_000, "2m 5s"),
            (3_600_000, "1h"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(ms(given), said);
        }
    }

    #[test]
    fn moments_seen_from_now() {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let at = |s| now + SignedDuration::from_secs(s);
        assert_eq!(when(now, now), "now");
        assert_eq!(when(at(-90), now), "1m 30s ago");
        assert_eq!(when(at(7200), now), "in 2h");
        assert_eq!(moment(now), "2030-01-01 00:00:00 UTC");
    }

    #[test]
    fn numbers_and_sizes() {
        assert_eq!(number(7), "7");
        assert_eq!(number(1234), "1,234");
        assert_eq!(number(123_456), "123,456");
        assert_eq!(count(1, "job"), "1 job");
        assert_eq!(count(2000, "job"), "2,000 jobs");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(1536), "1.5 kB");
        assert_eq!(bytes(50 << 30), "50 GB");
    }

    #[test]
    fn texts_stay_on_one_line_and_move_no_cursor() {
        assert_eq!(clip("\n  first\nsecond", 20), "  first");
        assert_eq!(clip("abcdef", 4), "abc…");
        assert_eq!(clip("äöüß", 4), "äöüß");
        assert_eq!(plain("a\u{1b}[31mb\tc\nd"), "a[31mb c\nd");
    }
}
