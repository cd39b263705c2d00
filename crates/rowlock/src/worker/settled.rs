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
/// Claims that were answered and are not settled yet. There are a few; more only while some transaction takes long.
const MARKS_MAX: usize = 64;
/// A claim that did not bring all it was asked for is followed by the next after this time…
const PAUSE: Duration = Duration::from_millis(2);
/// …and when they have brought next to nothing for so long, by one that goes all the way.
const PATIENCE: Duration = Duration::from_millis(20);

/// What a claim says of the transactions beside it.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Seen {
    /// Its own, which began after the database's clock was read.
    xid: i64,
    /// The first that was not over when it began to look.
    oldest: i64,
}

#[derive(Debug, Default)]
pub(super) struct Settled {
    /// When claims looked at the clock, and their transactions, which came after.
    marks: VecDeque<(Micros, i64)>,
    /// All that was due by then is committed.
    until: Option<Micros>,
    /// The database's time when it last answered, and ours.
    heard: Option<(Micros, Instant)>,
    /// Whether a claim has gone further since somebody looked back.
    beyond: bool,
    /// Since when claims that go no further bring next to nothing, if the last was one and did not bring all.
    short: Option<Instant>,
}

impl Settled {
    /// A claim was answered that was sent with this for its end.
    pub(super) fn answered(
        &mut self,
        until: Option<Micros>,
        seen: Option<(Micros, Seen)>,
        now: Instant,
    ) {
        self.beyond |= until.is_none();
        let Some((clock, seen)) = seen else {
            return;
        };
        self.heard = Some((clock, now));
        self.marks.push_back((clock, seen.xid));
        while let Some((clock, _)) = self.marks.front().filter(|(_, xid)| *xid <= seen.oldest) {
            self.until = Some(*clock);
            self.marks.pop_front();
        }
        if self.marks.len() > MARKS_MAX {
            self.marks.pop_front();
        }
    }

    /// How far the next claim is to go; `None`: all the way.
    pub(super) fn until(&self, now: Instant) -> Option<Micros> {
        let (clock, at) = self.heard?;
        let until = self.until?;
        // Where the clock was set back, that time is no end at all.
        let recent = until <= clock && clock.since(until) < RECENT;
        (recent && now.duration_since(at) < RECENT).then_some(until)
    }

    /// A claim brought jobs. `few`: hardly any; `ended`: it was to go no further than what is settled, and has come there.
    pub(super) fn brought(&mut self, few: bool, ended: bool, now: Instant) {
        self.short = match self.short {
            _ if !ended => None,
            Some(since) if few => Some(since),
            _ => Some(now),
        };
    }

    /// How long to wait before the next claim: one right after that which has come to the end would find nothing new.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.short.map(|_| PAUSE)
    }

    /// Whether there may be more in a moment, though the last claim brought next to nothing.
    pub(super) fn is_patient(&self, now: Instant) -> bool {
        self.short
            .is_some_and(|since| now.duration_since(since) < PATIENCE)
    }

    /// Whether something may have been left behind since this was last asked.
    pub(super) fn must_look_back(&mut self) -> bool {
        std::mem::take(&mut self.beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn seen(clock: i64, xid: i64, oldest: i64) -> Option<(Micros, Seen)> {
        Some((Micros(clock), Seen { xid, oldest }))
    }

    /// What happens around a worker that claims. Numbers choose among the transactions there are.
    #[derive(Debug, Clone)]
    enum Event {
        /// A producer's transaction gets its number, …
        Begin,
        /// …takes the time for a job, …
        Stamp(usize),
        /// …and commits.
        Commit(usize),
        /// A claim looks, …
        Look,
        /// …and is answered; two may be under way.
        Answer(usize),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            2 => Just(Event::Begin),
            3 => (0usize..4).prop_map(Event::Stamp),
            2 => (0usize..4).prop_map(Event::Commit),
            3 => Just(Event::Look),
            3 => (0usize..2).prop_map(Event::Answer),
        ];
        proptest::collection::vec(event, 0..200)
    }

    proptest! {
        /// Whatever commits in whatever order: when a claim is sent, all jobs are there that were due by its end.
        #[test]
        fn nothing_is_on_its_way_behind_what_is_settled(events in events()) {
            let (mut settled, now) = (Settled::default(), Instant::now());
            let (mut clock, mut next_xid) = (0i64, 1i64);
            // The numbers of open transactions, each with the times of its jobs.
            let mut open: Vec<(i64, Vec<i64>)> = Vec::new();
            let mut claims: Vec<(i64, Seen)> = Vec::new();
            for event in events {
                clock += 1;
                match event {
                    Event::Begin => {
                        open.push((next_xid, Vec::new()));
                        next_xid += 1;
                    }
                    Event::Stamp(n) if !open.is_empty() => {
                        let n = n % open.len();
                        open[n].1.push(clock);
                    }
                    Event::Commit(n) if !open.is_empty() => {
                        let n = n % open.len();
                        open.remove(n);
                    }
                    Event::Look if claims.len() < 2 => {
                        let (xid, others) = (next_xid, claims.iter().map(|(_, c)| c.xid));
                        next_xid += 1;
                        let running = open.iter().map(|(xid, _)| *xid).chain(others);
                        let oldest = running.min().unwrap_or(xid);
                        claims.push((clock, Seen { xid, oldest }));
                    }
                    Event::Answer(n) if !claims.is_empty() => {
                        let (at, seen) = claims.remove(n % claims.len());
                        settled.answered(None, Some((Micros(at), seen)), now);
                    }
                    _ => {}
                }
                if let Some(until) = settled.until(now) {
                    let first = open.iter().flat_map(|(_, jobs)| jobs).min();
                    prop_assert!(first.is_none_or(|at| Micros(*at) > until), "{:?} is on its way behind {:?}", first, until);
                }
            }
        }
    }

    #[test]
    fn what_others_were_at_is_settled_when_they_are_done() {
        let (mut settled, now) = (Settled::default(), Instant::now());
        assert_eq!(settled.until(now), None, "nothing is known yet");
        settled.answered(None, seen(1000, 10, 8), now);
        assert_eq!(settled.until(now), None, "somebody is at it");
        settled.answered(None, seen(2000, 12, 9), now);
        assert_eq!(settled.until(now), None, "and somebody else");
        settled.answered(None, seen(3000, 14, 11), now);
        assert_eq!(settled.until(now), Some(Micros(1000)));
        settled.answered(None, seen(4000, 16, 16), now);
        assert_eq!(settled.until(now), Some(Micros(4000)), "nobody but itself");
    }

    #[test]
    fn it_means_nothing_when_it_was_long_ago() {
        let (mut settled, mut now) = (Settled::default(), Instant::now());
        let ms = |n: i64| n * 1000;
        settled.answered(None, seen(ms(1), 10, 10), now);
        settled.answered(None, seen(ms(30), 12, 11), now);
        assert_eq!(settled.until(now), Some(Micros(ms(1))));
        settled.answered(None, seen(ms(50), 14, 11), now);
        assert_eq!(settled.until(now), None, "a transaction takes long");
        settled.answered(None, seen(ms(60), 16, 16), now);
        assert_eq!(settled.until(now), Some(Micros(ms(60))));
        now += RECENT;
        assert_eq!(settled.until(now), None, "nobody has asked for a while");
        settled.answered(None, seen(ms(5), 18, 17), now);
        assert_eq!(settled.until(now), None, "the clock was set back");
        for n in 0..200 {
            settled.answered(None, seen(ms(6), 20 + n, 17), now);
        }
        assert_eq!(settled.marks.len(), MARKS_MAX, "it does not grow for ever");
    }

    #[test]
    fn who_went_further_looks_back_once() {
        let (mut settled, now) = (Settled::default(), Instant::now());
        assert!(!settled.must_look_back());
        settled.answered(Some(Micros(1)), None, now);
        assert!(!settled.must_look_back(), "it took only what was settled");
        settled.answered(None, None, now);
        settled.answered(Some(Micros(1)), None, now);
        assert!(settled.must_look_back());
        assert!(!settled.must_look_back(), "it has just been asked");
    }

    #[test]
    fn after_the_end_it_pauses_and_then_loses_patience() {
        let (mut settled, mut now) = (Settled::default(), Instant::now());
        settled.brought(false, false, now);
        assert_eq!((settled.pause(), settled.is_patient(now)), (None, false));
        settled.brought(false, true, now);
        assert_eq!(
            (settled.pause(), settled.is_patient(now)),
            (Some(PAUSE), true)
        );
        now += PATIENCE - MS;
        settled.brought(true, true, now);
        assert!(settled.is_patient(now));
        now += MS;
        settled.brought(true, true, now);
        assert!(!settled.is_patient(now), "next to nothing for that long");
        settled.brought(false, true, now);
        assert!(settled.is_patient(now), "there are some again");
    }
}
