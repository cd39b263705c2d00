//! The claim loop: ask for jobs when there is room, wait when there are none.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::futures::Notified;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::answer::Answer;
use super::core::{Core, lock};
use super::idle::{ARMED_FOR, Idle, Step};
use super::intake::Taken;
use super::pace::Pace;
use super::rings::{Noise, Rings};
use super::run::fill_slots;
use super::slots::Wanted;
use crate::db::Link;
use crate::error::Result;

/// Queues in one claim statement; more of them are asked in turn.
const LANES_PER_CLAIM: usize = 64;
/// After the bell could not be armed.
const ARM_FAILED: Duration = Duration::from_millis(100);
/// A claim that brings so many jobs of one queue tells of a flood…
const FLOOD: usize = 50;
/// …in which the bell is disarmed so often, even if nobody is heard to ring: idle workers arm it again.
const DISARM_EVERY: Duration = Duration::from_secs(1);
/// With so many acknowledgements unsent, claiming more would only pile up.
const UNSENT_MAX: usize = 20_000;

const SQL: &str =
    "select * from rowlock.claim_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// A claim under way.
struct Asked<'a> {
    /// Whether all that was asked for could start at once.
    all_start: bool,
    /// How many jobs it may bring.
    want: usize,
    /// Queues that did not fit into the statement and are asked next.
    rest: Vec<(usize, usize)>,
    look_back: Duration,
    token: i64,
    began: Instant,
    rewinds: u64,
    /// Whoever rings from here on is heard, even if the claim just misses what it rang for.
    rung: Pin<Box<Notified<'a>>>,
    rows: BoxFuture<'a, Result<Vec<Row>>>,
}

/// What claims brought, one after the other until all queues were asked.
#[derive(Debug, Default)]
struct Brought {
    jobs: usize,
    suspects: usize,
    parked: u32,
    /// One stopped for its own bound, or brought all that was asked for: there may be more.
    more: bool,
}

/// Claims until the worker stops.
///
/// The next claim is sent before the answer of the last is decoded, where it is clear that there is room and that there are jobs:
/// the connection works while this process does.
pub(super) async fn claim_loop(core: Arc<Core>, link: Arc<Link>) {
    let mut idle = Idle::new(core.config.poll);
    let mut pace = Pace::new(core.config.ahead_max);
    let mut brought = Brought::default();
    let mut sent: Option<Asked<'_>> = None;
    let mut rung = false;
    let mut rings = Rings::default();
    let mut disarmed: Option<Instant> = None;
    loop {
        let mut asked = if let Some(asked) = sent.take() {
            asked
        } else {
            // Wait for room before looking for jobs.
            let Some(wanted) = core.wait_for_room(&mut pace).await else {
                return;
            };
            if core.new_lanes.swap(false, Relaxed) {
                idle.disarmed();
            }
            let look_back = if brought.more {
                // The last one stopped for its own bound, not at the end: looking back again would lead to the same place.
                Duration::ZERO
            } else {
                idle.look_back(Instant::now())
            };
            brought = Brought::default();
            core.ask(&link, wanted, look_back)
        };
        let rows = tokio::select! {
            rows = &mut asked.rows => rows,
            () = core.stopped.cancelled() => return,
        };
        lock(&core.slots).answered();
        core.slot_freed.notify_waiters();

        let answer = rows.and_then(|rows| Answer::new(&core, rows, asked.token, asked.began));
        let answer = match answer {
            Ok(answer) => answer,
            Err(e) => {
                tracing::warn!(error = %e, "cannot claim, will try again");
                brought = Brought::default();
                for lane in core.lanes() {
                    lock(&lane.cursor).stay();
                }
                let after = if e.is_retryable() {
                    Duration::from_millis(100)
                } else {
                    Duration::from_secs(1)
                };
                core.pause_looking(after).await;
                continue;
            }
        };
        pace.claim_took(asked.began.elapsed());
        core.meters
            .claim
            .record(asked.began.elapsed().as_secs_f64());
        let how = Taken::Claimed {
            rewinds: asked.rewinds,
        };
        core.note(&answer, how);
        let all = answer.jobs() >= asked.want;
        let ask_rest = !all && !asked.rest.is_empty();
        brought.jobs += answer.jobs();
        brought.suspects += answer.suspects();
        brought.parked += answer.parked();
        brought.more |= all || answer.more();
        if ask_rest {
            sent = Some(core.ask_rest(&link, &mut asked, answer.jobs()));
        } else if all {
            sent = core
                .room_now(&mut pace)
                .map(|wanted| core.ask(&link, wanted, Duration::ZERO));
        }
        if let Some(asked) = &mut sent {
            // Polled once, it is on its way. An answer this early can only be that there is no connection.
            if let Some(early) = (&mut asked.rows).now_or_never() {
                asked.rows = Box::pin(ready(early));
            }
        }
        let noise = rings.noise(core.rings.load(Relaxed), Instant::now());
        let flooded = answer.queues_with(if noise == Noise::Much { 1 } else { FLOOD });
        let ringing = if noise == Noise::Some {
            answer.queues_with(1)
        } else {
            Vec::new()
        };
        core.take_in(answer, how);
        fill_slots(&core);
        if !flooded.is_empty() {
            idle.flooded(Instant::now());
        }
        // Nobody has to ring for a while where it only makes commits wait for each other.
        let disarm = if !flooded.is_empty()
            && (noise == Noise::Much || disarmed.is_none_or(|at| at.elapsed() >= DISARM_EVERY))
        {
            disarmed = Some(Instant::now());
            idle.disarmed();
            Some((flooded, false))
        } else if !ringing.is_empty() {
            Some((ringing, true))
        } else {
            None
        };
        if let Some((queues, if_they_wait)) = disarm {
            rings.heeded(core.rings.load(Relaxed), Instant::now());
            let (core, link) = (core.clone(), link.clone());
            // Beside this loop: its answer comes after that of a claim that is under way, which only this loop takes off the connection.
            core.clone().looking.spawn(async move {
                if !if_they_wait || core.commits_wait(&link).await {
                    core.disarm(&link, queues).await;
                }
            });
        }

        if ask_rest {
            continue;
        }
        if brought.jobs > 0 {
            idle.busy();
        }
        if brought.suspects == 0 && asked.all_start {
            core.suspects.store(false, Relaxed);
        }
        if brought.jobs == 0 && brought.parked == 0 && !brought.more {
            if core.stopping.is_cancelled() {
                return;
            }
            core.tell_if_drained();
            if rung && idle.is_quiet(Instant::now()) {
                // What somebody rang for may lie behind the cursors.
                core.sweep.notify_one();
                rung = false;
            }
            rung |= core.wait_idle(&link, &mut idle, asked.rung).await;
        } else {
            rung = false;
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
            if let Some(wanted) = self.room_now(pace) {
                return Some(wanted);
            }
            tokio::select! {
                () = freed => {}
                () = self.stopping.cancelled() => return None,
                // Handlers that pause change the pace without finishing anything.
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
            }
        }
    }

    /// How many jobs are wanted now, if it is time to ask for some.
    fn room_now(&self, pace: &mut Pace) -> Option<Wanted> {
        let pace = pace.ahead(self.finished.load(Relaxed), Instant::now());
        let ahead = (!self.suspects.load(Relaxed)).then_some(pace);
        let most_waiting = ahead.unwrap_or(0) / 2;
        self.low_water.store(most_waiting, Relaxed);
        let mut slots = lock(&self.slots);
        let wanted = slots.wanted(ahead, rand::random);
        // A few at a time would be many claims: wait until a good part of what may wait is used up.
        let now = wanted.total > 0
            && (wanted.free > 0 || slots.waiting_soon() <= most_waiting)
            && self.acks.len() < UNSENT_MAX
            && !self.stopping.is_cancelled();
        now.then(|| {
            slots.ask(&wanted);
            wanted
        })
    }

    fn ask<'a>(&'a self, link: &'a Link, wanted: Wanted, look_back: Duration) -> Asked<'a> {
        let mut lanes = wanted.lanes;
        let rest = lanes.split_off(lanes.len().min(LANES_PER_CLAIM));
        let mut rung = Box::pin(self.bell.notified());
        rung.as_mut().enable();
        let (token, rewinds) = (random_token(), self.rewinds.load(Relaxed));
        let suspects = wanted.all_start;
        Asked {
            all_start: wanted.all_start,
            want: wanted.total,
            rest,
            look_back,
            token,
            began: Instant::now(),
            rewinds,
            rung,
            rows: self
                .send_claim(link, lanes, wanted.total, token, suspects, look_back)
                .boxed(),
        }
    }

    /// Asks the queues that the last claim left out, for what it left.
    fn ask_rest<'a>(&'a self, link: &'a Link, asked: &mut Asked<'a>, jobs: usize) -> Asked<'a> {
        let wanted = Wanted {
            lanes: std::mem::take(&mut asked.rest),
            total: asked.want - jobs,
            free: 0,
            all_start: asked.all_start,
        };
        let next = self.ask(link, wanted, asked.look_back);
        // Who rang since the first of them is to be heard.
        let rung = std::mem::replace(&mut asked.rung, Box::pin(self.bell.notified()));
        Asked { rung, ..next }
    }

    async fn send_claim(
        &self,
        link: &Link,
        lanes: Vec<(usize, usize)>,
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
            let lane = self.lane(number);
            {
                let cursor = lock(&lane.cursor);
                cursor.write_to(&mut after_at, &mut after_id);
                follow.push(cursor.may_follow());
            }
            queues.push(lane.queue.clone());
            wants.push(i32::try_from(room).unwrap_or(i32::MAX));
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

    /// Waits for something to do, or until it is time to look in any case. Returns whether somebody rang.
    async fn wait_idle(
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

    /// Arms the bell, or waits for a moment if that fails. Returns whether it did.
    async fn arm(&self, link: &Link, idle: &mut Idle) -> bool {
        let sent = Instant::now();
        match self.send_arm(link).await {
            Ok((xid, next_due)) => {
                idle.armed(sent, Instant::now(), xid, next_due);
                true
            }
            Err(e) => {
                tracing::debug!(error = %e, "cannot arm the bell");
                self.pause_looking(ARM_FAILED).await;
                false
            }
        }
    }

    async fn send_arm(&self, link: &Link) -> Result<(i64, Option<Duration>)> {
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

    async fn disarm(&self, link: &Link, queues: Vec<String>) {
        let _ = self
            .look(
                link,
                "disarm the bell",
                "select rowlock.disarm($1)",
                &[(&queues, Type::TEXT_ARRAY)],
            )
            .await;
    }

    /// Whether somebody who commits waits for NOTIFY's lock: the disk is slow, or there are many of them.
    async fn commits_wait(&self, link: &Link) -> bool {
        let waits = self
            .look(
                link,
                "ask whether commits wait",
                "select exists (select from pg_catalog.pg_locks l where l.locktype = 'object' and l.classid = 'pg_catalog.pg_database'::regclass \
                 and l.objid = 0 and not l.granted)",
                &[],
            )
            .await;
        waits.is_ok_and(|rows| rows.first().is_some_and(|r| r.get(0)))
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
