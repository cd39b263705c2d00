//! Waiting, when a claim found nothing.

use std::pin::Pin;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Instant;

use tokio::sync::futures::Notified;

use crate::db::Link;
use crate::worker::core::{Core, lock};
use crate::worker::idle::{Idle, Step};

impl Core {
    /// Waits for something to do, or until it is time to look in any case. Returns whether somebody rang.
    pub(super) async fn wait_idle(
        &self,
        link: &Link,
        idle: &mut Idle,
        mut rung: Pin<Box<Notified<'_>>>,
    ) -> bool {
        loop {
            if self.disarmed.swap(false, Relaxed) {
                idle.disarmed();
                idle.flooded(Instant::now());
            }
            if self.rescheduled.swap(false, Relaxed) {
                idle.rescheduled();
            }
            let listening = self.listening.load(Relaxed);
            let step = idle.empty(Instant::now(), listening, rand::random());
            let (Step::Wait(wait) | Step::WaitAndArm(wait) | Step::Settle(wait, _)) = step else {
                self.arm(link, idle).await;
                return false;
            };
            tokio::select! {
                () = &mut rung => return true,
                () = tokio::time::sleep(wait) => {}
                () = self.stopping.cancelled() => return false,
            }
            match step {
                Step::WaitAndArm(_) if self.arm(link, idle).await && idle.is_parked() => {}
                Step::Settle(_, xid) => {
                    let oldest = self.oldest_xid(link).await;
                    if oldest.is_ok_and(|oldest| oldest >= xid) {
                        idle.settled();
                    }
                    return false;
                }
                _ => return false,
            }
        }
    }

    /// A claim found nothing: says so, if nothing is claimed either and nothing waits to be acknowledged.
    pub(super) fn tell_if_drained(&self) {
        if self.draining.load(SeqCst) == 0 {
            return;
        }
        // Before the look: whoever ends what is under way then finds it set.
        self.look_again.store(true, SeqCst);
        // In this order: what a scan brings is held before the scan is over.
        if !self.sweeping.load(SeqCst) && lock(&self.held).is_empty() {
            self.look_again.store(false, SeqCst);
            self.drained.notify_waiters();
        }
    }
}
