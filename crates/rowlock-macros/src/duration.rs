//! Durations as people write them: `500ms`, `30s`, `1m30s`, `2h`, `1d`. Pure.

/// From the longest to the shortest, in milliseconds.
const UNITS_MS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// The milliseconds that a text stands for, or what is wrong with it.
pub(crate) fn parse_ms(text: &str) -> Result<u64, String> {
    let wrong = |what: String| {
        format!(
            "{what} in the duration {text:?}: write numbers with a unit (ms, s, m, h, d), like \"30s\" or \"1m30s\""
        )
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong("nothing".into()));
    }
    let mut total_ms: u64 = 0;
    let mut longer_units = 0;
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_where(after.trim_start(), |c| !c.is_alphabetic());
        if number.is_empty() {
            let found = rest.chars().next().unwrap_or_default();
            return Err(wrong(format!("{found:?} where a whole number is expected")));
        }
        if unit.is_empty() {
            return Err(wrong(format!("the number {number} without a unit")));
        }
        let Some(place) = UNITS_MS.iter().position(|(name, _)| *name == unit) else {
            return Err(wrong(format!("the unknown unit {unit:?}")));
        };
        if place < longer_units {
            return Err(wrong(format!(
                "the unit {unit:?} after one that is as short or shorter"
            )));
        }
        longer_units = place + 1;
        total_ms = number
            .parse()
            .ok()
            .and_then(|n: u64| n.checked_mul(UNITS_MS[place].1))
            .and_then(|ms| ms.checked_add(total_ms))
            .ok_or_else(|| wrong("more milliseconds than can be counted".into()))?;
        rest = after.trim_start();
    }
    Ok(total_ms)
}

fn split_where(text: &str, is_end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(is_end).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        for (text, ms) in [
            ("0s", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("30 s", 30_000),
            ("1m30s", 90_000),
            ("1m 30s", 90_000),
            ("90m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
        ] {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_could_be_meant_in_two_ways_is_refused() {
        for (text, complaint) in [
            ("", "nothing"),
            ("  ", "nothing"),
            ("30", "the number 30 without a unit"),
            ("1m30", "the number 30 without a unit"),
            ("s", "'s' where a whole number"),
            ("-1s", "'-' where a whole number"),
            ("1.5h", "the number 1 without a unit"),
            ("1w", "the unknown unit \"w\""),
            ("1min", "the unknown unit \"min\""),
            ("1M", "the unknown unit \"M\""),
            ("30s1m", "the unit \"m\" after"),
            ("1s1s", "the unit \"s\" after"),
            ("99999999999999999999s", "more milliseconds"),
            ("300000000000d", "more milliseconds"),
            ("1s,", "',' where a whole number"),
            ("1д", "the unknown unit \"д\""),
        ] {
            let error = parse_ms(text).unwrap_err();
            assert!(error.starts_with(complaint), "{text}: {error}");
        }
    }
}
