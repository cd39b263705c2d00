//! Rings: whether the bell rings so often that it may do more harm than good. Pure.
//!
//! A commit that rings holds NOTIFY's lock until it is durable, and others wait for it: at some thousands in a second that is all they do,
//! and at some hundreds where the disk is slow.

use std::time::{Duration, Instant};

/// Over this long rings are counted.
const WITHIN: Duration = Duration::from_millis(100);
/// So many are some…
const SOME: u64 = 10;
/// …and so many are too many on any disk.
const MUCH: u64 = 50;

/// How loud it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noise {
    Little,
    /// It is worth asking whether commits wait for each other.
    Some,
    Much,
}

/// How often it rang lately.
#[derive(Debug, Default)]
pub(super) struct Rings {
    since: Option<Instant>,
    before: u64,
}

impl Rings {
    /// It has rung so many times in all: how loud is it?
    pub(super) fn noise(&mut self, rings: u64, now: Instant) -> Noise {
        if self.since.is_none_or(|at| now.duration_since(at) > WITHIN) {
            self.heeded(rings, now);
        }
        match rings - self.before {
            MUCH.. => Noise::Much,
            SOME.. => Noise::Some,
            _ => Noise::Little,
        }
    }

    /// Something is done about it: counts anew.
    pub(super) fn heeded(&mut self, rings: u64, now: Instant) {
        self.since = Some(now);
        self.before = rings;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_loud_above_some_hundreds_in_a_second() {
        for (per_second, most) in [
            (50_u32, Noise::Little),
            (200, Noise::Some),
            (400, Noise::Some),
            (700, Noise::Much),
            (5000, Noise::Much),
        ] {
            let (mut rings, began) = (Rings::default(), Instant::now());
            let mut loudest = 0;
            for n in 0..2 * per_second {
                let now = began + Duration::from_secs_f64(f64::from(n) / f64::from(per_second));
                loudest = loudest.max(rings.noise(u64::from(n), now) as u8);
            }
            assert_eq!(loudest, most as u8, "{per_second} a second");
        }
    }

    #[test]
    fn what_was_long_ago_does_not_count() {
        let (mut rings, mut now) = (Rings::default(), Instant::now());
        assert_eq!(rings.noise(10, now), Noise::Little);
        now += Duration::from_secs(10);
        assert_eq!(rings.noise(1000, now), Noise::Little, "nobody knows when");
        assert_eq!(rings.noise(1000 + MUCH, now), Noise::Much);
        assert_eq!(
            rings.noise(1000 + MUCH, now),
            Noise::Much,
            "nothing is done"
        );
        rings.heeded(1000 + MUCH, now);
        assert_eq!(rings.noise(1000 + MUCH, now), Noise::Little);
    }
}
