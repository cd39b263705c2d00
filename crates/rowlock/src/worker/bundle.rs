//! Bundles: in a flood of short jobs those that came with one claim share one lease, until all of them are over (`sql/functions/04_bundle.sql`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use std::time::{Duration, Instant};

use super::core::lock;

/// Jobs that are not over by then get leases of their own, like any other: whoever looks at them sees them run.
pub(super) const OVER_WITHIN: Duration = Duration::from_secs(1);
/// Bundles are asked for when all that is held is expected to be over within this time…
pub(super) const QUICK: Duration = Duration::from_millis(500);
/// …when a claim wants so many jobs at least…
const LEAST: usize = 20;
/// …and the claims before it have brought so many.
pub(super) const MANY: usize = 20;
/// Most jobs in one: the database makes no larger ones, and no claim asks for more.
pub(super) const MOST: usize = 2700;
/// After a claim that brought none it takes so long until the next is asked for, and twice as long each time. Not long at first: a few rows that somebody had locked are enough, and the
/// claim in between takes those…
const AGAIN_FIRST: Duration = Duration::from_millis(5);
/// …up to this.
const AGAIN_MOST: Duration = Duration::from_secs(10);

/// One lease for the jobs of a claim.
#[derive(Debug)]
pub(crate) struct Bundle {
    token: i64,
    /// How many of them are neither over nor have a lease of their own.
    open: AtomicUsize,
}

impl Bundle {
    pub(super) fn new(token: i64, jobs: usize) -> Self {
        Self {
            token,
            open: AtomicUsize::new(jobs),
        }
    }

    /// One of its jobs needs it no more. Returns its token if that was the last.
    pub(super) fn leave(&self) -> Option<i64> {
        (self.open.fetch_sub(1, AcqRel) == 1).then_some(self.token)
    }
}

/// Bundles that no job needs any more, until the database has been told. Should it never be, their leases run out.
#[derive(Default)]
pub(super) struct Closed(Mutex<Vec<i64>>);

impl Closed {
    pub(super) fn add(&self, tokens: impl IntoIterator<Item = i64>) {
        lock(&self.0).extend(tokens);
    }

    pub(super) fn take(&self) -> Vec<i64> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// Whether to ask for bundles: not where they are known not to be had (the queue keeps a history, or its jobs are not like most). Pure.
#[derive(Debug)]
pub(super) struct Bundling {
    not_before: Option<Instant>,
    again: Duration,
}

impl Bundling {
    pub(super) fn new() -> Self {
        Self {
            not_before: None,
            again: AGAIN_FIRST,
        }
    }

    pub(super) fn is_worth_a_try(&self, want: usize, now: Instant) -> bool {
        want >= LEAST && self.not_before.is_none_or(|at| now >= at)
    }

    /// A claim has asked for one, which was to be had, or would have been if there were more jobs.
    pub(super) fn asked(&mut self, to_be_had: bool, now: Instant) {
        if to_be_had {
            *self = Self::new();
        } else {
            self.not_before = Some(now + self.again);
            self.again = (self.again * 2).min(AGAIN_MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_leave_closes_the_bundle() {
        let bundle = Bundle::new(7, 3);
        assert_eq!(bundle.leave(), None);
        assert_eq!(bundle.leave(), None);
        assert_eq!(bundle.leave(), Some(7));
    }

    #[test]
    fn where_there_are_none_they_are_asked_for_ever_more_rarely() {
        let (mut bundling, mut now) = (Bundling::new(), Instant::now());
        assert!(bundling.is_worth_a_try(LEAST, now));
        assert!(!bundling.is_worth_a_try(LEAST - 1, now), "too few for one");
        let mut tries = 0;
        for _ in 0..60_000 {
            if bundling.is_worth_a_try(1000, now) {
                tries += 1;
                bundling.asked(false, now);
            }
            now += Duration::from_millis(1);
        }
        assert!((14..=18).contains(&tries), "{tries} tries in a minute");
        bundling.asked(true, now);
        assert!(bundling.is_worth_a_try(1000, now));
    }
}
