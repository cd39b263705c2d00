//! `Retry-After`: seconds, or a date. Pure.

use std::time::{Duration, SystemTime};

/// No endpoint puts a job off for longer than this.
const MAX: Duration = Duration::from_secs(86_400);

/// How long to wait, if the header says so in a way that can be understood.
pub(super) fn retry_after(header: &str, now: SystemTime) -> Option<Duration> {
    let header = header.trim();
    let wait = match header.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = httpdate::parse_http_date(header).ok()?;
            // A date that has passed means now.
            at.duration_since(now).unwrap_or_default()
        }
    };
    Some(wait.min(MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_dates_and_nonsense() {
        let now = httpdate::parse_http_date("Wed, 21 Oct 2015 07:28:00 GMT").unwrap();
        for (header, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Wed, 21 Oct 2015 07:29:00 GMT", Some(60)),
            ("Wed, 21 Oct 2015 07:00:00 GMT", Some(0)),
            ("9999999999", Some(86_400)),
            ("soon", None),
            ("-5", None),
        ] {
            assert_eq!(
                retry_after(header, now),
                seconds.map(Duration::from_secs),
                "{header}"
            );
        }
    }
}
