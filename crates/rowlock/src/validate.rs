//! The rules for values, in the same words as the SQL functions: bad input is refused here before it travels, and there in any
//! case. Pure.

use std::time::Duration;

use jiff::Timestamp;

use crate::error::Invalid;

/// Longest name of a queue, kind or tag, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 200;
/// Largest payload by default, in bytes of JSON text; a queue may set another limit.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Most tags on a job.
pub(crate) const TAGS_MAX: usize = 32;
/// Largest metadata of a job, in bytes of JSON text.
pub(crate) const METADATA_BYTES_MAX: usize = 64 * 1024;
/// Lowest and highest priority; higher runs first.
pub(crate) const PRIORITY_RANGE: std::ops::RangeInclusive<i32> = -4..=4;
/// Most attempts that a job can have.
pub(crate) const MAX_ATTEMPTS_MAX: u16 = 1000;
/// Longest time limit of one attempt.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Longest unique key, in bytes.
pub(crate) const UNIQUE_KEY_BYTES_MAX: usize = 500;
/// Longest trace context, in bytes.
pub(crate) const TRACE_BYTES_MAX: usize = 200;

/// The years 2000 to 2999.
const RUN_AT_RANGE_S: std::ops::Range<i64> = 946_684_800..32_503_593_600;

pub(crate) fn name(what: &'static str, value: &str) -> Result<(), Invalid> {
    if value.is_empty() {
        return Err(Invalid::new(
            what,
            value,
            "is empty: it needs 1 to 200 bytes",
        ));
    }
    if value.len() > NAME_BYTES_MAX {
        return Err(Invalid::new(
            what,
            value,
            format!("has {} bytes: at most 200 are allowed", value.len()),
        ));
    }
    if value.chars().any(char::is_control) {
        return Err(Invalid::new(
            what,
            value,
            "has a control character: only printable text is allowed",
        ));
    }
    Ok(())
}

pub(crate) fn priority(value: i32) -> Result<(), Invalid> {
    if PRIORITY_RANGE.contains(&value) {
        Ok(())
    } else {
        Err(Invalid::new(
            "priority",
            value,
            "is out of range: it must be from -4 to 4",
        ))
    }
}

pub(crate) fn run_at(what: &'static str, value: Timestamp) -> Result<(), Invalid> {
    if RUN_AT_RANGE_S.contains(&value.as_second()) {
        Ok(())
    } else {
        Err(Invalid::new(
            what,
            value,
            "is out of range: it must lie between the years 2000 and 2999",
        ))
    }
}

pub(crate) fn delay(value: Duration) -> Result<(), Invalid> {
    if value > Duration::from_secs(900 * 365 * 86_400) {
        return Err(Invalid::new(
            "delay",
            format_args!("{value:?}"),
            "is too long: run_at must lie before the year 3000",
        ));
    }
    Ok(())
}

pub(crate) fn max_attempts(value: u16) -> Result<(), Invalid> {
    if (1..=MAX_ATTEMPTS_MAX).contains(&value) {
        Ok(())
    } else {
        Err(Invalid::new(
            "max_attempts",
            value,
            "must be a whole number from 1 to 1000",
        ))
    }
}

pub(crate) fn timeout(value: Duration) -> Result<(), Invalid> {
    if value < Duration::from_millis(1) || value > TIMEOUT_MAX {
        return Err(Invalid::new(
            "timeout",
            format_args!("{value:?}"),
            "must be from 1 ms to 30 days",
        ));
    }
    Ok(())
}

pub(crate) fn tags(values: &[String]) -> Result<(), Invalid> {
    if values.len() > TAGS_MAX {
        let rule = format!(
            "has {} entries: at most {TAGS_MAX} are allowed",
            values.len()
        );
        return Err(Invalid::new(
            "tags",
            values.first().map_or("", String::as_str),
            rule,
        ));
    }
    values.iter().try_for_each(|t| name("tag", t))
}

pub(crate) fn unique_key(value: &str) -> Result<(), Invalid> {
    if (1..=UNIQUE_KEY_BYTES_MAX).contains(&value.len()) && !value.contains('\0') {
        Ok(())
    } else {
        Err(Invalid::new(
            "unique_key",
            value,
            "must be a text of 1 to 500 bytes",
        ))
    }
}

pub(crate) fn trace(value: &str) -> Result<(), Invalid> {
    if value.len() <= TRACE_BYTES_MAX && !value.contains('\0') {
        Ok(())
    } else {
        Err(Invalid::new(
            "trace",
            value,
            "must be a text of at most 200 bytes",
        ))
    }
}

/// A payload (or metadata): an object, within the limit, without the NUL character that Postgres cannot store.
pub(crate) fn json_object(what: &'static str, text: &str, max_bytes: usize) -> Result<(), Invalid> {
    if !text.starts_with('{') {
        let kind = match text.as_bytes().first() {
            Some(b'[') => "array",
            Some(b'"') => "string",
            Some(b't' | b'f') => "boolean",
            Some(b'n') => "null",
            _ => "number",
        };
        return Err(Invalid::new(what, kind, "is not a JSON object"));
    }
    size(what, text, max_bytes)?;
    no_nul(what, text)
}

/// That JSON is within a limit, as Postgres gives it back.
pub(crate) fn size(what: &'static str, json: &str, max_bytes: usize) -> Result<(), Invalid> {
    // Most is so small that not even a number at every place of it could make it too large.
    if json.len().saturating_mul(WRITTEN_OUT_MAX) <= max_bytes {
        return Ok(());
    }
    let bytes = written_out(json);
    if bytes <= max_bytes {
        return Ok(());
    }
    let rule = format!("is too large: at most {max_bytes} bytes are allowed here");
    Err(Invalid::new(what, format_args!("{bytes} bytes"), rule))
}

/// Whether JSON is far longer when its numbers are written out, so that what is stored of it says nothing of that.
pub(crate) fn is_inflated(json: &str) -> bool {
    json.len().saturating_mul(WRITTEN_OUT_MAX) > INFLATED
        && written_out(json) > json.len().saturating_add(INFLATED)
}

/// What the database may be off by at the most, in bytes.
const INFLATED: usize = 64 * 1024;

/// By how much a text grows at most when its numbers are written out: `1e131071`, the largest that Postgres takes, in as many digits, is 16,385 times as long.
const WRITTEN_OUT_MAX: usize = 20_000;

/// How many bytes of text this JSON is, or a few less, when its numbers are written out: Postgres keeps `1e9` as 1000000000. Ten thousand numbers of
/// eight characters can be more than it is able to give back, and so more than any claim of that job.
fn written_out(json: &str) -> usize {
    let bytes = json.as_bytes();
    let (mut extra, mut at) = (0usize, 0);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = end_of_string(bytes, at),
            // `true` and `false` have no digit before it.
            b'e' | b'E' if at >= 2 && bytes[at - 2].is_ascii_digit() => {
                let exponent = &json[at..];
                let digits = exponent.trim_start_matches(['+', '-']);
                let digits = &digits[..digits.bytes().take_while(u8::is_ascii_digit).count()];
                // What is no number any more is more than Postgres takes, too.
                extra = extra.saturating_add(digits.parse().unwrap_or(usize::MAX));
            }
            _ => {}
        }
    }
    bytes.len().saturating_add(extra)
}

/// The place behind a string that begins before this one.
fn end_of_string(json: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => return at,
            b'\\' => at += 1,
            _ => {}
        }
    }
    at
}

/// Refuses the escape `\u0000`, which JSON allows and Postgres does not.
pub(crate) fn no_nul(what: &'static str, json: &str) -> Result<(), Invalid> {
    let mut rest = json;
    while let Some(at) = rest.find("\\u0000") {
        // An escaped backslash before it makes it six ordinary characters.
        let backslashes = rest[..at].bytes().rev().take_while(|b| *b == b'\\').count();
        if backslashes % 2 == 0 {
            return Err(Invalid::new(
                what,
                "\\u0000",
                "holds a NUL character, which Postgres cannot store",
            ));
        }
        rest = &rest[at + 6..];
    }
    Ok(())
}

/// Makes any text storable: no NUL, and not endless. For error texts, which must never fail an acknowledgement.
pub(crate) fn storable(text: &str) -> String {
    // With the note at its end below what the database would cut again.
    const BYTES_MAX: usize = 16 * 1024 - 64;
    let cut = |text: &str| {
        let mut end = text.len().min(BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        end
    };
    let whole = cut(text) == text.len();
    let mut out = text[..cut(text)].replace('\0', "\u{fffd}");
    let end = cut(&out);
    if !whole || end < out.len() {
        out.truncate(end);
        out.push_str(&format!(" [cut: {} bytes]", text.len()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_nul_escape_is_found_and_an_escaped_backslash_is_not_taken_for_one() {
        assert!(no_nul("payload", r#"{"a":"\u0000"}"#).is_err());
        assert!(no_nul("payload", r#"{"a":"\\\u0000"}"#).is_err());
        assert!(no_nul("payload", r#"{"a":"\\u0000"}"#).is_ok());
        assert!(no_nul("payload", r#"{"a":"\\u0000 \u0000"}"#).is_err());
    }

    #[test]
    fn names_at_the_limit() {
        assert!(name("kind", &"k".repeat(200)).is_ok());
        assert!(name("kind", &"k".repeat(201)).is_err());
        assert!(name("kind", "").is_err());
        assert!(name("kind", "a\u{7}b").is_err());
        assert!(name("kind", "größe/2.0").is_ok());
    }

    #[test]
    fn times_outside_of_the_range_are_refused() {
        for (text, ok) in [
            ("1999-12-31T23:59:59Z", false),
            ("2000-01-01T00:00:00Z", true),
            ("2999-12-30T00:00:00Z", true),
            ("3000-01-01T00:00:00Z", false),
        ] {
            assert_eq!(
                run_at("run_at", text.parse().unwrap()).is_ok(),
                ok,
                "{text}"
            );
        }
    }

    #[test]
    fn numbers_count_as_they_are_written_out() {
        for (json, extra) in [
            (r#"{"n":1e9}"#, 9),
            (r#"{"n":[1.5E+20,-2e-7]}"#, 27),
            (r#"{"1e9":"2e9\\\"3e9","yes":true,"no":false,"e":7}"#, 0),
            (r#"{"s":"\\\\","n":1e9}"#, 9),
        ] {
            assert_eq!(written_out(json), json.len() + extra, "{json}");
        }
        let bomb = format!(r#"{{"n":[{}1]}}"#, "1e131071,".repeat(9_000));
        let refused = size("payload", &bomb, 256 * 1024 * 1024).unwrap_err();
        assert_eq!(refused.what, "payload");
        assert!(size("payload", r#"{"n":1e99999999999999999999}"#, 100_000).is_err());
    }

    #[test]
    fn what_is_not_looked_through_is_small_enough_whatever_is_in_it() {
        let worst = "1e131071";
        assert!(written_out(worst) <= worst.len() * WRITTEN_OUT_MAX);
    }

    proptest! {
        /// Strings hold what they like.
        #[test]
        fn what_looks_like_a_number_in_a_string_is_none(s in "[0-9eE+\"\\\\-]{0,20}") {
            let json = serde_json::json!({ (&s): s }).to_string();
            prop_assert_eq!(written_out(&json), json.len());
        }

        /// Whatever serde writes with a NUL in it is refused, and nothing else is.
        #[test]
        fn nul_is_refused_exactly_when_it_is_there(s in "[\\x00\\\\u0a\"]{0,12}") {
            let json = serde_json::json!({ "s": s }).to_string();
            prop_assert_eq!(no_nul("payload", &json).is_err(), s.contains('\0'));
        }

        #[test]
        fn storable_text_has_no_nul_and_is_short(s in any::<String>(), n in 1usize..4000) {
            let long = s.repeat(n % 50 + 1);
            let out = storable(&long);
            prop_assert!(!out.contains('\0'));
            prop_assert!(out.len() <= 16 * 1024);
        }
    }
}
