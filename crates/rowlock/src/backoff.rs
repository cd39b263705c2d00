//! How long a failed job waits before it is tried again. The database computes the delay (`rowlock.backoff_ms`); this is the
//! policy as a value, and the same arithmetic for those who want to know beforehand. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Invalid;

/// A retry policy: for one job, for a kind, or for a queue.
///
/// ```
/// use std::time::Duration;
/// use rowlock::Backoff;
///
/// let policy = Backoff::exponential(Duration::from_secs(60)).max(Duration::from_secs(3600)).jitter(0.0);
/// assert_eq!(policy.delay(1, 0.5), Duration::from_secs(60));
/// assert_eq!(policy.delay(2, 0.5), Duration::from_secs(120));
/// assert_eq!(policy.delay(9, 0.5), Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Backoff {
    #[serde(flatten)]
    shape: Shape,
    /// No delay is longer.
    max_ms: u64,
    /// By which share of itself a delay is spread to either side.
    jitter: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Shape {
    Exponential { base_ms: u64, factor: f64 },
    Linear { base_ms: u64 },
    Fixed { base_ms: u64 },
    List { ms: Vec<u64> },
}

const YEAR_MS: u64 = 365 * 86_400 * 1000;
const DAY_MS: u64 = 86_400 * 1000;

impl Default for Backoff {
    /// One minute, doubling, at most a day, spread by a tenth.
    fn default() -> Self {
        Self::exponential(Duration::from_secs(60))
    }
}

impl Backoff {
    fn of(shape: Shape) -> Self {
        Self {
            shape,
            max_ms: DAY_MS,
            jitter: 0.1,
        }
    }

    /// `base`, then twice as long each time.
    pub fn exponential(base: Duration) -> Self {
        Self::of(Shape::Exponential {
            base_ms: ms(base),
            factor: 2.0,
        })
    }

    /// `base`, then `base` longer each time.
    pub fn linear(base: Duration) -> Self {
        Self::of(Shape::Linear { base_ms: ms(base) })
    }

    /// Always the same.
    pub fn fixed(delay: Duration) -> Self {
        Self::of(Shape::Fixed { base_ms: ms(delay) })
    }

    /// One after the other; the last one repeats.
    pub fn list(delays: impl IntoIterator<Item = Duration>) -> Self {
        Self::of(Shape::List {
            ms: delays.into_iter().map(ms).collect(),
        })
    }

    /// By how much an exponential backoff grows each time (2 by default). The other shapes do not change.
    #[must_use]
    pub fn factor(mut self, by: f64) -> Self {
        if let Shape::Exponential { factor, .. } = &mut self.shape {
            *factor = by;
        }
        self
    }

    /// The longest delay (a day by default).
    #[must_use]
    pub fn max(mut self, max: Duration) -> Self {
        self.max_ms = ms(max);
        self
    }

    /// By which share of itself a delay is spread to either side, from 0 to 1 (0.1 by default).
    #[must_use]
    pub fn jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// The delay after the given number of failures (1 = the first), for a `luck` in `0.0..1.0` that places it within the jitter.
    pub fn delay(&self, failures: u32, luck: f64) -> Duration {
        let failures = failures.max(1);
        let ms = match &self.shape {
            Shape::Exponential { base_ms, factor } => {
                *base_ms as f64 * factor.powi((failures - 1).min(60) as i32)
            }
            Shape::Linear { base_ms } => *base_ms as f64 * f64::from(failures),
            Shape::Fixed { base_ms } => *base_ms as f64,
            Shape::List { ms } => ms
                .get(failures as usize - 1)
                .or(ms.last())
                .copied()
                .unwrap_or(0) as f64,
        };
        let spread = ms.min(1e15) * (1.0 + self.jitter * (2.0 * luck - 1.0));
        // Ties to even, as the database rounds when it casts to bigint.
        Duration::from_millis(spread.min(self.max_ms as f64).round_ties_even() as u64)
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let out_of_range = |what: &str, value: String, rule: &str| {
            Err(Invalid::new(
                "backoff",
                value,
                format!("is out of range: {what} must be {rule}"),
            ))
        };
        match &self.shape {
            Shape::Exponential { base_ms, .. }
            | Shape::Linear { base_ms }
            | Shape::Fixed { base_ms }
                if *base_ms > YEAR_MS =>
            {
                return out_of_range(
                    "the first delay",
                    format!("{base_ms} ms"),
                    "from 0 to a year",
                );
            }
            Shape::Exponential { factor, .. } if !(1.0..=100.0).contains(factor) => {
                return out_of_range("factor", factor.to_string(), "from 1 to 100");
            }
            Shape::List { ms }
                if ms.is_empty() || ms.len() > 100 || ms.iter().any(|m| *m > YEAR_MS) =>
            {
                let rule = "must be a list of 1 to 100 delays, each from 0 to a year";
                return Err(Invalid::new("backoff", format_args!("{ms:?}"), rule));
            }
            _ => {}
        }
        if self.max_ms > YEAR_MS {
            return out_of_range("max", format!("{} ms", self.max_ms), "from 0 to a year");
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return out_of_range("jitter", self.jitter.to_string(), "from 0 to 1");
        }
        Ok(())
    }
}

fn ms(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_backoff() -> impl Strategy<Value = Backoff> {
        let shape = prop_oneof![
            (0..YEAR_MS, 1.0..100.0f64)
                .prop_map(|(base_ms, factor)| Shape::Exponential { base_ms, factor }),
            (0..YEAR_MS).prop_map(|base_ms| Shape::Linear { base_ms }),
            (0..YEAR_MS).prop_map(|base_ms| Shape::Fixed { base_ms }),
            proptest::collection::vec(0..YEAR_MS, 1..8).prop_map(|ms| Shape::List { ms }),
        ];
        (shape, 0..YEAR_MS, 0.0..=1.0f64).prop_map(|(shape, max_ms, jitter)| Backoff {
            shape,
            max_ms,
            jitter,
        })
    }

    proptest! {
        #[test]
        fn never_above_the_cap_and_never_shrinking(b in any_backoff(), n in 1u32..2000) {
            let steady = b.clone().jitter(0.0);
            prop_assert!(b.delay(n, 0.999) <= Duration::from_millis(b.max_ms));
            if !matches!(b.shape, Shape::List { .. }) {
                prop_assert!(steady.delay(n, 0.5) <= steady.delay(n + 1, 0.5));
            }
        }

        #[test]
        fn jitter_stays_within_its_share(b in any_backoff(), n in 1u32..100, luck in 0.0..1.0f64) {
            let middle = b.clone().jitter(0.0).max(Duration::from_millis(YEAR_MS)).delay(n, 0.5).as_millis() as f64;
            let spread = b.clone().max(Duration::from_millis(YEAR_MS)).delay(n, luck).as_millis() as f64;
            if middle < YEAR_MS as f64 {
                prop_assert!(spread >= (middle * (1.0 - b.jitter)).floor() - 1.0);
                prop_assert!(spread <= (middle * (1.0 + b.jitter)).ceil() + 1.0);
            }
        }

        #[test]
        fn survives_json(b in any_backoff()) {
            let back: Backoff = serde_json::from_str(&serde_json::to_string(&b).unwrap()).unwrap();
            prop_assert_eq!(b.delay(3, 0.3), back.delay(3, 0.3));
        }
    }

    #[test]
    fn the_default_is_one_minute_doubling() {
        let b = Backoff::default().jitter(0.0);
        let minutes: Vec<u64> = (1..=5).map(|n| b.delay(n, 0.5).as_secs() / 60).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16]);
    }

    #[test]
    fn absurd_policies_are_refused() {
        assert!(Backoff::list([]).check().is_err());
        assert!(Backoff::default().jitter(1.5).check().is_err());
        assert!(Backoff::default().factor(f64::NAN).check().is_err());
        assert!(Backoff::default().max(Duration::MAX).check().is_err());
        assert!(Backoff::fixed(Duration::from_secs(1)).check().is_ok());
    }
}
