//! The claim loop: ask for jobs when there is room, wait when there are none.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use tokio::sync::futures::Notified;

use super::ack::UNSENT_MAX;
use super::answer::Answer;
use super::ask::{Asked, Hand, Room, first_answer, on_its_way};
use super::bundle::{Bundling, MANY, QUICK};
use super::company::Company;
use super::core::{Core, lock};
use super::idle::{Idle, LOOK_FAR_BACK, Step};
use super::intake::Taken;
use super::pace::Pace;
use super::rings::{Noise, Rings};
use super::run::fill_slots;
use super::settled::{Behind, Found, RECENT, Settled};
use super::spare::Spare;
use crate::db::{Link, Micros};

/// A claim that brings so many jobs of one queue tells of a flood…
const FLOOD: usize = 50;
/// …in which the bell is disarmed so often, even if nobody is heard to ring: idle workers arm it again.
const DISARM_EVERY: Duration = Duration::from_secs(1);
/// A claim that brings so many asks for help, unless other workers are help enough.
const SPARE_FROM: usize = 500;
/// When only the spare has a claim under way for so long, another is sent beside it.
const SPARE_WAITED_FOR: Duration = Duration::from_millis(100);
/// So many jobs a second are a torrent. Looking back over all that was finished meanwhile costs much then, so claims go no further than what is settled; with fewer it costs so little that jobs
/// need not wait for each other.
const TORRENT: usize = 20_000;
/// Who has waited for so long at least and is rung for asks first for what is fresh. Where the bell rings more often, claims are at work anyway.
const FRESH_AFTER: Duration = Duration::from_millis(5);

/// What claims brought, one after the other until all queues were asked.
#[derive(Debug, Default)]
struct Brought {
    jobs: usize,
    suspects: usize,
    parked: u32,
    /// One stopped for its own bound, or brought all that was asked for: there may be more.
    more: bool,
}

/// What the claim loop goes by when it asks for more.
type Mind<'a> = (
    &'a mut Pace,
    &'a mut Idle,
    &'a Bundling,
    &'a Settled,
    &'a Company,
);

/// Claims until the worker stops.
///
/// The next claim is sent before the answer of the last is decoded, where it is clear that there is room and that there are jobs:
/// the connection works while this process does. In a flood a second one is sent beside it, on the connection of the scans while they rest.
pub(super) async fn claim_loop(core: Arc<Core>, link: Arc<Link>, spare: Spare) {
    let mut idle = Idle::new(core.config.poll);
    let mut pace = Pace::new(core.config.ahead_max);
    let mut brought = Brought::default();
    let mut under_way: Vec<Asked<'_>> = Vec::with_capacity(2);
    let mut failed: Option<Duration> = None;
    let mut rung = false;
    let mut rings = Rings::default();
    let mut disarmed: Option<Instant> = None;
    let mut company = Company::default();
    let mut bundling = Bundling::new();
    let mut settled = Settled::default();
    let (mut just_rung, mut can_fresh, mut prepared) = (false, true, false);
    loop {
        if under_way.is_empty() {
            if let Some(after) = failed.take().or(settled.pause(Instant::now())) {
                core.pause_looking(after).await;
            }
            if std::mem::take(&mut just_rung) && can_fresh && company.is_alone(Instant::now()) {
                under_way.extend(core.ask_fresh(&link));
            }
        }
        if under_way.is_empty() {
            // Wait for room before looking for jobs.
            let Some(room) = core.wait_for_room(&mut pace).await else {
                return;
            };
            if core.new_lanes.swap(false, Relaxed) {
                idle.disarmed();
            }
            let now = Instant::now();
            let until = core.until(&room, &settled, &company);
            let look_back = if brought.more {
                // The last one did not come to the end: looking back each time would lead to the same place.
                core.look_back_in_flood(&room, &mut idle, settled.behind(until))
            } else {
                idle.look_back(now)
            };
            let many = brought.jobs >= MANY || settled.pause(now).is_some();
            let bundle = many && look_back.is_zero() && core.may_bundle(&room, &bundling);
            let until = until.filter(|_| bundle || brought.more && !look_back.is_zero());
            brought = Brought::default();
            under_way.push(if bundle {
                core.ask_bundle(Hand::Own(&link), room, until)
            } else {
                core.ask(Hand::Own(&link), room, look_back, until)
            });
        }
        let only_spare = under_way.iter().all(|asked| asked.spare);
        let (asked, rows) = tokio::select! {
            answered = first_answer(&mut under_way) => answered,
            // Whatever becomes of that one, the own connection is there.
            () = tokio::time::sleep(SPARE_WAITED_FOR), if only_spare => {
                if let Some(mut room) = core.room_now(&mut pace) {
                    room.wanted.all_start = false;
                    let look_back = idle.look_back(Instant::now());
                    under_way.push(core.ask(Hand::Own(&link), room, look_back, None));
                }
                continue;
            }
            () = core.stopped.cancelled() => return,
        };
        let answer = rows.and_then(|rows| Answer::new(&core, rows, asked.token, asked.began));
        let answer = match answer {
            Ok(answer) => answer,
            Err(e) if asked.fresh => {
                // The next claim does without it, and says what is wrong if it is not only that.
                can_fresh &= e.is_retryable();
                tracing::warn!(error = %e, "cannot claim what is fresh, will do without");
                core.answered(&asked);
                continue;
            }
            Err(e) => {
                tracing::warn!(error = %e, "cannot claim, will try again");
                core.failed(&asked);
                settled.failed();
                if asked.bundle {
                    bundling.asked(false, Instant::now());
                }
                brought = Brought::default();
                failed = Some(if e.is_retryable() {
                    Duration::from_millis(100)
                } else {
                    Duration::from_secs(1)
                });
                continue;
            }
        };
        core.meters
            .claim
            .record(asked.began.elapsed().as_secs_f64());
        if asked.fresh {
            // Whatever it brought starts at once; the next claim looks at everything.
            if answer.jobs() > 0 {
                rung = false;
                idle.busy();
                company.claimed(answer.jobs(), None, Instant::now());
            }
            core.note(&answer, Taken::Fresh);
            core.answered(&asked);
            core.take_in(answer, Taken::Fresh);
            fill_slots(&core);
            continue;
        }
        pace.claim_took(asked.began.elapsed());
        let how = Taken::Claimed {
            rewinds: asked.rewinds,
        };
        let jobs = answer.jobs();
        let all = jobs >= asked.want;
        brought.jobs += jobs;
        brought.suspects += answer.suspects();
        brought.parked += answer.parked();
        brought.more |= all || answer.more() || asked.until.is_some();
        if asked.bundle {
            bundling.asked(jobs > 0 || answer.few(), Instant::now());
            // It says nothing of what it left.
            brought.more = true;
        }
        core.note(&answer, how);
        // Where there is no bundle to be had, there may be as many jobs as ever.
        let no_bundle = asked.bundle && jobs == 0 && !answer.few();
        // What has an earlier time than its own, more of its kind may have.
        let took_all = jobs == 0 || answer.left() == 0 && !answer.any_backdated();
        let looked_back = !asked.look_back.is_zero() && !all && !answer.more();
        let clean = asked.until.is_some() && (looked_back || asked.bundle && took_all);
        if let Some(seen) = answer.seen() {
            settled.answered(seen, clean, Instant::now());
        }
        if let Some(until) = asked.until.filter(|_| looked_back) {
            settled.looked_back(until);
        }
        let what = match jobs {
            _ if asked.until.is_none() || all || no_bundle || core.is_behind(&asked) => {
                Found::NotAll
            }
            MANY.. => Found::Enough,
            _ if answer.left() > 0 => Found::Few,
            _ => Found::Nothing,
        };
        settled.found(what, Instant::now());
        let last = if !all && !asked.spare && !asked.rest.is_empty() {
            under_way.push(on_its_way(core.ask_rest(&link, asked, jobs)));
            None
        } else {
            core.answered(&asked);
            let now = Instant::now();
            company.claimed(jobs, answer.other(), now);
            lock(&core.slots).alone(company.is_alone(now));
            idle.another_looks(!company.is_first(core.worker_id(), now));
            let many = jobs >= SPARE_FROM || no_bundle;
            let spare = Some(&spare).filter(|_| many && company.is_alone(now));
            if (all || no_bundle) && failed.is_none() {
                let mind = (&mut pace, &mut idle, &bundling, &settled, &company);
                core.ask_more(&link, spare, mind, &mut under_way);
            }
            Some(asked)
        };
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

        if brought.jobs > 0 {
            idle.busy();
        }
        // Where one has failed, the others say nothing of what is left.
        let Some(asked) = last.filter(|_| under_way.is_empty() && failed.is_none()) else {
            continue;
        };
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
            if !std::mem::replace(&mut prepared, true) {
                // As if somebody had: what is asked then takes the session some milliseconds to prepare.
                core.rung_for.store(0, Relaxed);
                just_rung = true;
                continue;
            }
            let since = Instant::now();
            let woken = core.wait_idle(&link, &mut idle, asked.rung).await;
            rung |= woken;
            just_rung = woken && since.elapsed() >= FRESH_AFTER;
        } else {
            rung = false;
        }
    }
}

impl Core {
    /// Waits until more jobs are wanted, and says how many. `None` when the worker stops.
    async fn wait_for_room(&self, pace: &mut Pace) -> Option<Room> {
        loop {
            let freed = self.room.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.stopping.is_cancelled() {
                return None;
            }
            if let Some(room) = self.room_now(pace) {
                return Some(room);
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
    fn room_now(&self, rate: &mut Pace) -> Option<Room> {
        let pace = rate.ahead(self.finished.load(Relaxed), Instant::now());
        let ahead = (!self.suspects.load(Relaxed)).then_some(pace);
        let most_waiting = ahead.unwrap_or(0) / 2;
        self.low_water.store(most_waiting, Relaxed);
        let mut slots = lock(&self.slots);
        let wanted = slots.wanted(ahead, rand::random);
        // A few at a time would be many claims: wait until a good part of what may wait is used up.
        let now = wanted.total > 0
            && (wanted.free > 0 || slots.waiting_or_coming() <= most_waiting)
            && self.acks.len() < UNSENT_MAX
            && !self.stopping.is_cancelled();
        now.then(|| {
            let ticket = slots.ask(&wanted);
            let held = slots.running() + slots.waiting_or_coming();
            Room {
                ticket,
                wanted,
                quick: ahead.is_some() && rate.ends(held, QUICK),
                torrent: rate.ends(TORRENT, Duration::from_secs(1)),
            }
        })
    }

    /// Sends claims for as much as there is room for now, without waiting for what they bring: one on the worker's own connection, and one
    /// on the spare.
    fn ask_more<'a>(
        &'a self,
        own: &'a Link,
        spare: Option<&Spare>,
        (pace, idle, bundling, settled, company): Mind<'_>,
        under_way: &mut Vec<Asked<'a>>,
    ) {
        let is_free = |on_spare| !under_way.iter().any(|asked| asked.spare == on_spare);
        let own = is_free(false).then_some(Hand::Own(own));
        let spare = spare.filter(|_| is_free(true)).and_then(Spare::take);
        for hand in own.into_iter().chain(spare.map(Hand::Spare)) {
            // What may start at once counts on its slots: nobody else may fill them first.
            if under_way.iter().any(|asked| asked.all_start) {
                return;
            }
            let Some(mut room) = self.room_now(pace) else {
                return;
            };
            room.wanted.all_start &= under_way.is_empty();
            let until = self.until(&room, settled, company);
            let look_back = self.look_back_in_flood(&room, idle, settled.behind(until));
            let asked = if look_back.is_zero() && self.may_bundle(&room, bundling) {
                self.ask_bundle(hand, room, until)
            } else {
                self.ask(hand, room, look_back, until)
            };
            under_way.push(on_its_way(asked));
        }
    }

    /// How far to look back in a flood. Not at all where that leads nowhere: in a backlog that was due long ago, what is committed late is still ahead.
    fn look_back_in_flood(&self, room: &Room, idle: &mut Idle, behind: Behind) -> Duration {
        let is_behind = |lane| lock(&self.lane(lane).cursor).is_behind(LOOK_FAR_BACK);
        if room.wanted.lanes.iter().all(|(lane, _)| is_behind(*lane)) {
            return Duration::ZERO;
        }
        idle.look_back_in_flood(Instant::now(), behind)
    }

    /// How far the next claim is to go in a torrent. All the way beside other workers, who may go further and leave something behind; with several queues, where each would
    /// have its own end; and from a cursor that was set back, which has to come as far as the others are.
    fn until(&self, room: &Room, settled: &Settled, company: &Company) -> Option<Micros> {
        let now = Instant::now();
        if !room.torrent || !company.is_alone(now) {
            return None;
        }
        match &self.lanes()[..] {
            [lane] if lock(&lane.cursor).may_follow() => settled.until(now),
            _ => None,
        }
    }

    /// Whether a claim has not come near to what is coming in.
    fn is_behind(&self, asked: &Asked<'_>) -> bool {
        let mut cursors = asked.from.iter().map(|(lane, _)| lock(&lane.cursor));
        cursors.all(|cursor| cursor.is_behind(RECENT))
    }

    /// A claim failed. It may have told the others to begin behind jobs that it then did not take, and another claim of this worker may have
    /// come back from behind them.
    fn failed(&self, asked: &Asked<'_>) {
        for (lane, from) in &asked.from {
            let mut cursor = lock(&lane.cursor);
            cursor.back_to(from);
            self.rewinds.fetch_add(1, Relaxed);
        }
        self.answered(asked);
    }

    /// A claim is over: nobody counts on what it might bring any more.
    fn answered(&self, asked: &Asked<'_>) {
        lock(&self.slots).answered(&asked.ticket);
        self.slot_freed.notify_waiters();
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
