//! Waiting times, in an HDR histogram.

use hdrhistogram::Histogram;

use super::figures::Figures;

/// At these shares of all values.
const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 100.0];

/// What was waited for, and the names of its figures.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    Start,
    Done,
    Claim,
}

impl Until {
    fn names(self) -> [&'static str; 5] {
        match self {
            Self::Start => [
                "start_p50_ms",
                "start_p90_ms",
                "start_p99_ms",
                "start_p999_ms",
                "start_max_ms",
            ],
            Self::Done => [
                "done_p50_ms",
                "done_p90_ms",
                "done_p99_ms",
                "done_p999_ms",
                "done_max_ms",
            ],
            Self::Claim => [
                "claim_p50_ms",
                "claim_p90_ms",
                "claim_p99_ms",
                "claim_p999_ms",
                "claim_max_ms",
            ],
        }
    }
}

/// Waiting times, exact to three digits.
pub(super) struct Waits(Histogram<u64>);

impl Waits {
    pub(super) fn new() -> Self {
        let histogram =
            Histogram::new(3).unwrap_or_else(|e| unreachable!("three digits are allowed: {e}"));
        Self(histogram)
    }

    pub(super) fn add_us(&mut self, us: u64) {
        // It grows as it must; only a value beyond all time would not fit.
        let _ = self.0.record(us);
    }

    pub(super) fn figures(&self, until: Until) -> Figures {
        if self.0.is_empty() {
            return Figures::new();
        }
        let at = |p| self.0.value_at_percentile(p) as f64 / 1000.0;
        until.names().into_iter().zip(PERCENTILES.map(at)).collect()
    }
}

impl FromIterator<u64> for Waits {
    /// Of microseconds.
    fn from_iter<I: IntoIterator<Item = u64>>(all: I) -> Self {
        let mut waits = Self::new();
        all.into_iter().for_each(|us| waits.add_us(us));
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_in_milliseconds() {
        let waits: Waits = (1..=1000).map(|n| n * 1000).collect();
        let figures = waits.figures(Until::Start);
        for (name, wanted) in [
            ("start_p50_ms", 500.0),
            ("start_p90_ms", 900.0),
            ("start_p99_ms", 990.0),
            ("start_p999_ms", 999.0),
            ("start_max_ms", 1000.0),
        ] {
            let error = (figures[name] - wanted).abs() / wanted;
            assert!(error < 0.002, "{name}: {}", figures[name]);
        }
        assert!(Waits::new().figures(Until::Done).is_empty());
    }
}
