//! The pace: how many jobs to hold beyond the free slots. As many as the handlers finish in a moment, so that short jobs never wait
//! for the database, and long ones are left for others. Pure.

use std::time::{Duration, Instant};

/// So far ahead of the handlers, in time, jobs are claimed…
const AHEAD_LEAST: Duration = Duration::from_millis(50);
/// …or so many times as far as a claim takes, lest the handlers finish one for each claim and no more. With two claims under way and what a
/// third has just brought, there must be room for half as much again…
const AHEAD_CLAIMS: u32 = 4;
/// …but not further.
const AHEAD_MOST: Duration = Duration::from_secs(1);
/// The pace is found within about this time when handlers are faster than was thought: until then a worker holds too few jobs…
const RISES_WITHIN: Duration = Duration::from_millis(10);
/// …though not in one leap: jobs that began together and end together are no pace…
const RISES_FROM: f64 = 1000.0;
/// …and when they are slower. A pause must not be taken for the end.
const FALLS_WITHIN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Pace {
    max: usize,
    finished: u64,
    at: Option<Instant>,
    per_second: f64,
    /// How long a claim takes.
    claim: Duration,
}

impl Pace {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            finished: 0,
            at: None,
            per_second: 0.0,
            claim: Duration::ZERO,
        }
    }

    pub(super) fn claim_took(&mut self, took: Duration) {
        self.claim = (self.claim * 3 + took) / 4;
    }

    /// Whether so many jobs are expected to be over within this time.
    pub(super) fn ends(&self, jobs: usize, within: Duration) -> bool {
        self.per_second * within.as_secs_f64() >= jobs as f64
    }

    /// How many jobs may wait, when so many are finished by now.
    pub(super) fn ahead(&mut self, finished: u64, now: Instant) -> usize {
        let since = self.at.map_or(Duration::ZERO, |at| now.duration_since(at));
        if self.at.is_none() || since >= Duration::from_millis(2) {
            if self.at.is_some() {
                let rate = (finished - self.finished) as f64 / since.as_secs_f64();
                let within = if rate > self.per_second {
                    RISES_WITHIN
                } else {
                    FALLS_WITHIN
                };
                let weight = (since.as_secs_f64() / within.as_secs_f64()).min(1.0);
                let most = (2.0 * self.per_second).max(RISES_FROM);
                self.per_second = (self.per_second + (rate - self.per_second) * weight).min(most);
            }
            self.finished = finished;
            self.at = Some(now);
        }
        let ahead = (self.claim * AHEAD_CLAIMS).clamp(AHEAD_LEAST, AHEAD_MOST);
        ((self.per_second * ahead.as_secs_f64()) as usize).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_follows_the_handlers() {
        let (mut pace, mut now) = (Pace::new(1000), Instant::now());
        assert_eq!(pace.ahead(0, now), 0, "nothing is known yet");
        let mut finished = 0;
        for _ in 0..100 {
            now += Duration::from_millis(5);
            finished += 50;
            pace.ahead(finished, now);
        }
        let fast = pace.ahead(finished, now);
        assert!(
            (470..=510).contains(&fast),
            "10,000 a second for 50 ms: {fast}"
        );
        for _ in 0..100 {
            now += Duration::from_millis(20);
            pace.ahead(finished, now);
        }
        assert_eq!(pace.ahead(finished, now), 0, "nothing finishes any more");
    }

    #[test]
    fn the_pace_has_a_limit() {
        let (mut pace, now) = (Pace::new(1000), Instant::now());
        pace.ahead(0, now);
        for n in 1..20 {
            let ahead = pace.ahead(10_000_000 * n, now + Duration::from_secs(n));
            assert!(ahead <= 1000, "{ahead}");
        }
        assert_eq!(pace.ahead(200_000_000, now + Duration::from_secs(20)), 1000);
    }

    /// A hundred jobs of ten seconds that began together end together.
    #[test]
    fn a_lump_is_no_pace() {
        let (mut pace, now) = (Pace::new(6000), Instant::now());
        pace.ahead(0, now);
        let ms = Duration::from_millis;
        assert_eq!(pace.ahead(0, now + ms(10_000)), 0);
        let most = (2..40)
            .map(|n| pace.ahead(100, now + ms(10_000 + 2 * n)))
            .max();
        assert!(most <= Some(50), "{most:?}");
    }

    #[test]
    fn the_pace_of_a_flood_is_found_soon() {
        let (mut pace, now) = (Pace::new(6000), Instant::now());
        pace.ahead(0, now);
        let found =
            (1..100).find(|n| pace.ahead(400 * n, now + Duration::from_millis(2 * n)) == 6000);
        assert!(found.is_some_and(|n| n <= 15), "after {found:?} times 2 ms");
    }

    /// With a slow way to the database, one slot and quick handlers, one job was finished for each claim, for ever.
    #[test]
    fn the_pace_grows_however_long_a_claim_takes() {
        for took in [5, 50, 300].map(Duration::from_millis) {
            let (mut pace, mut now) = (Pace::new(1000), Instant::now());
            let (mut finished, mut brought) = (0, 0);
            for _ in 0..30 {
                brought = 1 + pace.ahead(finished, now);
                now += took;
                pace.claim_took(took);
                finished += brought as u64;
            }
            assert!(brought > 500, "{brought} with each claim of {took:?}");
        }
    }
}
