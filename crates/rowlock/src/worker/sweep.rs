//! Full scans, which find what lies behind the cursors, and housekeeping. Both on a connection of their own, so that they never
//! delay a claim.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::attempt::column;
use super::claim::{Taken, random_token};
use super::core::{Core, lock};
use super::lane::Lane;
use super::run::fill_slots;
use crate::db::Link;
use crate::error::Result;

const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// A queue that this worker could not scan for so long is scanned whatever the others do.
const OVERDUE: Duration = Duration::from_secs(10);
const MAINTAIN_EVERY: Duration = Duration::from_secs(60);

/// Scans and keeps house until the worker stops.
pub(super) async fn sweep_loop(core: Arc<Core>, link: Arc<Link>) {
    let mut swept: HashMap<usize, Instant> = HashMap::new();
    // The first house is kept at once: the partitions of the coming days may be missing.
    let mut maintained: Option<Instant> = None;
    loop {
        let jitter = SWEEP_EVERY.mul_f64(0.75 + 0.5 * rand::random::<f64>());
        tokio::select! {
            () = tokio::time::sleep(jitter) => {}
            () = core.sweep.notified() => {}
            () = core.stopping.cancelled() => return,
        }
        for lane in core.lanes() {
            let since = swept.entry(lane.number).or_insert_with(Instant::now);
            let overdue = since.elapsed() >= OVERDUE;
            match core.sweep(&link, &lane, overdue).await {
                Ok(true) => *since = Instant::now(),
                Ok(false) => {}
                Err(e) => {
                    tracing::warn!(error = %e, queue = %lane.queue, "cannot scan the queue, will try again")
                }
            }
            if core.stopping.is_cancelled() {
                return;
            }
        }
        if core.config.maintain && maintained.is_none_or(|at| at.elapsed() >= MAINTAIN_EVERY) {
            maintained = Some(Instant::now());
            if let Err(e) = core.maintain(&link).await {
                tracing::warn!(error = %e, "cannot keep house, will try again");
            }
        }
    }
}

impl Core {
    /// Scans one queue, if it is this worker's turn and it has a slot for what it may find. Returns whether it scanned.
    async fn sweep(self: &Arc<Self>, link: &Link, lane: &Lane, overdue: bool) -> Result<bool> {
        let Some(room) = self.reserve(lane, overdue).await else {
            return Ok(false);
        };
        let (token, began) = (random_token(), Instant::now());
        let want = i32::try_from(room.slots).unwrap_or(i32::MAX);
        let (worker, lease_ms) = (self.worker_id(), self.lease_ms());
        let rows = self
            .rows(
                link,
                "scan a queue",
                "select * from rowlock.sweep($1, $2, $3, $4, $5, $6, $7)",
                &[
                    (&&*lane.queue, Type::TEXT),
                    (&want, Type::INT4),
                    (&worker, Type::INT8),
                    (&token, Type::INT8),
                    (&lease_ms, Type::INT4),
                    (&self.kinds, Type::TEXT_ARRAY),
                    (&overdue, Type::BOOL),
                ],
            )
            .await?;
        let Some(more) = rows.last().map(|r| r.get::<_, Option<bool>>(column::MORE)) else {
            return Ok(false);
        };
        let Some(full) = more else { return Ok(false) };
        let taken = self.take_in(&rows, token, began, Taken::Swept { full });
        drop(room);
        if taken.jobs > 0 {
            tracing::debug!(queue = %lane.queue, jobs = taken.jobs, "found behind the cursors");
            fill_slots(self);
            if full {
                self.bell.notify_waiters();
                self.sweep.notify_one();
            }
        }
        Ok(true)
    }

    /// Room for what a scan may find: the free slots, or, when there is none, the next one that becomes free. A job whose lease
    /// expired may kill its worker, and must not wait in line with others that would be blamed for it.
    async fn reserve(self: &Arc<Self>, lane: &Lane, overdue: bool) -> Option<Room> {
        let free = lock(&self.slots).free(lane.number);
        if free > 0 {
            return Some(Room {
                core: None,
                lane: lane.number,
                slots: free,
            });
        }
        // Holding a slot free costs a little work, so a worker without one leaves most scans to others.
        if !overdue && rand::random::<f64>() > 0.2 {
            return None;
        }
        lock(&self.slots).reserve(lane.number);
        let room = Room {
            core: Some(self.clone()),
            lane: lane.number,
            slots: 1,
        };
        loop {
            let freed = self.slot_freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if lock(&self.slots).reservation_holds(lane.number) {
                return Some(room);
            }
            tokio::select! {
                () = freed => {}
                () = self.stopping.cancelled() => return None,
            }
        }
    }

    async fn maintain(&self, link: &Link) -> Result<()> {
        for row in self
            .rows(
                link,
                "keep house",
                "select step, did, detail from rowlock.maintain()",
                &[],
            )
            .await?
        {
            let (step, did, detail): (&str, i64, Option<&str>) =
                (row.get(0), row.get(1), row.get(2));
            if did > 0 || detail.is_some() {
                tracing::debug!(step, did, detail, "kept house");
            }
        }
        Ok(())
    }
}

/// Slots that a scan may fill; a reservation ends with it.
struct Room {
    core: Option<Arc<Core>>,
    lane: usize,
    slots: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(core) = &self.core {
            lock(&core.slots).unreserve(self.lane);
            fill_slots(core);
        }
    }
}
