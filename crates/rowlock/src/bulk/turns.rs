//! Loads of one client take turns (not those of claims, which are the database's) where the server is on the same machine: more COPYs at once than it has cores are slower together than one
//! after the other. Carries nothing: who gets no turn in time goes on without.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a load waits for its turn, once. Those before it may wait for their own jobs, and for longer than that.
const WAIT_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Turns {
    free: Arc<Semaphore>,
    wait_max: Duration,
}

/// A load's turn, until it is dropped.
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
}

impl Turns {
    pub(crate) fn new() -> Self {
        // One COPY alone leaves a core idle while it waits for the disk or its client.
        let cores = available_parallelism().map_or(2, NonZero::get).max(2);
        Self::of(cores, WAIT_MAX)
    }

    fn of(at_once: usize, wait_max: Duration) -> Self {
        Self {
            free: Arc::new(Semaphore::new(at_once)),
            wait_max,
        }
    }

    /// Waits for a turn, first come first served, but not for ever.
    pub(super) async fn take(&self) -> Option<Turn> {
        let turn = timeout(self.wait_max, self.free.clone().acquire_owned()).await;
        let permit = turn.ok()?.ok()?;
        Some(Turn { _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_third_waits_for_one_of_two() {
        let turns = Turns::of(2, Duration::from_secs(3600));
        let first = turns.take().await.expect("a turn is free");
        let _second = turns.take().await.expect("a turn is free");
        let mut third = Box::pin(turns.take());
        let waits = (&mut third).now_or_never().is_none();
        assert!(waits, "there are turns for two only");
        drop(first);
        let third = third.now_or_never().expect("one was given back");
        assert!(third.is_some(), "and it went to the one who waited");
    }

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let turns = Turns::of(1, Duration::ZERO);
        let first = turns.take().await.expect("a turn is free");
        assert!(turns.take().await.is_none(), "no turn was given back");
        drop(first);
        assert!(turns.take().await.is_some(), "who gave up waits no more");
    }
}
