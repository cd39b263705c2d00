//! Rings: whether the bell rings so often that it does more harm than good. Pure.
//!
//! A commit that rings holds NOTIFY's lock until it is durable, and others wait for it: at some thousands in a second that is all they do.

use std::time::{Duration, Instant};

/// So many rings…
const MANY: u64 = 50;
/// …within this long are too many.
const WITHIN: Duration = Duration::from_millis(100);

/// How often it rang lately.
#[derive(Debug, Default)]
pub(super) struct Rings {
    since: Option<Instant>,
    before: u64,
}

impl Rings {
    /// It has rung so many times in all. Returns whether those of the last moment are too many, and if so, starts again.
    pub(super) fn too_many(&mut self, rings: u64, now: Instant) -> bool {
        let many = rings - self.before >= MANY;
        let moment = self
            .since
            .is_some_and(|at| now.duration_since(at) <= WITHIN);
        if many || !moment {
            self.since = Some(now);
            self.before = rings;
        }
        many && moment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_too_loud_above_some_hundreds_in_a_second() {
        for (per_second, loud) in [(100_u32, false), (400, false), (700, true), (5000, true)] {
            let (mut rings, began) = (Rings::default(), Instant::now());
            let mut heard = 0;
            for n in 0..2 * per_second {
                let now = began + Duration::from_secs_f64(f64::from(n) / f64::from(per_second));
                heard += u32::from(rings.too_many(u64::from(n), now));
            }
            assert_eq!(heard > 0, loud, "{per_second} a second: {heard}");
        }
    }

    #[test]
    fn what_was_long_ago_does_not_count() {
        let (mut rings, mut now) = (Rings::default(), Instant::now());
        assert!(!rings.too_many(10, now));
        now += Duration::from_secs(10);
        assert!(!rings.too_many(1000, now), "nobody knows when those were");
        assert!(rings.too_many(1000 + MANY, now));
        assert!(!rings.too_many(1000 + MANY, now), "it starts again");
    }
}
