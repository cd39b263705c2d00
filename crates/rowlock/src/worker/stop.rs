//! Shutdown: soft (finish what runs), then hard after the grace period (give jobs back without costing an attempt). Idempotent, and
//! reported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attempt::CancelReason;
use super::core::{Core, lock};

/// After a handler was told to stop, it has this long to do so before it is dropped.
const TOLD_GRACE: Duration = Duration::from_secs(1);
/// How long a claim that was under way may take; after that, the leases of what it brings have to run out.
const LOOK_WITHIN: Duration = Duration::from_secs(5);
/// How long the last acknowledgements may take.
const FLUSH_WITHIN: Duration = Duration::from_secs(10);

/// How a worker ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// Jobs that this worker handled in all.
    pub handled: u64,
    /// Jobs that were claimed but not begun, and were given back.
    pub given_back: usize,
    /// Jobs that were still running when the grace period ended; they were told to stop and given back.
    pub interrupted: usize,
    /// Jobs whose end could not be told to the database. Their leases will expire, and they will run again.
    pub unsettled: usize,
}

/// Stops a worker: at once what waits, within `grace` what runs.
pub(super) async fn stop(core: &Arc<Core>, grace: Duration) -> Stopped {
    let mut report = Stopped::default();
    core.stopping.cancel();
    core.looking.close();
    core.running.close();
    lock(&core.slots).close();

    let given_up = Instant::now() + LOOK_WITHIN;
    let in_time = tokio::select! {
        in_time = core.wait_for_running(grace, given_up, &mut report) => in_time,
        () = core.hurry.cancelled() => false,
    };
    if !in_time {
        report.interrupted = core.interrupt();
        if !core
            .wait_for_running(TOLD_GRACE, given_up, &mut report)
            .await
        {
            tracing::warn!(
                jobs = lock(&core.held).len(),
                "handlers do not stop; their jobs are given back"
            );
        }
    }
    core.give_back_running();
    core.abandoned.cancel();
    core.wait_for_acks(FLUSH_WITHIN).await;
    report.unsettled = lock(&core.held).len();
    report.handled = core.finished.load(std::sync::atomic::Ordering::Relaxed);
    report
}

impl Core {
    /// Gives back what is claimed and has not begun.
    fn give_back_waiting(&self) -> usize {
        let waiting = lock(&self.slots).drain();
        waiting.iter().filter(|job| self.give_back(job)).count()
    }

    /// Waits until no handler runs and no claim is under way, whose jobs would be left leased. Returns false when the time is up. A claim
    /// that the database does not answer is not waited for beyond `given_up`.
    async fn wait_for_running(
        &self,
        at_most: Duration,
        given_up: Instant,
        report: &mut Stopped,
    ) -> bool {
        tokio::time::timeout(at_most, async {
            loop {
                let freed = self.slot_freed.notified();
                tokio::pin!(freed);
                freed.as_mut().enable();
                let looking = !self.looking.is_empty() && Instant::now() < given_up;
                report.given_back += self.give_back_waiting();
                if lock(&self.slots).running() == 0 && !looking {
                    return;
                }
                tokio::select! {
                    () = freed => {}
                    () = self.looking.wait(), if looking => {}
                    () = tokio::time::sleep(Duration::from_millis(50)) => {}
                }
            }
        })
        .await
        .is_ok()
    }

    /// Tells all handlers to stop.
    fn interrupt(&self) -> usize {
        let held = lock(&self.held);
        for attempt in held.values() {
            attempt.cancel(CancelReason::Shutdown);
        }
        held.values()
            .filter(|a| a.ran().is_some() && !a.is_answered())
            .count()
    }

    /// Gives back what handlers still hold: whatever they do from here on, it counts for nothing.
    fn give_back_running(&self) {
        let held: Vec<_> = lock(&self.held).values().cloned().collect();
        for attempt in held {
            attempt.cancel(CancelReason::Shutdown);
            self.give_back(&attempt);
        }
    }

    /// Waits until the database has answered for all jobs.
    async fn wait_for_acks(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        loop {
            let settled = self.acks_settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if lock(&self.held).is_empty() || Instant::now() >= until {
                return;
            }
            tokio::select! {
                () = settled => {}
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
    }
}
