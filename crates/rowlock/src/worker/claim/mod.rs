//! The claim loop: ask for jobs when there is room, wait when there are none.
//!
//! `room` says how many are wanted and how far to go for them, `ask` sends the claim, `wait` is what happens when there are none. What the loop goes
//! by is decided elsewhere in the worker, by what does no I/O.

mod ask;
mod room;
mod wait;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use self::ask::{Asked, Hand, first_answer, on_its_way};
use self::room::Room;
use super::answer::Answer;
use super::bundle::{Bundling, MANY};
use super::company::Company;
use super::core::{Core, lock};
use super::idle::{Idle, LOOK_FAR_BACK};
use super::intake::Taken;
use super::pace::Pace;
use super::rings::{Noise, Rings};
use super::run::fill_slots;
use super::settled::{Found, Settled};
use super::spare::Spare;
use crate::db::{Link, Micros};
use crate::error::Error;

/// A claim that brings so many jobs of one queue tells of a flood…
const FLOOD: usize = 50;
/// …in which the bell is disarmed so often, even if nobody is heard to ring: idle workers arm it again.
const DISARM_EVERY: Duration = Duration::from_secs(1);
/// A claim that brings so many asks for help, unless other workers are help enough.
const SPARE_FROM: usize = 500;
/// When only the spare has a claim under way for so long, another is sent beside it.
const SPARE_WAITED_FOR: Duration = Duration::from_millis(100);
/// Who has waited for so long at least and is rung for asks first for what is fresh. Where the bell rings more often, claims are at work anyway.
const FRESH_AFTER: Duration = Duration::from_millis(5);

/// Claims until the worker stops.
///
/// The next claim is sent before the answer of the last is decoded, where it is clear that there is room and that there are jobs:
/// the connection works while this process does. In a flood a second one is sent beside it, on the connection of the scans while they rest.
pub(super) async fn claim_loop(core: Arc<Core>, link: Arc<Link>, spare: Spare) {
    let mut claims = Claims::new(&core, &link, spare);
    while claims.begin().await {
        let last = match claims.next().await {
            Next::Answer(asked, answer) if asked.fresh => claims.brought_fresh(&asked, answer),
            Next::Answer(asked, answer) => claims.brought(asked, answer),
            Next::Failure(asked, error) => claims.failed(&asked, &error),
            Next::Late => claims.ask_beside_the_spare(),
            Next::Stopped => return,
        };
        if let Some(last) = last {
            if !claims.end_round(last).await {
                return;
            }
        }
    }
}

/// What happens while claims are under way.
enum Next<'a> {
    Answer(Asked<'a>, Answer),
    Failure(Asked<'a>, Error),
    /// The spare, which has the only one, takes long to answer.
    Late,
    Stopped,
}

/// What the claims of a round brought: one after the other, until all queues were asked and nothing is under way.
#[derive(Debug, Default)]
struct Brought {
    jobs: usize,
    suspects: usize,
    parked: u32,
    /// One stopped for its own bound, or brought all that was asked for: there may be more.
    more: bool,
}

impl Brought {
    fn is_nothing(&self) -> bool {
        self.jobs == 0 && self.parked == 0 && !self.more
    }
}

/// What one claim brought.
#[derive(Debug, Clone, Copy)]
struct Catch {
    jobs: usize,
    /// As many as were asked for.
    all: bool,
    /// It asked for a bundle and there is none to be had, however many jobs there may be.
    no_bundle: bool,
}

impl Catch {
    fn of(asked: &Asked<'_>, answer: &Answer) -> Self {
        let jobs = answer.jobs();
        Self {
            jobs,
            all: jobs >= asked.want,
            no_bundle: asked.bundle && jobs == 0 && !answer.few(),
        }
    }
}

/// The claims of a worker, and what it goes by when it asks for more.
struct Claims<'a> {
    core: &'a Arc<Core>,
    own: &'a Arc<Link>,
    spare: Spare,
    /// At most one on each connection.
    under_way: Vec<Asked<'a>>,
    brought: Brought,
    /// One of the round has failed: the next waits for so long.
    failed: Option<Duration>,
    pace: Pace,
    idle: Idle,
    bundling: Bundling,
    settled: Settled,
    company: Company,
    rings: Rings,
    disarmed: Option<Instant>,
    /// Somebody has rung, and nothing was found since.
    rung: bool,
    /// The next claim looks first at what has just become due…
    fresh_first: bool,
    /// …if the database knows how.
    can_fresh: bool,
    /// It has done so once, for nothing.
    prepared: bool,
}

impl<'a> Claims<'a> {
    fn new(core: &'a Arc<Core>, own: &'a Arc<Link>, spare: Spare) -> Self {
        Self {
            core,
            own,
            spare,
            under_way: Vec::with_capacity(2),
            brought: Brought::default(),
            failed: None,
            pace: Pace::new(core.config.ahead_max),
            idle: Idle::new(core.config.poll),
            bundling: Bundling::new(),
            settled: Settled::default(),
            company: Company::default(),
            rings: Rings::default(),
            disarmed: None,
            rung: false,
            fresh_first: false,
            can_fresh: true,
            prepared: false,
        }
    }

    /// Sees to it that a claim is under way, as soon as there is room for what it may bring. Returns `false` when the worker stops.
    async fn begin(&mut self) -> bool {
        if !self.under_way.is_empty() {
            return true;
        }
        let pause = self.failed.take().or(self.settled.pause(Instant::now()));
        if let Some(pause) = pause {
            self.core.pause_looking(pause).await;
        }
        if let Some(asked) = self.ask_fresh() {
            self.under_way.push(asked);
            return true;
        }
        // Wait for room before looking for jobs.
        let Some(room) = self.core.wait_for_room(&mut self.pace).await else {
            return false;
        };
        if self.core.new_lanes.swap(false, Relaxed) {
            self.idle.disarmed();
        }
        let asked = self.ask_first(room);
        self.under_way.push(asked);
        true
    }

    fn ask_fresh(&mut self) -> Option<Asked<'a>> {
        let first = std::mem::take(&mut self.fresh_first) && self.can_fresh;
        let alone = self.company.is_alone(Instant::now());
        (first && alone).then(|| self.core.ask_fresh(self.own))?
    }

    /// The first claim of a round, which goes by what the round before it brought.
    fn ask_first(&mut self, room: Room) -> Asked<'a> {
        let now = Instant::now();
        let brought = std::mem::take(&mut self.brought);
        let until = self.core.until(&room, &self.settled, &self.company);
        let look_back = if brought.more {
            // The last one did not come to the end: looking back each time would lead to the same place.
            self.look_back_in_flood(&room, until)
        } else {
            self.idle.look_back(now)
        };
        let many = brought.jobs >= MANY || self.settled.pause(now).is_some();
        let bundle = many && look_back.is_zero() && self.core.may_bundle(&room, &self.bundling);
        let until = until.filter(|_| bundle || brought.more && !look_back.is_zero());
        self.ask(Hand::Own(self.own), room, bundle, look_back, until)
    }

    fn ask(
        &self,
        hand: Hand<'a>,
        room: Room,
        bundle: bool,
        look_back: Duration,
        until: Option<Micros>,
    ) -> Asked<'a> {
        let asked = if bundle {
            self.core.ask_bundle(hand, room, until)
        } else {
            self.core.ask(hand, room, look_back, until)
        };
        let starts = asked
            .from
            .iter()
            .map(|(_, cursor)| cursor.stands_at())
            .min();
        Asked {
            leaves_after: self.settled.last().min(starts),
            ..asked
        }
    }

    /// Sends claims for as much as there is room for now, without waiting for what they bring: one on the worker's own connection, and one
    /// on the spare.
    fn ask_more(&mut self, may_use_spare: bool) {
        let is_free = |on_spare| !self.under_way.iter().any(|asked| asked.spare == on_spare);
        let own = is_free(false).then_some(Hand::Own(self.own));
        let spare = (may_use_spare && is_free(true))
            .then(|| self.spare.take())
            .flatten();
        for hand in own.into_iter().chain(spare.map(Hand::Spare)) {
            // What may start at once counts on its slots: nobody else may fill them first.
            if self.under_way.iter().any(|asked| asked.all_start) {
                return;
            }
            let Some(mut room) = self.core.room_now(&mut self.pace) else {
                return;
            };
            room.wanted.all_start &= self.under_way.is_empty();
            let until = self.core.until(&room, &self.settled, &self.company);
            let look_back = self.look_back_in_flood(&room, until);
            let bundle = look_back.is_zero() && self.core.may_bundle(&room, &self.bundling);
            let asked = self.ask(hand, room, bundle, look_back, until);
            self.under_way.push(on_its_way(asked));
        }
    }

    /// Whatever becomes of the claim on the spare, the own connection is there.
    fn ask_beside_the_spare(&mut self) -> Option<Asked<'a>> {
        if let Some(mut room) = self.core.room_now(&mut self.pace) {
            room.wanted.all_start = false;
            let look_back = self.idle.look_back(Instant::now());
            let asked = self.ask(Hand::Own(self.own), room, false, look_back, None);
            self.under_way.push(asked);
        }
        None
    }

    fn look_back_in_flood(&mut self, room: &Room, until: Option<Micros>) -> Duration {
        let (core, idle) = (self.core, &mut self.idle);
        core.look_back_in_flood(room, idle, &self.settled, until)
    }

    async fn next(&mut self) -> Next<'a> {
        let only_spare = self.under_way.iter().all(|asked| asked.spare);
        let (asked, rows) = tokio::select! {
            answered = first_answer(&mut self.under_way) => answered,
            () = tokio::time::sleep(SPARE_WAITED_FOR), if only_spare => return Next::Late,
            () = self.core.stopped.cancelled() => return Next::Stopped,
        };
        match rows.and_then(|rows| Answer::new(self.core, rows, asked.token, asked.began)) {
            Ok(answer) => {
                let took = asked.began.elapsed();
                self.core.meters.claim.record(took.as_secs_f64());
                Next::Answer(asked, answer)
            }
            Err(error) => Next::Failure(asked, error),
        }
    }

    fn failed(&mut self, asked: &Asked<'a>, error: &Error) -> Option<Asked<'a>> {
        self.settled.failed();
        if asked.fresh {
            // The next claim does without it, and says what is wrong if it is not only that.
            self.can_fresh &= error.is_retryable();
            tracing::warn!(%error, "cannot claim what is fresh, will do without");
            self.core.answered(asked);
            return None;
        }
        tracing::warn!(%error, "cannot claim, will try again");
        self.core.failed(asked);
        if asked.bundle {
            self.bundling.asked(false, Instant::now());
        }
        self.brought = Brought::default();
        self.failed = Some(if error.is_retryable() {
            Duration::from_millis(100)
        } else {
            Duration::from_secs(1)
        });
        None
    }

    /// Whatever it brought starts at once; the next claim looks at everything.
    fn brought_fresh(&mut self, asked: &Asked<'a>, answer: Answer) -> Option<Asked<'a>> {
        if answer.jobs() > 0 {
            self.rung = false;
            self.idle.busy();
            self.company.claimed(answer.jobs(), None, Instant::now());
        }
        self.core.note(&answer, Taken::Fresh);
        self.core.answered(asked);
        self.core.take_in(answer, Taken::Fresh);
        fill_slots(self.core);
        None
    }

    /// Asks for more, and only then decodes what there is. Returns the claim if it was the last of its round.
    fn brought(&mut self, asked: Asked<'a>, answer: Answer) -> Option<Asked<'a>> {
        let how = Taken::Claimed {
            rewinds: asked.rewinds,
        };
        let catch = Catch::of(&asked, &answer);
        self.count(&asked, &answer, catch);
        self.core.note(&answer, how);
        self.settle(&asked, &answer, catch);
        let last = self.go_on(asked, &answer, catch);
        self.disarm(&answer);
        self.core.take_in(answer, how);
        fill_slots(self.core);
        if self.brought.jobs > 0 {
            self.idle.busy();
        }
        // Where one has failed, the others say nothing of what is left.
        last.filter(|_| self.under_way.is_empty() && self.failed.is_none())
    }

    fn count(&mut self, asked: &Asked<'a>, answer: &Answer, catch: Catch) {
        self.pace.claim_took(asked.began.elapsed());
        self.brought.jobs += catch.jobs;
        self.brought.suspects += answer.suspects();
        self.brought.parked += answer.parked();
        // A bundle says nothing of what it left.
        self.brought.more |= catch.all || answer.more() || asked.until.is_some() || asked.bundle;
        if asked.bundle {
            let to_be_had = catch.jobs > 0 || answer.few();
            self.bundling.asked(to_be_had, Instant::now());
        }
    }

    /// Notes what the claim has left behind, and whether it came to the end of what is settled.
    fn settle(&mut self, asked: &Asked<'a>, answer: &Answer, catch: Catch) {
        // What has an earlier time than its own, more of its kind may have. And who took nothing may have told others to begin behind what it saw.
        let took_all = answer.few() || answer.left() == 0 && !answer.any_backdated();
        let looked_back =
            !asked.look_back.is_zero() && !catch.all && !answer.more() && !answer.met_locks();
        let clean = asked.until.is_some() && (looked_back || asked.bundle && took_all);
        if let Some(seen) = answer.seen() {
            let left = (!clean).then_some(asked.leaves_after);
            self.settled.answered(seen, left, Instant::now());
        }
        if let (Some(until), Some((clock, _))) =
            (asked.until.filter(|_| looked_back), answer.seen())
        {
            let far = asked.look_back >= LOOK_FAR_BACK;
            let from = (!far).then(|| clock.before(asked.look_back));
            self.settled.looked_back(from, until);
        }
        let not_all = asked.until.is_none() || catch.all || catch.no_bundle;
        let found = match catch.jobs {
            _ if not_all || self.core.is_behind(asked) => Found::NotAll,
            MANY.. => Found::Enough,
            _ if answer.left() > 0 => Found::Few,
            _ => Found::Nothing,
        };
        self.settled.found(found, Instant::now());
    }

    /// Asks the queues that were left out, or for more where there seems to be more. Returns the claim if all its queues were asked.
    fn go_on(&mut self, asked: Asked<'a>, answer: &Answer, catch: Catch) -> Option<Asked<'a>> {
        if !catch.all && !asked.spare && !asked.rest.is_empty() {
            let rest = self.core.ask_rest(self.own, asked, catch.jobs);
            self.under_way.push(on_its_way(rest));
            return None;
        }
        self.core.answered(&asked);
        let now = Instant::now();
        self.company.claimed(catch.jobs, answer.other(), now);
        let alone = self.company.is_alone(now);
        lock(&self.core.slots).alone(alone);
        let first = self.company.is_first(self.core.worker_id(), now);
        self.idle.another_looks(!first);
        if (catch.all || catch.no_bundle) && self.failed.is_none() {
            let many = catch.jobs >= SPARE_FROM || catch.no_bundle;
            self.ask_more(many && alone);
        }
        Some(asked)
    }

    /// Nobody has to ring for a while where it only makes commits wait for each other.
    fn disarm(&mut self, answer: &Answer) {
        let now = Instant::now();
        let noise = self.rings.noise(self.core.rings.load(Relaxed), now);
        let enough = if noise == Noise::Much { 1 } else { FLOOD };
        let flooded = answer.queues_with(enough);
        if !flooded.is_empty() {
            self.idle.flooded(now);
        }
        let is_due = |at: Instant| now.duration_since(at) >= DISARM_EVERY;
        let (queues, if_they_wait) =
            if !flooded.is_empty() && (noise == Noise::Much || self.disarmed.is_none_or(is_due)) {
                self.disarmed = Some(now);
                self.idle.disarmed();
                (flooded, false)
            } else if noise == Noise::Some {
                (answer.queues_with(1), true)
            } else {
                return;
            };
        if queues.is_empty() {
            return;
        }
        self.rings.heeded(self.core.rings.load(Relaxed), now);
        let (core, link) = (self.core.clone(), self.own.clone());
        // Beside this loop: its answer comes after that of a claim that is under way, which only this loop takes off the connection.
        self.core.looking.spawn(async move {
            if !if_they_wait || core.commits_wait(&link).await {
                core.disarm(&link, queues).await;
            }
        });
    }

    /// All queues were asked. If there was nothing, waits until there may be something. Returns `false` when the worker stops.
    async fn end_round(&mut self, last: Asked<'a>) -> bool {
        if self.brought.suspects == 0 && last.all_start {
            self.core.suspects.store(false, Relaxed);
        }
        if !self.brought.is_nothing() {
            self.rung = false;
            return true;
        }
        if self.core.stopping.is_cancelled() {
            return false;
        }
        self.core.tell_if_drained();
        if self.rung && self.idle.is_quiet(Instant::now()) {
            // What somebody rang for may lie behind the cursors.
            self.core.sweep.notify_one();
            self.rung = false;
        }
        if !std::mem::replace(&mut self.prepared, true) {
            // As if somebody had: what is asked then takes the session some milliseconds to prepare.
            self.core.rung_for.store(0, Relaxed);
            self.fresh_first = true;
            return true;
        }
        let since = Instant::now();
        let woken = self
            .core
            .wait_idle(self.own, &mut self.idle, last.rung)
            .await;
        self.rung |= woken;
        self.fresh_first = woken && since.elapsed() >= FRESH_AFTER;
        true
    }
}

impl Core {
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
}
