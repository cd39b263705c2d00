//! Full scans, which find what lies behind the cursors, and housekeeping. Both on a connection of their own, so that they never
//! delay a claim; while they rest, claims may use it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::answer::Answer;
use super::core::{Core, lock};
use super::intake::Taken;
use super::lane::Lane;
use super::run::fill_slots;
use super::spare::Spare;
use super::token::random_token;
use crate::db::Link;
use crate::error::Result;

/// How often to ask for a turn: a little more rarely than there is one, …
const SWEEP_EVERY: Duration = Duration::from_millis(1020);
/// …and as long as others have it, twice as rarely each time, up to this.
const SWEEP_RARELY: Duration = Duration::from_secs(5);
/// A queue that this worker could not scan for so long is scanned whatever the others do.
const OVERDUE: Duration = Duration::from_secs(10);
/// How long to wait for a slot to become free. Where jobs run longer, several tries are needed; meanwhile other queues have their
/// turn.
const RESERVE_FOR: Duration = Duration::from_secs(3);
const MAINTAIN_EVERY: Duration = Duration::from_secs(60);

/// Scans and keeps house until the worker stops.
pub(super) async fn sweep_loop(core: Arc<Core>, spare: Spare) {
    let mut swept: HashMap<usize, Instant> = HashMap::new();
    // The first house is kept at once: the partitions of the coming days may be missing.
    let mut maintained: Option<Instant> = None;
    let mut every = SWEEP_EVERY;
    loop {
        tokio::select! {
            () = tokio::time::sleep(every.mul_f64(1.0 + 0.25 * rand::random::<f64>())) => {}
            () = core.sweep.notified() => every = SWEEP_EVERY,
            () = core.stopping.cancelled() => return,
        }
        // A connection first: slots are held free during a scan, and must not wait for one.
        let connected = async {
            let link = spare.wait().await;
            core.live(&link, "scan the queues").await.map(|_| link)
        };
        let link = tokio::select! {
            link = connected => match link {
                Ok(link) => link,
                Err(_) => continue,
            },
            () = core.stopping.cancelled() => return,
        };
        // Those that have room first: the wait for a slot must not keep them waiting.
        let mut full: Option<(Instant, Arc<Lane>)> = None;
        let mut turn = None;
        for lane in core.lanes() {
            let since = *swept.entry(lane.number).or_insert_with(Instant::now);
            if let Some(room) = core.room(&lane).await {
                turn = turn.max(Some(core.scan(&link, &lane, &room, &mut swept).await));
            } else if full.as_ref().is_none_or(|(longest, _)| since < *longest) {
                full = Some((since, lane));
            }
            if core.stopping.is_cancelled() {
                return;
            }
        }
        // Holding a slot free costs a little work, so a worker without one leaves most scans to others.
        if let Some((since, lane)) = full {
            if since.elapsed() >= OVERDUE || rand::random::<f64>() < 0.2 {
                if let Some(room) = core.reserve(&lane).await {
                    turn = turn.max(Some(core.scan(&link, &lane, &room, &mut swept).await));
                }
            }
        }
        every = match turn {
            Some(false) => (every * 2).min(SWEEP_RARELY),
            _ => SWEEP_EVERY,
        };
        if core.config.maintain && maintained.is_none_or(|at| at.elapsed() >= MAINTAIN_EVERY) {
            maintained = Some(Instant::now());
            tokio::select! {
                kept = core.maintain(&link) => if let Err(e) = kept {
                    tracing::warn!(error = %e, "cannot keep house, will try again");
                },
                () = core.stopping.cancelled() => return,
            }
        }
    }
}

impl Core {
    /// Scans one queue and remembers when. Returns whether it was, or may have been, this worker's turn.
    async fn scan(
        self: &Arc<Self>,
        link: &Link,
        lane: &Lane,
        room: &Room,
        swept: &mut HashMap<usize, Instant>,
    ) -> bool {
        let overdue = swept
            .get(&lane.number)
            .is_some_and(|since| since.elapsed() >= OVERDUE);
        self.sweeping.store(true, SeqCst);
        let result = self.sweep(link, lane, room.slots, overdue).await;
        self.sweeping.store(false, SeqCst);
        if self.look_again.swap(false, SeqCst) {
            self.bell.notify_waiters();
        }
        match result {
            Ok(true) => {
                swept.insert(lane.number, Instant::now());
                true
            }
            Ok(false) => false,
            Err(e) => {
                tracing::warn!(error = %e, queue = %lane.queue, "cannot scan the queue, will try again");
                true
            }
        }
    }

    /// Scans one queue for up to `slots` jobs, if it is this worker's turn. Returns whether it scanned.
    async fn sweep(
        self: &Arc<Self>,
        link: &Link,
        lane: &Lane,
        slots: usize,
        overdue: bool,
    ) -> Result<bool> {
        let (token, began) = (random_token(), Instant::now());
        let want = i32::try_from(slots).unwrap_or(i32::MAX);
        let (worker, lease_ms) = (self.worker_id(), self.lease_ms());
        let rows = self
            .look(
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
        let answer = Answer::new(self, rows, token, began)?;
        if answer.nobody_looked() {
            return Ok(false);
        }
        let full = answer.more();
        let (jobs, suspects) = (answer.jobs(), answer.suspects());
        self.note(&answer, Taken::Swept { full });
        self.take_in(answer, Taken::Swept { full });
        if jobs > 0 {
            tracing::debug!(queue = %lane.queue, jobs, "found behind the cursors");
            fill_slots(self);
            if full && suspects > 0 {
                self.suspects.store(true, Relaxed);
            }
            if full {
                self.bell.notify_waiters();
                self.sweep.notify_one();
            }
        }
        Ok(true)
    }

    /// The slots of this queue that are free; `None` if none is.
    async fn room(self: &Arc<Self>, lane: &Lane) -> Option<Room> {
        {
            let mut slots = lock(&self.slots);
            let n = slots.reserve_free(lane.number);
            if n > 0 {
                return Some(Room::new(self, lane, n));
            }
            if slots.is_full(lane.number) {
                return None;
            }
        }
        // A claim is under way that may fill them.
        self.reserve(lane).await
    }

    /// The next slot of this queue that becomes free, if one does soon. A job whose lease expired may kill its worker, and must not
    /// wait in line with others that would be blamed for it.
    async fn reserve(self: &Arc<Self>, lane: &Lane) -> Option<Room> {
        lock(&self.slots).reserve(lane.number);
        let room = Room::new(self, lane, 1);
        let wait = async {
            loop {
                let freed = self.slot_freed.notified();
                tokio::pin!(freed);
                freed.as_mut().enable();
                if lock(&self.slots).reservation_holds(lane.number) {
                    return;
                }
                freed.await;
            }
        };
        tokio::select! {
            () = wait => Some(room),
            () = self.pause_looking(RESERVE_FOR) => None,
        }
    }

    /// Keeps house, unless another worker has just done so.
    async fn maintain(&self, link: &Link) -> Result<()> {
        let every_ms = i32::try_from(MAINTAIN_EVERY.as_millis() / 2).unwrap_or(i32::MAX);
        for row in self
            .look(
                link,
                "keep house",
                "select step, did, detail from rowlock.maintain_if_due($1)",
                &[(&every_ms, Type::INT4)],
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

/// Slots that are kept free for what a scan finds.
struct Room {
    core: Arc<Core>,
    lane: usize,
    slots: usize,
}

impl Room {
    fn new(core: &Arc<Core>, lane: &Lane, slots: usize) -> Self {
        Self {
            core: core.clone(),
            lane: lane.number,
            slots,
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        lock(&self.core.slots).unreserve(self.lane, self.slots);
        fill_slots(&self.core);
        self.core.room.notify_one();
    }
}
