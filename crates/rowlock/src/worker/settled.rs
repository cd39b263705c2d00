//! What is settled: how far claims may go in a flood without leaving behind what is not committed yet. Pure: it is told the time.
//!
//! Jobs are claimed in the order in which they came in, but not committed in that order. Whoever claims the newest leaves those behind that are still
//! on their way, and has to look back for them, over all that is finished by then. In a flood that costs more than waiting for them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::db::Micros;

/// When what is settled lies so far back, some transaction takes long: then claims go on without it, and look back.
pub(super) const RECENT: Duration = Duration::from_millis(40);
/// So much has to be settled of what claims may have left behind before somebody looks back for it, unless it is all.
const WORTH_IT: Duration = Duration::from_millis(50);
/// A claim looks a little later than it is sent.
const ON_ITS_WAY: Duration = Duration::from_millis(10);
/// Claims that were answered and are not settled yet. There are a few; more only while some transaction takes long.
const MARKS_MAX: usize = 64;
/// A claim that has come to the end of what is settled is followed by the next after this time…
const PAUSE: Duration = Duration::from_millis(2);
/// …and when they have found nothing for so long, by one that goes all the way…
const PATIENCE: Duration = Duration::from_millis(20);
/// …or for so long only a few, which are not worth a bundle.
const PATIENCE_WITH_FEW: Duration = Duration::from_millis(4);

/// What a claim says of the transactions beside it.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Seen {
    /// Its own, which began after the database's clock was read.
    xid: i64,
    /// The first that was not over when it began to look.
    oldest: i64,
}

/// What a claim found that was to go no further than what is settled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Found {
    /// It did not come to the end.
    NotAll,
    /// It came to the end, and there were enough jobs on the way.
    Enough,
    /// A few that nobody has taken yet.
    Few,
    Nothing,
}

/// Whether something may lie behind the place where claims are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Behind {
    Nothing,
    /// Something that may not be committed yet.
    Soon,
    Something,
}

/// What claims may have left behind, and nobody has looked for since.
#[derive(Debug, Clone, Copy)]
struct Gap {
    /// Nothing that was due by then. `None`: nobody knows.
    after: Option<Micros>,
    /// The last of them read the clock then.
    to: Micros,
}

#[derive(Debug, Default)]
pub(super) struct Settled {
    /// When claims looked at the clock, and their transactions, which came after.
    marks: VecDeque<(Micros, i64)>,
    /// All that was due by then is committed.
    until: Option<Micros>,
    /// The database's time when it last answered, and ours.
    heard: Option<(Micros, Instant)>,
    gap: Option<Gap>,
    /// Since when claims have found nothing or a few, and which.
    short: Option<(Instant, Found)>,
}

impl Settled {
    /// A claim was answered that read the clock then. `left`: it may have left something behind, though nothing that was due by this time.
    pub(super) fn answered(
        &mut self,
        (clock, seen): (Micros, Option<Seen>),
        left: Option<Option<Micros>>,
        now: Instant,
    ) {
        if let Some(after) = left {
            self.widen(after, clock);
        }
        let Some(seen) = seen else {
            return;
        };
        // Of two under way the first may be answered last.
        let late = |last: Micros| clock < last && last.since(clock) < RECENT;
        if self.heard.is_none_or(|(last, _)| !late(last)) {
            self.heard = Some((clock, now));
        }
        self.marks.push_back((clock, seen.xid));
        while let Some((clock, _)) = self.marks.front().filter(|(_, xid)| *xid <= seen.oldest) {
            // Whoever came next may have read the same microsecond.
            self.until = Some(Micros(clock.0 - 1));
            self.marks.pop_front();
        }
        if self.marks.len() > MARKS_MAX {
            self.marks.pop_front();
        }
    }

    fn widen(&mut self, after: Option<Micros>, clock: Micros) {
        let gap = self.gap.unwrap_or(Gap { after, to: clock });
        // Where the clock was set back, what lay ahead does so no more.
        let ahead = gap.to.since(clock) >= RECENT;
        self.gap = Some(Gap {
            after: gap.after.min(after),
            to: if ahead { clock } else { gap.to.max(clock) },
        });
    }

    /// All that was due by then is committed, however long ago that was.
    pub(super) fn last(&self) -> Option<Micros> {
        self.until
    }

    /// A claim failed. Whoever answers next may be another server, with other transactions.
    pub(super) fn failed(&mut self) {
        self.marks.clear();
        self.until = None;
    }

    /// How far the next claim is to go; `None`: all the way.
    pub(super) fn until(&self, now: Instant) -> Option<Micros> {
        let (clock, at) = self.heard?;
        let until = self.until?;
        // Where the clock was set back, that time is no end at all.
        let recent = until <= clock && clock.since(until) < RECENT;
        (recent && now.duration_since(at) < RECENT).then_some(until)
    }

    /// Whether a claim that goes so far should look back.
    pub(super) fn behind(&self, until: Option<Micros>) -> Behind {
        let (Some(gap), Some(until)) = (self.gap, until) else {
            return match self.gap {
                None => Behind::Nothing,
                Some(_) => Behind::Something,
            };
        };
        let all = until >= gap.to;
        let much = |after: Micros| until.since(after) >= WORTH_IT;
        if all || gap.after.is_none_or(much) {
            Behind::Something
        } else {
            Behind::Soon
        }
    }

    /// How far back that is, for a claim that is sent now; `None`: further than anybody knows.
    pub(super) fn reach(&self, now: Instant) -> Option<Duration> {
        let (clock, at) = self.heard?;
        let after = self.gap?.after?;
        Some(clock.since(after) + now.duration_since(at) + ON_ITS_WAY)
    }

    /// A claim that went so far has looked back, from that time on or (`None`) as far as anybody does, and has taken all there was.
    pub(super) fn looked_back(&mut self, from: Option<Micros>, until: Micros) {
        let Some(gap) = self.gap else {
            return;
        };
        let reached = from.is_none_or(|from| gap.after.is_some_and(|after| from <= after));
        if reached {
            self.gap = (until < gap.to).then_some(Gap {
                after: Some(until),
                to: gap.to,
            });
        }
    }

    /// What the last claim found.
    pub(super) fn found(&mut self, what: Found, now: Instant) {
        self.short = match (self.short, what) {
            (_, Found::NotAll) => None,
            (Some((since, before)), Found::Few | Found::Nothing) if before == what => {
                Some((since, what))
            }
            _ => Some((now, what)),
        };
    }

    /// Whether there may be more in a moment, though the last claim brought nothing: how long to wait then. One right after it would find nothing new.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        let (since, found) = self.short?;
        let patience = if found == Found::Few {
            PATIENCE_WITH_FEW
        } else {
            PATIENCE
        };
        (now.duration_since(since) < patience).then_some(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    /// What happens around a worker that claims. Numbers choose among the transactions there are.
    #[derive(Debug, Clone)]
    enum Event {
        /// A producer's transaction gets its number, …
        Begin,
        /// …takes the time for a job, …
        Stamp(usize),
        /// …and commits.
        Commit(usize),
        /// A claim looks, all the way if so, and perhaps somebody has one of the jobs locked, …
        Look { all_the_way: bool, locked: bool },
        /// …and is answered; two may be under way.
        Answer(usize),
        /// Nothing, for long.
        Pass,
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let look = (prop::bool::weighted(0.2), prop::bool::weighted(0.1));
        let event = prop_oneof![
            20 => Just(Event::Begin),
            30 => (0usize..4).prop_map(Event::Stamp),
            20 => (0usize..4).prop_map(Event::Commit),
            30 => look.prop_map(|(all_the_way, locked)| Event::Look { all_the_way, locked }),
            30 => (0usize..2).prop_map(Event::Answer),
            1 => Just(Event::Pass),
        ];
        proptest::collection::vec(event, 0..150)
    }

    /// A claim that has looked.
    #[derive(Debug)]
    struct Claim {
        clock: i64,
        seen: Seen,
        until: Option<Micros>,
        /// By then nothing was left.
        last: Option<Micros>,
        /// From when on, if it looks back.
        looks_back: Option<Micros>,
        took_all: bool,
    }

    /// A database, and a worker that claims there.
    #[derive(Debug, Default)]
    struct World {
        clock: i64,
        xid: i64,
        /// The numbers of open transactions, each with the times of its jobs.
        open: Vec<(i64, Vec<i64>)>,
        /// The times of jobs that are committed and not taken.
        ready: Vec<i64>,
        /// Where claims stand.
        stop: i64,
        under_way: Vec<Claim>,
        settled: Settled,
    }

    impl World {
        fn look(&mut self, all_the_way: bool, locked: bool, now: Instant) {
            let until = self.settled.until(now).filter(|_| !all_the_way);
            // Not each time; and no further than is said.
            let looks_back = (self.xid % 2 == 0 && self.settled.behind(until) == Behind::Something)
                .then(|| {
                    let reach = self.settled.reach(now).unwrap_or(1000 * MS);
                    Micros(
                        self.clock
                            - if until.is_some() {
                                reach.as_micros() as i64
                            } else {
                                50_000
                            },
                    )
                });
            let (clock, xid) = (self.clock, self.xid);
            self.xid += 1;
            let claims = self.under_way.iter().map(|c| c.seen.xid);
            let running = self.open.iter().map(|(xid, _)| *xid).chain(claims);
            let oldest = running.min().unwrap_or(xid);
            let end = until.map_or(clock, |until| until.0);
            let from = looks_back.map_or(self.stop, |from| self.stop.min(from.0 - 1));
            let (mut took_all, last) = (
                true,
                self.ready.iter().copied().filter(|at| *at <= end).max(),
            );
            self.ready.retain(|at| {
                let in_the_way = locked && took_all && Some(*at) != last;
                let takes = (from + 1..=end).contains(at) && !in_the_way;
                took_all &= takes || !(from + 1..=end).contains(at);
                !takes
            });
            self.stop = self.stop.max(last.unwrap_or(0));
            let seen = Seen { xid, oldest };
            self.under_way.push(Claim {
                clock,
                seen,
                until,
                // What is locked is left, though it is settled.
                last: self.settled.last().map(|last| last.min(Micros(from))),
                looks_back,
                took_all,
            });
        }

        fn answer(&mut self, n: usize, now: Instant) {
            let claim = self.under_way.remove(n);
            let is_bundle = claim.looks_back.is_none();
            let clean = claim.until.is_some() && claim.took_all;
            let seen = Some(claim.seen).filter(|_| is_bundle);
            let left = (!clean).then_some(claim.last);
            self.settled
                .answered((Micros(claim.clock), seen), left, now);
            if let (Some(until), Some(from), true) = (claim.until, claim.looks_back, claim.took_all)
            {
                let far = claim.clock - from.0 >= 1_000_000;
                self.settled.looked_back((!far).then_some(from), until);
            }
        }
    }

    proptest! {
        /// Whatever commits in whatever order: when a claim is sent, all jobs are there that were due by its end. And whatever claims have left behind, they come back for.
        #[test]
        fn nothing_is_left_behind(events in events()) {
            let (mut world, mut now) = (World { xid: 1, ..World::default() }, Instant::now());
            for event in events {
                world.clock += 1000;
                now += MS;
                match event {
                    Event::Begin => {
                        world.open.push((world.xid, Vec::new()));
                        world.xid += 1;
                    }
                    Event::Stamp(n) if !world.open.is_empty() => {
                        let n = n % world.open.len();
                        world.open[n].1.push(world.clock);
                    }
                    Event::Commit(n) if !world.open.is_empty() => {
                        let n = n % world.open.len();
                        let jobs = world.open.remove(n).1;
                        world.ready.extend(jobs);
                    }
                    Event::Look { all_the_way, locked } if world.under_way.len() < 2 => {
                        world.look(all_the_way, locked, now);
                    }
                    Event::Answer(n) if !world.under_way.is_empty() => {
                        world.answer(n % world.under_way.len(), now);
                    }
                    Event::Pass => {
                        world.clock += 50_000;
                        now += 50 * MS;
                    }
                    _ => {}
                }
                if let Some(until) = world.settled.until(now) {
                    let first = world.open.iter().flat_map(|(_, jobs)| jobs).min();
                    prop_assert!(first.is_none_or(|at| Micros(*at) > until), "{first:?} is on its way behind {until:?}");
                }
            }
            while let Some((_, jobs)) = world.open.pop() {
                world.ready.extend(jobs);
            }
            while !world.under_way.is_empty() {
                world.answer(0, now);
            }
            for _ in 0..10 {
                world.clock += 10_000;
                now += 10 * MS;
                world.look(false, false, now);
                world.answer(0, now);
            }
            prop_assert_eq!(world.settled.behind(None), Behind::Nothing);
            prop_assert!(world.ready.is_empty(), "nobody looks for {:?}: {world:?}", world.ready);
        }
    }

    fn seen(clock: i64, xid: i64, oldest: i64) -> (Micros, Option<Seen>) {
        (Micros(clock), Some(Seen { xid, oldest }))
    }

    #[test]
    fn what_others_were_at_is_settled_when_they_are_done() {
        let (mut settled, now) = (Settled::default(), Instant::now());
        assert_eq!(settled.until(now), None, "nothing is known yet");
        settled.answered(seen(1000, 10, 8), None, now);
        assert_eq!(settled.until(now), None, "somebody is at it");
        settled.answered(seen(2000, 12, 9), None, now);
        assert_eq!(settled.until(now), None, "and somebody else");
        settled.answered(seen(3000, 14, 11), None, now);
        assert_eq!(settled.until(now), Some(Micros(999)));
        settled.answered(seen(4000, 16, 16), None, now);
        assert_eq!(settled.until(now), Some(Micros(3999)), "nobody but itself");
        settled.failed();
        assert_eq!(settled.until(now), None, "that may be another server");
    }

    #[test]
    fn it_means_nothing_when_it_was_long_ago() {
        let (mut settled, mut now) = (Settled::default(), Instant::now());
        let ms = |n: i64| n * 1000;
        settled.answered(seen(ms(1), 10, 10), None, now);
        settled.answered(seen(ms(30), 12, 11), None, now);
        assert_eq!(settled.until(now), Some(Micros(ms(1) - 1)));
        settled.answered(seen(ms(50), 14, 11), None, now);
        assert_eq!(settled.until(now), None, "a transaction takes long");
        settled.answered(seen(ms(60), 16, 16), None, now);
        assert_eq!(settled.until(now), Some(Micros(ms(60) - 1)));
        settled.answered(seen(ms(59), 15, 11), None, now);
        assert_eq!(settled.until(now), Some(Micros(ms(60) - 1)), "a late one");
        now += RECENT;
        assert_eq!(settled.until(now), None, "nobody has asked for a while");
        settled.answered(seen(ms(5), 18, 11), None, now);
        assert_eq!(settled.until(now), None, "the clock was set back");
        for n in 0..200 {
            settled.answered(seen(ms(6), 20 + n, 11), None, now);
        }
        assert_eq!(settled.marks.len(), MARKS_MAX, "it does not grow for ever");
    }

    /// A settled worker whose claim at 100 ms left something behind, sent when all until 90 ms was settled.
    fn with_a_gap(now: Instant) -> Settled {
        let mut settled = Settled::default();
        settled.answered(seen(90_001, 10, 10), None, now);
        assert_eq!(settled.last(), Some(Micros(90_000)));
        settled.answered((Micros(100_000), None), Some(settled.last()), now);
        settled
    }

    #[test]
    fn who_left_something_behind_looks_back_when_all_of_it_is_there() {
        let now = Instant::now();
        let at = |n| Some(Micros(n));
        let mut settled = Settled::default();
        settled.answered((Micros(3), None), None, now);
        assert_eq!(settled.behind(None), Behind::Nothing, "it took all");
        let mut settled = with_a_gap(now);
        assert_eq!(settled.behind(at(99_999)), Behind::Soon);
        assert_eq!(settled.behind(at(100_000)), Behind::Something);
        assert_eq!(settled.behind(None), Behind::Something, "nobody knows when");
        settled.looked_back(at(50_000), Micros(99_999));
        assert_eq!(
            settled.behind(at(100_000)),
            Behind::Something,
            "not far enough"
        );
        settled.looked_back(at(50_000), Micros(100_000));
        assert_eq!(settled.behind(at(100_000)), Behind::Nothing);
    }

    #[test]
    fn a_look_back_that_does_not_reach_so_far_does_not_count() {
        let now = Instant::now();
        let mut settled = with_a_gap(now);
        let reach = settled.reach(now + 20 * MS);
        let since = Duration::from_micros(1) + 20 * MS;
        assert_eq!(reach, Some(since + ON_ITS_WAY), "from 90 ms on");
        settled.looked_back(Some(Micros(90_001)), Micros(100_000));
        assert_eq!(settled.behind(Some(Micros(100_000))), Behind::Something);
        settled.looked_back(None, Micros(100_000));
        assert_eq!(settled.behind(None), Behind::Nothing, "as far as anybody");
        settled.answered((Micros(200_000), None), Some(None), now);
        assert_eq!(settled.reach(now), None, "nobody knows how far");
    }

    /// Where each claim meets jobs that are due since before they came in, the last of them is never settled.
    #[test]
    fn who_leaves_something_behind_each_time_looks_back_all_the_same() {
        let now = Instant::now();
        let mut settled = with_a_gap(now);
        settled.answered((Micros(150_000), None), Some(Some(Micros(130_000))), now);
        assert_eq!(settled.behind(Some(Micros(139_999))), Behind::Soon);
        assert_eq!(settled.behind(Some(Micros(140_000))), Behind::Something);
        settled.looked_back(Some(Micros(90_000)), Micros(140_000));
        assert_eq!(settled.behind(Some(Micros(141_000))), Behind::Soon);
        assert_eq!(settled.behind(Some(Micros(150_000))), Behind::Something);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_put_the_look_back_off() {
        let now = Instant::now();
        let mut settled = with_a_gap(now);
        settled.answered((Micros(10_000), None), Some(None), now);
        assert_eq!(settled.behind(Some(Micros(10_000))), Behind::Something);
    }

    #[test]
    fn after_the_end_it_pauses_and_then_loses_patience() {
        let (mut settled, mut now) = (Settled::default(), Instant::now());
        let mut pauses = |what: &[Found], after: Duration| {
            now += after;
            for what in what {
                settled.found(*what, now);
            }
            settled.pause(now).is_some()
        };
        use Found::{Enough, Few, NotAll, Nothing};
        assert!(!pauses(&[], MS));
        assert!(!pauses(&[NotAll], MS));
        assert!(pauses(&[Enough], MS));
        assert!(pauses(&[Nothing], MS));
        assert!(pauses(&[Nothing], PATIENCE - MS));
        assert!(!pauses(&[Nothing], MS), "nothing for that long");
        assert!(pauses(&[Enough, Few], MS), "there are some again");
        assert!(
            !pauses(&[Few], PATIENCE_WITH_FEW),
            "they need not wait for more"
        );
        assert!(!pauses(&[Few, NotAll], MS));
        assert!(pauses(&[Enough], MS));
        assert!(!pauses(&[], PATIENCE), "it has done something else since");
    }
}
