//! The connection of the full scans, which claims may use while those rest, and whether they need it. One statement at a time: whoever waits for it never waits for
//! more than one statement of somebody else.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::db::Link;

/// A worker is alone if no other has claimed jobs of its queues within this time.
const ALONE_FOR: Duration = Duration::from_secs(1);

/// A connection that is lent out.
#[derive(Debug, Clone)]
pub(super) struct Spare(Arc<Mutex<Link>>);

/// It, for as long as this lives.
#[derive(Debug)]
pub(super) struct SpareLink(OwnedMutexGuard<Link>);

impl Spare {
    pub(super) fn new(link: Link) -> Self {
        Self(Arc::new(Mutex::new(link)))
    }

    /// Waits until nobody else uses it. First come, first served.
    pub(super) async fn wait(&self) -> SpareLink {
        SpareLink(self.0.clone().lock_owned().await)
    }

    /// Takes it, if nobody uses it or waits for it, and it is connected.
    pub(super) fn take(&self) -> Option<SpareLink> {
        let link = self.0.clone().try_lock_owned().ok()?;
        link.is_up().then_some(SpareLink(link))
    }
}

impl Deref for SpareLink {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.0
    }
}

/// Whether other workers claim jobs of the same queues. Pure: it is told the time.
#[derive(Debug, Default)]
pub(super) struct Company {
    /// When this worker last claimed some,
    claimed: Option<Instant>,
    /// and when it saw that another had done so in between.
    seen: Option<Instant>,
}

impl Company {
    /// A claim brought so many jobs; `others`: the last one before it was another worker's.
    pub(super) fn claimed(&mut self, jobs: usize, others: bool, now: Instant) {
        // Who claimed long after this worker did, or before it began, may be gone.
        if others && lately(self.claimed, now) {
            self.seen = Some(now);
        }
        if jobs > 0 {
            self.claimed = Some(now);
        }
    }

    pub(super) fn is_alone(&self, now: Instant) -> bool {
        !lately(self.seen, now)
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
        company.claimed(1000, true, now);
        assert!(company.is_alone(now), "that one may have stopped long ago");
        company.claimed(1000, false, now);
        assert!(company.is_alone(now));
        company.claimed(1000, true, now);
        assert!(!company.is_alone(now));
        now += ALONE_FOR / 2;
        company.claimed(1000, false, now);
        assert!(!company.is_alone(now), "it may be slower");
        now += ALONE_FOR / 2;
        assert!(company.is_alone(now));
        now += ALONE_FOR;
        company.claimed(1000, true, now);
        assert!(company.is_alone(now), "after a pause, as in the beginning");
    }
}
