//! Durations as people write them.

use std::time::Duration;

/// `15s`, `2m`, `1h30m`, or seconds as a bare number.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let span: jiff::SignedDuration = text
        .parse()
        .map_err(|_| format!("{text:?} is no time: say 15s, 2m or 1h30m"))?;
    span.try_into().map_err(|_| format!("{text:?} is negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("90"), Ok(Duration::from_secs(90)));
        assert!(parse("soon").is_err());
        assert!(parse("-5s").is_err());
    }
}
