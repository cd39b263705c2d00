//! Times on the command line: how long ago, or exactly when.

use std::time::Duration;

use jiff::{SpanRelativeTo, Timestamp, civil, tz::TimeZone};

/// `30s`, `15m`, `2h`, `3d`, `1w`, `3 days`, or seconds as a bare number. A day is 24 hours.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.trim().parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let wrong = || format!("{text:?} is no span of time: say 30s, 15m, 2h, 3d or '3 days'");
    let span: jiff::Span = text.trim().parse().map_err(|_| wrong())?;
    let span = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| wrong())?;
    span.try_into().map_err(|_| format!("{text:?} is negative"))
}

/// A moment as somebody says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    Ago(Duration),
    At(Timestamp),
}

/// A span (`2h`: two hours ago), or a time (`2030-01-31`, `2030-01-31T12:00`, in UTC unless it says otherwise).
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    let text = text.trim();
    if let Ok(ago) = span(text) {
        return Ok(Moment::Ago(ago));
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(Moment::At(at));
    }
    let civil = text
        .parse::<civil::DateTime>()
        .or_else(|_| text.parse::<civil::Date>().map(|d| d.at(0, 0, 0, 0)));
    match civil.and_then(|at| at.to_zoned(TimeZone::UTC)) {
        Ok(at) => Ok(Moment::At(at.timestamp())),
        Err(_) => Err(format!(
            "{text:?} is no time: say how long ago (2h, 3d), or when (2030-01-31, 2030-01-31T12:00, in UTC)"
        )),
    }
}

impl Moment {
    /// The moment, seen from now.
    pub(crate) fn from(self, now: Timestamp) -> anyhow::Result<Timestamp> {
        match self {
            Self::At(at) => Ok(at),
            Self::Ago(ago) => before(now, ago),
        }
    }
}

/// So long before now.
pub(crate) fn before(now: Timestamp, ago: Duration) -> anyhow::Result<Timestamp> {
    now.checked_sub(ago)
        .map_err(|_| anyhow::anyhow!("{ago:?} ago is before all time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        let day = Duration::from_secs(86_400);
        for (text, wanted) in [
            ("90", Duration::from_secs(90)),
            ("15m", Duration::from_secs(900)),
            ("3d", 3 * day),
            ("3 days", 3 * day),
            ("1w", 7 * day),
            ("1h 30m", Duration::from_secs(5400)),
            ("250ms", Duration::from_millis(250)),
        ] {
            assert_eq!(span(text), Ok(wanted), "{text}");
        }
        for bad in ["", "soon", "-5s", "1mo"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments() {
        let at = |t: &str| Ok(Moment::At(t.parse().unwrap()));
        assert_eq!(moment("2h"), Ok(Moment::Ago(Duration::from_secs(7200))));
        assert_eq!(moment("2030-01-31"), at("2030-01-31T00:00:00Z"));
        assert_eq!(moment("2030-01-31 12:30"), at("2030-01-31T12:30:00Z"));
        assert_eq!(moment("2030-01-31T12:30+02:00"), at("2030-01-31T10:30:00Z"));
        assert!(moment("yesterday").is_err());
    }
}
