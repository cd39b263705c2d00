//! Idle: what a worker does when a claim found nothing. Spin for a moment, arm the bell, make sure that nobody was missed, then
//! wait. Once armed it stays so while jobs come and go, until there are too many. Pure: it is told the time and answers with the next
//! step. See `sql/functions/06_wake.sql` for why each step is there.

use std::time::{Duration, Instant};

use super::settled::Behind;

/// A queue that has just run dry is polled again after this long at first…
const SPIN_FIRST: Duration = Duration::from_millis(1);
/// …and after this long later…
const SPIN_MOST: Duration = Duration::from_millis(2);
/// …and for this long in all. Short: whoever comes while the bell is not armed yet waits for the next poll.
const SPIN_FOR: Duration = Duration::from_millis(3);
/// After a flood, for this long: it may go on, and then nobody should have to ring. And where no bell is heard.
const SPIN_LONGER: Duration = Duration::from_millis(20);
/// A flood is over after this long.
const FLOOD_FOR: Duration = Duration::from_secs(5);
/// A queue that brought nothing for so long is quiet.
const QUIET_AFTER: Duration = Duration::from_millis(8);
/// Rows commit out of order by about this much under load…
const LOOK_BACK: Duration = Duration::from_millis(50);
/// …and so often a busy worker looks back for them.
const LOOK_BACK_EVERY: Duration = Duration::from_millis(20);
/// In a flood, where each look sees all that is leased, it does so more rarely, and each time to where it did before, and a little further: most of
/// that is finished by then, and what was passed over is among the first that it sees.
const FLOOD_LOOK_BACK_EVERY: Duration = Duration::from_millis(100);
/// …if no other worker of the queue does so. All would walk over the same rows; but that one may be slow, or not have all kinds or queues.
const FLOOD_LOOK_BACK_BESIDE_EVERY: Duration = Duration::from_millis(500);
/// In a quiet queue there is time to look further.
pub(super) const LOOK_FAR_BACK: Duration = Duration::from_secs(1);
/// How long one arming lasts. A dead worker's lapses by itself.
pub(super) const ARMED_FOR: Duration = Duration::from_secs(10);
/// It is renewed when this much of it is over, so that it never lapses under one that waits.
const ARM_AGAIN: Duration = Duration::from_secs(8);
/// How often at most to ask when the next scheduled job is due.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Polls while older transactions are still in progress.
const SETTLE_EVERY: Duration = Duration::from_millis(10);
/// Some transactions never seem to end. What they bring is found by the next look, or the next full scan.
const SETTLE_FOR: Duration = Duration::from_secs(1);

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// Wait this long, or for a wake-up, then claim.
    Wait(Duration),
    /// Arm the bell, tell [`Idle::armed`], then claim.
    Arm,
    /// Wait this long, or for a wake-up; if there is none, arm the bell, tell [`Idle::armed`], and ask again without a claim: whoever
    /// came meanwhile has rung.
    WaitAndArm(Duration),
    /// Wait this long, then ask whether older transactions than this one are in progress, tell [`Idle::settled`] if there are none,
    /// and claim in any case.
    Settle(Duration, i64),
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The bell is not armed, or not for this worker. There was work a moment ago.
    Spinning {
        since: Option<Instant>,
        wait: Duration,
    },
    /// The bell is armed, but a producer that looked before may not have committed yet.
    Settling {
        armed: Instant,
        xid: i64,
        next_due: Option<Duration>,
    },
    /// Whoever commits now rings.
    Parked {
        armed: Instant,
        next_due: Option<Duration>,
    },
}

/// The state of a worker that finds nothing to do.
#[derive(Debug)]
pub(super) struct Idle {
    phase: Phase,
    /// How often to look where no bell is heard.
    poll: Duration,
    /// Since when claims have brought nothing.
    dry: Option<Instant>,
    /// Since the last work a claim has looked far back: who rang while nobody waited for it is not missed.
    checked: bool,
    /// When there was a flood.
    flooded: Option<Instant>,
    looked_back: Option<Instant>,
    /// When it did in a flood.
    gleaned: Option<Instant>,
    /// Another worker of the same queue does so often enough.
    another_looks: bool,
}

impl Idle {
    pub(super) fn new(poll: Duration) -> Self {
        Self {
            phase: Self::SPIN,
            poll,
            dry: None,
            checked: false,
            flooded: None,
            looked_back: None,
            gleaned: None,
            another_looks: false,
        }
    }

    const SPIN: Phase = Phase::Spinning {
        since: None,
        wait: SPIN_FIRST,
    };

    /// A claim brought work. A bell that is armed stays so: whoever comes next rings.
    pub(super) fn busy(&mut self) {
        self.dry = None;
        self.checked = false;
        if let Phase::Spinning { .. } = self.phase {
            self.phase = Self::SPIN;
        }
    }

    /// Jobs come in such numbers that ringing for them only makes commits wait for each other.
    pub(super) fn flooded(&mut self, now: Instant) {
        self.flooded = Some(now);
    }

    /// Whether in a flood another worker looks back for this one too.
    pub(super) fn another_looks(&mut self, it_does: bool) {
        self.another_looks = it_does;
    }

    /// Nobody rings any more, or not for all queues.
    pub(super) fn disarmed(&mut self) {
        self.phase = Self::SPIN;
    }

    /// A claim brought nothing. `listening`: whether a bell would be heard; `luck` in 0..1 spreads the polls of many workers.
    pub(super) fn empty(&mut self, now: Instant, listening: bool, luck: f64) -> Step {
        let poll = self.poll.mul_f64(0.75 + 0.5 * luck);
        let dry = *self.dry.get_or_insert(now);
        let flood = self.flooded.map(|at| now.duration_since(at));
        let spin_for = if listening && flood.is_none_or(|ago| ago >= FLOOD_FOR) {
            SPIN_FOR
        } else {
            SPIN_LONGER
        };
        match &mut self.phase {
            Phase::Spinning { since, wait } => {
                let since = *since.get_or_insert(now);
                if now.duration_since(since) < spin_for {
                    let step = Step::Wait(*wait);
                    *wait = (*wait * 2).min(SPIN_MOST);
                    step
                } else if listening {
                    Step::Arm
                } else {
                    Step::Wait(poll)
                }
            }
            Phase::Settling {
                armed,
                xid,
                next_due,
            } => {
                if now.duration_since(*armed) < SETTLE_FOR {
                    return Step::Settle(SETTLE_EVERY, *xid);
                }
                let (armed, next_due) = (*armed, *next_due);
                self.phase = Phase::Parked { armed, next_due };
                self.empty(now, listening, luck)
            }
            Phase::Parked { armed, next_due } => {
                let age = now.duration_since(*armed);
                // A job that is scheduled is due at a known time; nobody rings for it. One whose time has come and that is
                // not to be had is somebody else's: the arming asks for the next.
                let due = next_due.filter(|due| *due > age);
                if !listening {
                    return Step::Wait(due.map_or(poll, |due| poll.min(due - age)));
                }
                if due != *next_due && age < ASK_EVERY {
                    return Step::Wait(ASK_EVERY - age);
                }
                if due != *next_due || age >= ARM_AGAIN {
                    return Step::Arm;
                }
                if !self.checked {
                    let quiet = QUIET_AFTER.saturating_sub(now.duration_since(dry));
                    return Step::Wait(due.map_or(quiet, |due| quiet.min(due - age)));
                }
                // Early by chance, so that the many workers of a fleet do not come all at once.
                let again = ARM_AGAIN.mul_f64(0.8 + 0.2 * luck).saturating_sub(age);
                match due {
                    Some(due) if due - age < again => Step::Wait(due - age),
                    _ => Step::WaitAndArm(again),
                }
            }
        }
    }

    /// The bell was armed by a statement sent at `sent` and answered at `now`. `xid`: which transactions may not have seen that;
    /// `next_due`: when the next scheduled job is due.
    pub(super) fn armed(
        &mut self,
        sent: Instant,
        now: Instant,
        xid: i64,
        next_due: Option<Duration>,
    ) {
        self.phase = match self.phase {
            // It was armed all along: nobody can have missed it.
            Phase::Parked { armed, .. } if now.duration_since(armed) < ARMED_FOR => Phase::Parked {
                armed: sent,
                next_due,
            },
            _ => Phase::Settling {
                armed: sent,
                xid,
                next_due,
            },
        };
    }

    /// No transaction is left that was in progress at the arming. The claim after this is the last before waiting.
    pub(super) fn settled(&mut self) {
        if let Phase::Settling {
            armed, next_due, ..
        } = self.phase
        {
            self.phase = Phase::Parked { armed, next_due };
        }
    }

    /// Somebody has scheduled a job: what is known of the next one may be wrong, and is to be asked for again.
    pub(super) fn rescheduled(&mut self) {
        if let Phase::Settling { next_due, .. } | Phase::Parked { next_due, .. } = &mut self.phase {
            *next_due = Some(Duration::ZERO);
        }
    }

    /// Whether whoever commits now rings.
    pub(super) fn is_parked(&self) -> bool {
        matches!(self.phase, Phase::Parked { .. })
    }

    /// Whether claims have brought nothing for a while.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        self.dry
            .is_some_and(|since| now.duration_since(since) >= QUIET_AFTER)
    }

    /// How far back the next claim should look, for rows that were committed out of order: a little now and then, and far before a
    /// long wait.
    pub(super) fn look_back(&mut self, now: Instant) -> Duration {
        let far = self.is_quiet(now);
        let in_flood = self.look_back_in_flood(now, Behind::Something);
        let lately = self
            .looked_back
            .is_some_and(|at| now.duration_since(at) < LOOK_BACK_EVERY);
        // While it spins it looks again soon.
        if lately && matches!(self.phase, Phase::Spinning { .. }) {
            return in_flood;
        }
        self.looked_back = Some(now);
        self.checked = far;
        in_flood.max(if far { LOOK_FAR_BACK } else { LOOK_BACK })
    }

    /// The same for a claim that follows one that brought all it was asked for. Where nothing lies behind, it is as if it had looked.
    pub(super) fn look_back_in_flood(&mut self, now: Instant, behind: Behind) -> Duration {
        let Some(flooded) = self.flooded else {
            return Duration::ZERO;
        };
        let before = self.gleaned.map_or(LOOK_BACK, |at| now.duration_since(at));
        let over = now.duration_since(flooded) >= FLOOD_FOR;
        let every = if self.another_looks {
            FLOOD_LOOK_BACK_BESIDE_EVERY
        } else {
            FLOOD_LOOK_BACK_EVERY
        };
        let lately = self.gleaned.is_some() && before < every;
        if over || lately || behind == Behind::Soon {
            return Duration::ZERO;
        }
        self.gleaned = Some(now);
        if behind == Behind::Nothing {
            return Duration::ZERO;
        }
        LOOK_FAR_BACK.min(before + LOOK_BACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_secs(1);

    /// Runs an idle worker until it waits for the bell, and returns what it did.
    fn until_parked(idle: &mut Idle, now: &mut Instant, settle_after: usize) -> Vec<&'static str> {
        let (mut did, mut settles) = (Vec::new(), 0);
        for _ in 0..1000 {
            idle.look_back(*now);
            match idle.empty(*now, true, 0.5) {
                Step::Wait(d) if d < Duration::from_millis(100) => {
                    did.push("spin");
                    *now += d;
                }
                Step::Wait(_) | Step::WaitAndArm(_) => return did,
                Step::Arm => {
                    did.push("arm");
                    idle.armed(*now, *now, 7, None);
                }
                Step::Settle(d, 7) => {
                    did.push("settle");
                    *now += d;
                    settles += 1;
                    if settles >= settle_after {
                        idle.settled();
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("it never waits: {did:?}");
    }

    #[test]
    fn it_spins_then_arms_then_settles_then_waits() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        let mut did = until_parked(&mut idle, &mut now, 2);
        did.dedup();
        assert_eq!(did, ["spin", "arm", "settle"]);
    }

    #[test]
    fn it_waits_even_if_an_old_transaction_never_ends() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        let began = now;
        let did = until_parked(&mut idle, &mut now, usize::MAX);
        assert!(
            did.iter().filter(|d| **d == "settle").count() >= 90,
            "{did:?}"
        );
        assert!(now.duration_since(began) < Duration::from_millis(1200));
    }

    #[test]
    fn a_parked_worker_arms_again_without_settling() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        until_parked(&mut idle, &mut now, 1);
        now += ARM_AGAIN;
        assert_eq!(idle.empty(now, true, 0.5), Step::Arm);
        idle.armed(now, now, 9, None);
        assert!(matches!(idle.empty(now, true, 0.5), Step::WaitAndArm(_)));
    }

    #[test]
    fn a_parked_worker_asks_again_when_a_job_is_scheduled_but_not_all_the_time() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        until_parked(&mut idle, &mut now, 1);
        now += ASK_EVERY;
        idle.rescheduled();
        assert_eq!(idle.empty(now, true, 0.5), Step::Arm);
        idle.armed(now, now, 9, Some(Duration::from_millis(300)));
        assert_eq!(
            idle.empty(now, true, 0.5),
            Step::Wait(Duration::from_millis(300))
        );
        idle.rescheduled();
        assert_eq!(idle.empty(now, true, 0.5), Step::Wait(ASK_EVERY));
    }

    #[test]
    fn a_job_that_is_scheduled_while_it_settles_is_not_missed() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        while idle.empty(now, true, 0.5) != Step::Arm {
            now += SPIN_MOST;
        }
        idle.armed(now, now, 9, None);
        idle.rescheduled();
        idle.settled();
        now += ASK_EVERY;
        assert_eq!(idle.empty(now, true, 0.5), Step::Arm);
    }

    #[test]
    fn a_bell_that_is_armed_stays_armed_while_jobs_come_and_go() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        until_parked(&mut idle, &mut now, 1);
        for _ in 0..100 {
            now += Duration::from_millis(5);
            idle.busy();
            assert_eq!(idle.empty(now, true, 0.5), Step::Wait(QUIET_AFTER));
        }
        // What was committed out of order, and rung for while nobody waited, is found by one more look.
        now += QUIET_AFTER;
        assert_eq!(idle.look_back(now), LOOK_FAR_BACK);
        assert!(matches!(idle.empty(now, true, 0.5), Step::WaitAndArm(_)));
        idle.disarmed();
        assert!(matches!(idle.empty(now, true, 0.5), Step::Wait(_)));
        assert_eq!(until_parked(&mut idle, &mut now, 1).last(), Some(&"settle"));
    }

    #[test]
    fn a_worker_that_was_busy_for_long_arms_again_and_settles() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        until_parked(&mut idle, &mut now, 1);
        now += ARMED_FOR;
        idle.busy();
        let did = until_parked(&mut idle, &mut now, 1);
        assert_eq!(did, ["arm", "settle"]);
    }

    #[test]
    fn after_a_flood_it_polls_for_longer_before_it_arms() {
        let spun = |flood: bool| {
            let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
            let began = now;
            if flood {
                idle.flooded(now);
            }
            while idle.empty(now, true, 0.5) != Step::Arm {
                now += SPIN_MOST;
            }
            now.duration_since(began)
        };
        assert!(spun(false) <= SPIN_FOR + SPIN_MOST, "{:?}", spun(false));
        assert!(spun(true) >= SPIN_LONGER, "{:?}", spun(true));
    }

    #[test]
    fn it_looks_back_after_each_wait_and_far_when_it_is_quiet() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        assert_eq!(idle.look_back(now), LOOK_BACK, "nobody has looked yet");
        idle.busy();
        assert_eq!(idle.look_back(now), Duration::ZERO, "it has just looked");
        now += LOOK_BACK_EVERY;
        assert_eq!(idle.look_back(now), LOOK_BACK);
        idle.empty(now, true, 0.5);
        assert_eq!(idle.look_back(now), Duration::ZERO, "it polls again soon");
        idle.armed(now, now, 7, None);
        assert_eq!(idle.look_back(now), LOOK_BACK, "it may wait for long now");
        now += QUIET_AFTER;
        assert_eq!(idle.look_back(now), LOOK_FAR_BACK);
        idle.busy();
        assert_eq!(idle.look_back(now), LOOK_BACK, "the next may be the last");
    }

    #[test]
    fn in_a_flood_it_looks_back_to_where_it_did_before() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        assert_eq!(
            idle.look_back_in_flood(now, Behind::Something),
            Duration::ZERO,
            "no flood"
        );
        idle.flooded(now);
        assert!(
            idle.look_back_in_flood(now, Behind::Something) >= LOOK_BACK,
            "the first time"
        );
        for passed in [FLOOD_LOOK_BACK_EVERY, FLOOD_LOOK_BACK_EVERY * 3] {
            now += FLOOD_LOOK_BACK_EVERY / 2;
            assert_eq!(
                idle.look_back_in_flood(now, Behind::Something),
                Duration::ZERO,
                "too soon"
            );
            now += passed - FLOOD_LOOK_BACK_EVERY / 2;
            assert_eq!(
                idle.look_back_in_flood(now, Behind::Something),
                passed + LOOK_BACK
            );
        }
        now += FLOOD_LOOK_BACK_EVERY;
        let soon = idle.look_back_in_flood(now, Behind::Soon);
        assert_eq!(soon, Duration::ZERO, "it is not all there yet");
        now += FLOOD_LOOK_BACK_EVERY;
        let both = FLOOD_LOOK_BACK_EVERY * 2 + LOOK_BACK;
        assert_eq!(idle.look_back_in_flood(now, Behind::Something), both);
        now += FLOOD_LOOK_BACK_EVERY * 3;
        let nothing = idle.look_back_in_flood(now, Behind::Nothing);
        assert_eq!(nothing, Duration::ZERO, "as if it had looked");
        idle.look_back(now);
        now += FLOOD_LOOK_BACK_EVERY;
        let ordinary = idle.look_back(now);
        assert_eq!(
            ordinary,
            FLOOD_LOOK_BACK_EVERY + LOOK_BACK,
            "whoever asks next"
        );
        idle.another_looks(true);
        now += FLOOD_LOOK_BACK_EVERY;
        let look = idle.look_back_in_flood(now, Behind::Something);
        assert_eq!(look, Duration::ZERO, "more rarely beside another");
        now += FLOOD_LOOK_BACK_BESIDE_EVERY - FLOOD_LOOK_BACK_EVERY;
        let all = FLOOD_LOOK_BACK_BESIDE_EVERY + LOOK_BACK;
        assert_eq!(
            idle.look_back_in_flood(now, Behind::Something),
            all,
            "and leaves nothing out"
        );
        now += LOOK_FAR_BACK * 2;
        assert_eq!(
            idle.look_back_in_flood(now, Behind::Something),
            LOOK_FAR_BACK,
            "no further"
        );
        now += FLOOD_FOR;
        assert_eq!(
            idle.look_back_in_flood(now, Behind::Something),
            Duration::ZERO,
            "it is over"
        );
    }

    /// Who comes before the bell is armed waits for no longer than this.
    #[test]
    fn it_does_not_sleep_long_before_the_bell_is_armed() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        let began = now;
        while let Step::Wait(d) = idle.empty(now, true, 0.5) {
            assert!(d <= SPIN_MOST, "{d:?}");
            now += d;
        }
        assert!(now.duration_since(began) <= SPIN_FOR + SPIN_MOST);
    }

    #[test]
    fn an_arming_that_lapsed_settles_again() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        until_parked(&mut idle, &mut now, 1);
        now += ARMED_FOR;
        assert_eq!(idle.empty(now, true, 0.5), Step::Arm);
        idle.armed(now, now, 9, None);
        assert!(matches!(idle.empty(now, true, 0.5), Step::Settle(_, 9)));
    }

    #[test]
    fn a_scheduled_job_ends_the_wait() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        until_parked(&mut idle, &mut now, 1);
        now += POLL;
        idle.armed(now, now, 9, Some(Duration::from_millis(300)));
        assert_eq!(
            idle.empty(now, true, 0.5),
            Step::Wait(Duration::from_millis(300))
        );
    }

    #[test]
    fn the_bell_stays_armed() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        until_parked(&mut idle, &mut now, 1);
        let mut armed = now;
        for n in 0..100 {
            match idle.empty(now, true, f64::from(n % 10) / 10.0) {
                Step::Wait(d) => now += d,
                Step::WaitAndArm(d) => {
                    now += d;
                    assert!(now.duration_since(armed) < ARMED_FOR, "it lapsed");
                    armed = now;
                    idle.armed(now, now, 9, None);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(now.duration_since(armed) < ARMED_FOR, "it is not renewed");
    }

    #[test]
    fn a_scheduled_job_that_somebody_else_took_does_not_make_it_spin() {
        for listening in [true, false] {
            let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
            until_parked(&mut idle, &mut now, 1);
            now += POLL;
            idle.armed(now, now, 9, Some(Duration::from_millis(300)));
            let (began, mut steps) = (now, 0);
            while now.duration_since(began) < Duration::from_secs(5) {
                steps += 1;
                match idle.empty(now, listening, 0.5) {
                    Step::Wait(d) => now += d,
                    Step::Arm => idle.armed(now, now, 9, None),
                    Step::WaitAndArm(d) => {
                        now += d;
                        idle.armed(now, now, 9, None);
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(steps < 20, "{steps} looks in 5 s, listening: {listening}");
        }
    }

    #[test]
    fn nobody_arms_a_bell_that_is_not_heard() {
        let (mut idle, mut now) = (Idle::new(POLL), Instant::now());
        for _ in 0..100 {
            match idle.empty(now, false, 0.5) {
                Step::Wait(d) => now += d,
                other => panic!("{other:?}"),
            }
        }
    }
}
