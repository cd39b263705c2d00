//! The claim loop: ask for jobs when there is room, wait when there are none.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::attempt::{Attempt, Origin, column};
use super::core::{Core, lock};
use super::idle::{ARMED_FOR, Idle, Step};
use super::lane::Lane;
use super::pace::Pace;
use super::run::fill_slots;
use super::slots::Wanted;
use crate::db::{Link, Micros};
use crate::error::Result;

/// Queues in one claim statement; more of them are asked in turn.
const LANES_PER_CLAIM: usize = 64;
/// Rows commit out of order by about this much under load…
const LOOK_BACK: Duration = Duration::from_millis(50);
/// …and so often a busy worker looks back for them.
const LOOK_BACK_EVERY: Duration = Duration::from_millis(20);
/// After the bell could not be armed.
const ARM_FAILED: Duration = Duration::from_millis(100);
/// With so many acknowledgements unsent, claiming more would only pile up.
const UNSENT_MAX: usize = 20_000;

const SQL: &str =
    "select * from rowlock.claim_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// What a claim brought.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    pub(super) jobs: usize,
    /// How many of them have lost a worker before.
    pub(super) suspects: usize,
    pub(super) parked: i32,
    /// It stopped for its own bound, or brought all that was asked for: there may be more.
    pub(super) more: bool,
}

/// Claims until the worker stops.
pub(super) async fn claim_loop(core: Arc<Core>, link: Arc<Link>) {
    let mut idle = Idle::new(core.config.poll);
    let mut pace = Pace::new(core.config.ahead_max);
    let mut looked_back = Instant::now();
    let mut go_on = false;
    loop {
        // Wait for room before looking for jobs.
        let Some(wanted) = core.wait_for_room(&mut pace).await else {
            return;
        };
        if core.new_lanes.swap(false, Relaxed) {
            idle.busy();
        }

        let look_back = if go_on {
            // The last one stopped for its own bound, not at the end: looking back again would lead to the same place.
            Duration::ZERO
        } else if idle.may_be_armed() || looked_back.elapsed() >= LOOK_BACK_EVERY {
            looked_back = Instant::now();
            idle.look_back().max(LOOK_BACK)
        } else {
            Duration::ZERO
        };
        // Whoever rings from here on is heard below, even if the claim just missed what it rang for.
        let rung = core.bell.notified();
        tokio::pin!(rung);
        rung.as_mut().enable();

        let sent = Instant::now();
        let claimed = tokio::select! {
            claimed = core.claim(&link, &wanted, look_back) => claimed,
            () = core.stopped.cancelled() => return,
        };
        lock(&core.slots).answered();
        core.slot_freed.notify_waiters();
        if claimed.is_ok() {
            pace.claim_took(sent.elapsed());
        }
        go_on = claimed.as_ref().is_ok_and(|claimed| claimed.more);
        match claimed {
            Ok(claimed) if claimed.jobs > 0 || claimed.parked > 0 || claimed.more => {
                if claimed.more && claimed.jobs >= 50 && idle.may_be_armed() {
                    // The queue is flooding: nobody has to ring for a while.
                    core.disarm(&link).await;
                }
                if claimed.jobs > 0 {
                    idle.busy();
                }
                if claimed.suspects == 0 && wanted.all_start {
                    core.suspects.store(false, Relaxed);
                }
                fill_slots(&core);
            }
            Ok(_) => {
                if core.stopping.is_cancelled() {
                    return;
                }
                if wanted.all_start {
                    core.suspects.store(false, Relaxed);
                }
                core.tell_if_drained();
                core.wait_idle(&link, &mut idle, rung).await;
            }
            Err(e) => {
                tracing::warn!(error = %e, "cannot claim, will try again");
                // Of several statements the first may have brought jobs.
                fill_slots(&core);
                let after = if e.is_retryable() {
                    Duration::from_millis(100)
                } else {
                    Duration::from_secs(1)
                };
                core.pause_looking(after).await;
            }
        }
    }
}

impl Core {
    /// Waits until more jobs are wanted, and says how many. `None` when the worker stops.
    async fn wait_for_room(&self, pace: &mut Pace) -> Option<Wanted> {
        loop {
            let freed = self.room.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.stopping.is_cancelled() {
                return None;
            }
            let pace = pace.ahead(self.finished.load(Relaxed), Instant::now());
            let ahead = (!self.suspects.load(Relaxed)).then_some(pace);
            let most_waiting = ahead.unwrap_or(0) / 2;
            self.low_water.store(most_waiting, Relaxed);
            {
                let mut slots = lock(&self.slots);
                let wanted = slots.wanted(ahead, rand::random);
                // A few at a time would be many claims: wait until a good part of what may wait is used up.
                if wanted.total > 0
                    && (wanted.free > 0 || slots.waiting() <= most_waiting)
                    && self.acks.len() < UNSENT_MAX
                {
                    slots.ask(&wanted);
                    return Some(wanted);
                }
            }
            tokio::select! {
                () = freed => {}
                () = self.stopping.cancelled() => return None,
                // Handlers that pause change the pace without finishing anything.
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
            }
        }
    }

    async fn claim(&self, link: &Link, wanted: &Wanted, look_back: Duration) -> Result<Claimed> {
        let mut all = Claimed::default();
        for lanes in wanted.lanes.chunks(LANES_PER_CLAIM) {
            let want = wanted.total.saturating_sub(all.jobs);
            if want == 0 {
                break;
            }
            let began = Instant::now();
            let token = random_token();
            let rewinds = self.rewinds.load(Relaxed);
            let rows = self
                .send_claim(link, lanes, want, token, wanted.all_start, look_back)
                .await?;
            self.meters.claim.record(began.elapsed().as_secs_f64());
            let how = Taken::Claimed {
                limit: want,
                rewinds,
            };
            let claimed = self.take_in(&rows, token, began, how);
            all.jobs += claimed.jobs;
            all.suspects += claimed.suspects;
            all.parked += claimed.parked;
            all.more |= claimed.more;
        }
        Ok(all)
    }

    async fn send_claim(
        &self,
        link: &Link,
        lanes: &[(usize, usize)],
        want: usize,
        token: i64,
        suspects: bool,
        look_back: Duration,
    ) -> Result<Vec<Row>> {
        let mut queues: Vec<Arc<str>> = Vec::with_capacity(lanes.len());
        let mut wants: Vec<i32> = Vec::with_capacity(lanes.len());
        let (mut after_at, mut after_id) = (Vec::new(), Vec::new());
        let mut follow: Vec<bool> = Vec::with_capacity(lanes.len());
        for (number, room) in lanes {
            let lane = self.lane(*number);
            {
                let cursor = lock(&lane.cursor);
                cursor.write_to(&mut after_at, &mut after_id);
                follow.push(cursor.may_follow());
            }
            queues.push(lane.queue.clone());
            wants.push(i32::try_from(*room).unwrap_or(i32::MAX));
        }
        let queues: Vec<&str> = queues.iter().map(|q| &**q).collect();
        let want = i32::try_from(want).unwrap_or(i32::MAX);
        let worker = self.worker_id();
        let lease_ms = self.lease_ms();
        let look_back_ms = i32::try_from(look_back.as_millis()).unwrap_or(i32::MAX);
        self.look(
            link,
            "claim jobs",
            SQL,
            &[
                (&queues, Type::TEXT_ARRAY),
                (&wants, Type::INT4_ARRAY),
                (&want, Type::INT4),
                (&worker, Type::INT8),
                (&token, Type::INT8),
                (&lease_ms, Type::INT4),
                (&self.kinds, Type::TEXT_ARRAY),
                (&suspects, Type::BOOL),
                (&after_at, Type::TIMESTAMPTZ_ARRAY),
                (&after_id, Type::INT8_ARRAY),
                (&look_back_ms, Type::INT4),
                (&follow, Type::BOOL_ARRAY),
            ],
        )
        .await
    }

    pub(super) fn lease_ms(&self) -> Option<i32> {
        self.config
            .lease
            .map(|l| i32::try_from(l.as_millis()).unwrap_or(i32::MAX))
    }

    /// Takes the rows of a claim in: jobs into the slots, positions into the cursors.
    pub(super) fn take_in(&self, rows: &[Row], token: i64, began: Instant, how: Taken) -> Claimed {
        let mut claimed = Claimed::default();
        let mut jobs: Vec<&Row> = Vec::new();
        for row in rows {
            if row.get::<_, Option<i64>>(column::ID).is_some() {
                jobs.push(row);
                continue;
            }
            // The row that ends a queue.
            let Some(number) = self.lane_of(row.get(column::QUEUE)) else {
                continue;
            };
            let lane = self.lane(number);
            let parked: i32 = row.get::<_, Option<i32>>(column::PARKED).unwrap_or(0);
            if parked > 0 {
                lane.meters
                    .parked
                    .increment(u64::try_from(parked).unwrap_or(0));
            }
            claimed.parked += parked;
            claimed.more |= row.get::<_, Option<bool>>(column::MORE).unwrap_or(false);
            claimed.jobs += jobs.len();
            claimed.suspects += jobs
                .iter()
                .filter(|job| job.get::<_, i16>(column::CRASHES) > 0)
                .count();
            if let Some(clock) = row.get::<_, Option<Micros>>(column::CLOCK) {
                self.take_in_lane(
                    &lane,
                    std::mem::take(&mut jobs),
                    &Origin {
                        lane: lane.clone(),
                        token,
                        claimed: began,
                        clock,
                    },
                    how,
                );
            }
            if let (Taken::Claimed { rewinds, .. }, Some(at), Some(id)) = (
                how,
                row.get::<_, Option<Vec<Micros>>>(column::CURSOR_AT),
                row.get::<_, Option<Vec<i64>>>(column::CURSOR_ID),
            ) {
                let mut cursor = lock(&lane.cursor);
                if self.rewinds.load(Relaxed) == rewinds {
                    cursor.passed(&at, &id);
                }
            }
        }
        if let Taken::Claimed { limit, .. } = how {
            claimed.more |= claimed.jobs >= limit;
        }
        claimed
    }

    fn take_in_lane(&self, lane: &Lane, mut jobs: Vec<&Row>, origin: &Origin, how: Taken) {
        if jobs.is_empty() {
            return;
        }
        // The update returned them in the order of their places on disk.
        jobs.sort_by_cached_key(|r| {
            let (priority, run_at, id): (i16, Micros, i64) = (
                r.get(column::PRIORITY),
                r.get(column::RUN_AT),
                r.get(column::ID),
            );
            (-priority, run_at, id)
        });
        lane.meters.claimed.increment(jobs.len() as u64);
        let mut attempts = Vec::with_capacity(jobs.len());
        {
            let mut cursor = lock(&lane.cursor);
            let rewinds_now = self.rewinds.load(Relaxed);
            for row in jobs {
                let Some(handler) = self.registry.get(row.get(column::KIND)) else {
                    continue;
                };
                let attempt = Arc::new(Attempt::new(row, origin, handler.clone()));
                match how {
                    Taken::Claimed { rewinds, .. } if rewinds == rewinds_now => {
                        cursor.claimed(attempt.priority, attempt.run_at, attempt.id);
                    }
                    Taken::Swept { full: true } => {
                        cursor.rewound(attempt.priority, attempt.run_at, attempt.id);
                    }
                    // A cursor that was set back while the claim was under way stays where it is: the claim may not have seen
                    // what that was for.
                    Taken::Claimed { .. } | Taken::Swept { full: false } => {}
                }
                lane.meters.wait.record(attempt.waited.as_secs_f64());
                attempts.push(attempt);
            }
        }
        self.hold(&attempts);
        let mut slots = lock(&self.slots);
        match how {
            Taken::Claimed { .. } => slots.add(lane.number, attempts),
            Taken::Swept { .. } => slots.add_first(lane.number, attempts.into_iter().rev()),
        }
    }

    /// One step of waiting for something to do.
    async fn wait_idle(&self, link: &Link, idle: &mut Idle, rung: impl Future<Output = ()>) {
        let listening = self.listening.load(Relaxed);
        let step = idle.empty(Instant::now(), listening, rand::random());
        let wait = match step {
            Step::Wait(wait) => wait,
            Step::Arm => {
                let sent = Instant::now();
                match self.arm(link).await {
                    Ok((xid, next_due)) => idle.armed(sent, Instant::now(), xid, next_due),
                    Err(e) => {
                        tracing::debug!(error = %e, "cannot arm the bell");
                        self.pause_looking(ARM_FAILED).await;
                    }
                }
                return;
            }
            Step::Settle(wait, _) => wait,
        };
        let was_rung = tokio::select! {
            () = rung => true,
            () = tokio::time::sleep(wait) => false,
            () = self.stopping.cancelled() => false,
        };
        if was_rung && idle.may_be_armed() {
            // If the claim that follows finds nothing, what was rung for may lie behind the cursors.
            self.sweep.notify_one();
        }
        if let Step::Settle(_, xid) = step {
            if self
                .oldest_xid(link)
                .await
                .is_ok_and(|oldest| oldest >= xid)
            {
                idle.settled();
            }
        }
    }

    async fn arm(&self, link: &Link) -> Result<(i64, Option<Duration>)> {
        let (queues, for_ms) = (self.queue_names(), ARMED_FOR.as_millis() as i32);
        let rows = self
            .look(
                link,
                "arm the bell",
                "select xid, (ceil(extract(epoch from next_at - rowlock.clock()) * 1000))::bigint from rowlock.arm($1, $2)",
                &[(&queues, Type::TEXT_ARRAY), (&for_ms, Type::INT4)],
            )
            .await?;
        let due = rows.first().and_then(|r| r.get::<_, Option<i64>>(1));
        let due = due.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
        Ok((rows.first().map_or(0, |r| r.get(0)), due))
    }

    async fn disarm(&self, link: &Link) {
        let queues = self.queue_names();
        let _ = self
            .look(
                link,
                "disarm the bell",
                "select rowlock.disarm($1)",
                &[(&queues, Type::TEXT_ARRAY)],
            )
            .await;
    }

    async fn oldest_xid(&self, link: &Link) -> Result<i64> {
        let rows = self
            .look(
                link,
                "look for open transactions",
                "select rowlock.oldest_xid()",
                &[],
            )
            .await?;
        Ok(rows.first().map_or(0, |r| r.get(0)))
    }

    /// A claim found nothing: says so, if nothing is claimed either and nothing waits to be acknowledged.
    fn tell_if_drained(&self) {
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

/// By which way jobs came in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    /// By a claim that could have brought up to `limit`.
    Claimed {
        limit: usize,
        /// How often cursors had been set back before it was sent.
        rewinds: u64,
    },
    /// By a full scan; `full`: it had no room for more.
    Swept { full: bool },
}

/// 62 random bits, never 0.
pub(super) fn random_token() -> i64 {
    (rand::random::<i64>() & (i64::MAX >> 1)) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_positive_and_never_zero() {
        for _ in 0..1000 {
            assert!(random_token() > 0);
        }
    }
}
