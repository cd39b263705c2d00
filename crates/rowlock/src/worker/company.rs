//! Company: who else claims jobs of the same queues, as far as a worker can see. Pure: it is told the time.

use std::time::{Duration, Instant};

/// A worker is alone if no other has claimed jobs of its queues within this time.
const ALONE_FOR: Duration = Duration::from_secs(1);
/// Workers are told apart by the last three bits of their ids.
const NUMBERS: usize = 8;

/// Others who claim, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Company {
    /// When this worker last claimed some,
    claimed: Option<Instant>,
    /// and when it saw that another had done so in between, by the number of that one.
    seen: [Option<Instant>; NUMBERS],
}

impl Company {
    /// A claim brought so many jobs; `other`: the number of the worker whose the last one before it was, if that is another.
    pub(super) fn claimed(&mut self, jobs: usize, other: Option<u8>, now: Instant) {
        // Who claimed long after this worker did, or before it began, may be gone.
        if let Some(other) = other.filter(|_| lately(self.claimed, now)) {
            self.seen[usize::from(other) % NUMBERS] = Some(now);
        }
        if jobs > 0 {
            self.claimed = Some(now);
        }
    }

    pub(super) fn is_alone(&self, now: Instant) -> bool {
        !self.seen.iter().any(|at| lately(*at, now))
    }

    /// Whether this worker has the lowest number of all, and so does often what the others need do only rarely. Two may both have it.
    pub(super) fn is_first(&self, worker: i64, now: Instant) -> bool {
        let own = usize::try_from(worker.rem_euclid(NUMBERS as i64)).unwrap_or(0);
        !self.seen[..own].iter().any(|at| lately(*at, now))
    }
}

fn lately(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.duration_since(at) < ALONE_FOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_claims_between_two_of_ours_is_company_for_a_while() {
        let (mut company, mut now) = (Company::default(), Instant::now());
        assert!(company.is_alone(now));
        company.claimed(1000, Some(3), now);
        assert!(company.is_alone(now), "that one may have stopped long ago");
        company.claimed(1000, None, now);
        assert!(company.is_alone(now));
        company.claimed(1000, Some(3), now);
        assert!(!company.is_alone(now));
        now += ALONE_FOR / 2;
        company.claimed(1000, None, now);
        assert!(!company.is_alone(now), "it may be slower");
        now += ALONE_FOR / 2;
        assert!(company.is_alone(now));
        now += ALONE_FOR;
        company.claimed(1000, Some(3), now);
        assert!(company.is_alone(now), "after a pause, as in the beginning");
    }

    #[test]
    fn the_one_with_the_lowest_number_is_first_while_it_is_there() {
        let (mut company, mut now) = (Company::default(), Instant::now());
        assert!(company.is_first(13, now));
        company.claimed(1000, None, now);
        company.claimed(1000, Some(6), now);
        assert!(company.is_first(13, now), "five goes before six");
        company.claimed(1000, Some(2), now);
        assert!(!company.is_first(13, now));
        assert!(company.is_first(8, now), "nobody goes before nought");
        assert!(!company.is_first(-1, now));
        now += ALONE_FOR;
        company.claimed(1000, Some(6), now);
        assert!(company.is_first(13, now), "it may have stopped");
    }
}
