//! Slots: which claimed job runs next, and how many more to claim. Pure, so that it can be tested by properties; the worker keeps
//! one behind a lock that is held for moments.
//!
//! A *lane* is one queue that the worker serves. A job that is claimed waits in its lane until a slot is free there and in the
//! worker; claiming a bounded number ahead of free slots keeps short jobs from waiting for the database.

use std::collections::VecDeque;

/// What the slots need to know of a job.
pub(crate) trait Waiting {
    /// How many jobs of its kind its handler takes at once.
    fn chunk_max(&self) -> usize;
    /// Whether the two can be handled together.
    fn goes_with(&self, other: &Self) -> bool;
}

/// In which order the lanes are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Order {
    /// The first queue as long as it has jobs, then the second, and so on.
    Strict,
    /// In proportion to the queues' weights.
    #[default]
    Weighted,
}

#[derive(Debug)]
struct Lane<J> {
    /// Its place in the strict order.
    rank: usize,
    limit: usize,
    weight: usize,
    /// Most jobs that one handler of this lane takes at once: so many are worth claiming for each slot.
    chunk: usize,
    running: usize,
    waiting: VecDeque<J>,
    /// Smooth weighted round robin: grows by the weight with each choice, falls when chosen.
    credit: i64,
    /// Slots kept free for a full scan.
    reserved: usize,
}

/// The slots of a worker.
#[derive(Debug)]
pub(crate) struct Slots<J> {
    limit: usize,
    order: Order,
    running: usize,
    waiting: usize,
    reserved: usize,
    lanes: Vec<Lane<J>>,
    /// The lanes' numbers in the strict order.
    ranked: Vec<usize>,
    /// No job starts any more.
    closed: bool,
}

/// How many jobs to ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// In the order in which to ask: lane, and how many at most.
    pub(crate) lanes: Vec<(usize, usize)>,
    /// How many in all.
    pub(crate) total: usize,
    /// How many of them could start at once.
    pub(crate) free: usize,
}

impl<J: Waiting> Slots<J> {
    pub(crate) fn new(limit: usize, order: Order) -> Self {
        Self {
            limit: limit.max(1),
            order,
            running: 0,
            waiting: 0,
            reserved: 0,
            lanes: Vec::new(),
            ranked: Vec::new(),
            closed: false,
        }
    }

    /// Adds a lane and returns its number. In strict order, lanes of a lower rank go first, and those of the same rank in the
    /// order in which they were added. Lanes are never taken away.
    pub(crate) fn add_lane(
        &mut self,
        rank: usize,
        limit: usize,
        weight: usize,
        chunk: usize,
    ) -> usize {
        let (limit, weight, chunk) = (limit.max(1), weight.max(1), chunk.max(1));
        let n = self.lanes.len();
        let place = self.ranked.partition_point(|l| self.lanes[*l].rank <= rank);
        self.ranked.insert(place, n);
        self.lanes.push(Lane {
            rank,
            limit,
            weight,
            chunk,
            running: 0,
            waiting: VecDeque::new(),
            credit: 0,
            reserved: 0,
        });
        n
    }

    /// From now on no job starts.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Puts claimed jobs at the end of their lane.
    pub(crate) fn add(&mut self, lane: usize, jobs: impl IntoIterator<Item = J>) {
        let waiting = &mut self.lanes[lane].waiting;
        let before = waiting.len();
        waiting.extend(jobs);
        self.waiting += waiting.len() - before;
    }

    /// Puts jobs at the front: those that were claimed into free slots only, and must not wait behind others.
    pub(crate) fn add_first(&mut self, lane: usize, jobs: impl IntoIterator<Item = J>) {
        for job in jobs {
            self.lanes[lane].waiting.push_front(job);
            self.waiting += 1;
        }
    }

    /// The next jobs to run, with their lane: one, or several that their handler takes together. They hold a slot until
    /// [`finish`](Self::finish).
    pub(crate) fn next(&mut self) -> Option<(usize, Vec<J>)> {
        if self.closed || self.waiting == 0 || self.running + self.reserved >= self.limit {
            return None;
        }
        let n = self.choose()?;
        let lane = &mut self.lanes[n];
        let first = lane.waiting.pop_front()?;
        let mut jobs = vec![first];
        let chunk = jobs[0].chunk_max();
        let mut at = 0;
        while jobs.len() < chunk && at < lane.waiting.len() {
            if jobs[0].goes_with(&lane.waiting[at]) {
                jobs.extend(lane.waiting.remove(at));
            } else {
                at += 1;
            }
        }
        lane.running += 1;
        self.running += 1;
        self.waiting -= jobs.len();
        Some((n, jobs))
    }

    /// The lane to take the next job from.
    fn choose(&mut self) -> Option<usize> {
        let ready =
            |lane: &Lane<J>| !lane.waiting.is_empty() && lane.running + lane.reserved < lane.limit;
        if self.order == Order::Strict || self.lanes.len() == 1 {
            return self.ranked.iter().copied().find(|n| ready(&self.lanes[*n]));
        }
        let mut best: Option<usize> = None;
        let mut sum = 0;
        for n in 0..self.lanes.len() {
            if !ready(&self.lanes[n]) {
                continue;
            }
            let lane = &mut self.lanes[n];
            lane.credit += lane.weight as i64;
            sum += lane.weight as i64;
            if best.is_none_or(|b| self.lanes[b].credit < self.lanes[n].credit) {
                best = Some(n);
            }
        }
        let best = best?;
        self.lanes[best].credit -= sum;
        Some(best)
    }

    /// A slot of this lane is free again.
    pub(crate) fn finish(&mut self, lane: usize) {
        self.lanes[lane].running -= 1;
        self.running -= 1;
    }

    /// What to claim, when up to `ahead` jobs may wait beyond the free slots. `luck`, in 0..1 and new with each call, decides which
    /// lane is asked first where the order is weighted: with one slot free there is no other way to share it.
    pub(crate) fn wanted(&self, ahead: usize, mut luck: impl FnMut() -> f64) -> Wanted {
        let free = (self.limit).saturating_sub(self.running + self.reserved);
        let mut lanes = Vec::with_capacity(self.lanes.len());
        let weights: usize = self.lanes.iter().map(|l| l.weight).sum();
        let chunk = self.lanes.iter().map(|l| l.chunk).max().unwrap_or(1);
        // Jobs that wait for a lane at its limit cannot use the free slots: they must not keep others from them.
        let ready = self.ready();
        let total =
            (free * chunk).saturating_sub(ready) + ahead.saturating_sub(self.waiting - ready);
        for (n, lane) in self.ranked.iter().map(|n| (*n, &self.lanes[*n])) {
            let free = lane.limit.saturating_sub(lane.running + lane.reserved);
            let mut room = (free * lane.chunk + ahead).saturating_sub(lane.waiting.len());
            if self.order == Order::Weighted && self.lanes.len() > 1 {
                // A lane's share, rounded up; what the others leave goes round with the next claim.
                room = room.min((total * lane.weight).div_ceil(weights.max(1)));
            }
            if room > 0 {
                lanes.push((n, room));
            }
        }
        if self.order == Order::Weighted && lanes.len() > 1 {
            // Each comes first as often as its weight says.
            let mut drawn: Vec<(f64, (usize, usize))> = lanes
                .into_iter()
                .map(|lane| {
                    (
                        -(1.0 - luck()).ln() / self.lanes[lane.0].weight as f64,
                        lane,
                    )
                })
                .collect();
            drawn.sort_by(|a, b| a.0.total_cmp(&b.0));
            lanes = drawn.into_iter().map(|(_, lane)| lane).collect();
        }
        let total = total.min(lanes.iter().map(|(_, room)| room).sum());
        Wanted {
            lanes,
            total,
            free: free.saturating_sub(ready),
        }
    }

    /// How many of the waiting jobs their lanes have slots for.
    fn ready(&self) -> usize {
        let ready = |lane: &Lane<J>| {
            let free = lane.limit.saturating_sub(lane.running + lane.reserved);
            lane.waiting.len().min(free * lane.chunk)
        };
        self.lanes.iter().map(ready).sum()
    }

    /// Slots of this lane that nothing runs in and nothing waits for.
    pub(crate) fn free(&self, lane: usize) -> usize {
        let lane = &self.lanes[lane];
        let here = lane.limit.saturating_sub(lane.running + lane.waiting.len());
        here.min(self.limit.saturating_sub(self.running + self.ready()))
    }

    /// Keeps the next slot that becomes free in this lane from being used, so that a full scan has a place for what it finds.
    pub(crate) fn reserve(&mut self, lane: usize) {
        self.lanes[lane].reserved += 1;
        self.reserved += 1;
    }

    /// Whether the reserved slot is free.
    pub(crate) fn reservation_holds(&self, lane: usize) -> bool {
        let lane = &self.lanes[lane];
        lane.running + lane.reserved <= lane.limit && self.running + self.reserved <= self.limit
    }

    pub(crate) fn unreserve(&mut self, lane: usize) {
        self.lanes[lane].reserved -= 1;
        self.reserved -= 1;
    }

    /// Takes out all that wait: they are to be given back.
    pub(crate) fn drain(&mut self) -> Vec<J> {
        self.waiting = 0;
        self.lanes
            .iter_mut()
            .flat_map(|lane| lane.waiting.drain(..))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A job of a kind whose handler takes `chunk` at once.
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Job {
        kind: u8,
        chunk: usize,
    }

    impl Waiting for Job {
        fn chunk_max(&self) -> usize {
            self.chunk
        }
        fn goes_with(&self, other: &Self) -> bool {
            self.kind == other.kind
        }
    }

    const ONE: Job = Job { kind: 0, chunk: 1 };

    #[derive(Debug, Clone)]
    enum Step {
        Add(usize, u8, usize),
        Next,
        Finish,
        Reserve(usize),
        Unreserve,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0usize..3, 0u8..2, 1usize..6).prop_map(|(l, k, n)| Step::Add(l, k, n)),
            Just(Step::Next),
            Just(Step::Next),
            Just(Step::Finish),
            (0usize..3).prop_map(Step::Reserve),
            Just(Step::Unreserve),
        ]
    }

    proptest! {
        /// Whatever happens: no limit is passed, no job is lost or run twice, the counts are right.
        #[test]
        fn limits_hold_and_nothing_is_lost(
            limit in 1usize..6,
            limits in proptest::array::uniform3(1usize..5),
            strict in any::<bool>(),
            steps in proptest::collection::vec(step(), 0..200),
        ) {
            let mut slots = Slots::new(limit, if strict { Order::Strict } else { Order::Weighted });
            for l in limits {
                slots.add_lane(0, l, l, 3);
            }
            let (mut running, mut reserved): (Vec<(usize, usize)>, Vec<usize>) = (Vec::new(), Vec::new());
            let (mut added, mut started) = (0, 0);
            for s in steps {
                match s {
                    Step::Add(lane, kind, n) => {
                        added += n;
                        slots.add(lane, std::iter::repeat_n(Job { kind, chunk: if kind == 1 { 3 } else { 1 } }, n));
                    }
                    Step::Next => {
                        if let Some((lane, jobs)) = slots.next() {
                            prop_assert!(jobs.iter().all(|j| j.kind == jobs[0].kind));
                            prop_assert!(jobs.len() <= jobs[0].chunk);
                            started += jobs.len();
                            running.push((lane, jobs.len()));
                        }
                    }
                    Step::Finish => {
                        if let Some((lane, _)) = running.pop() {
                            slots.finish(lane);
                        }
                    }
                    Step::Reserve(lane) => {
                        if reserved.is_empty() {
                            slots.reserve(lane);
                            reserved.push(lane);
                        }
                    }
                    Step::Unreserve => {
                        if let Some(lane) = reserved.pop() {
                            slots.unreserve(lane);
                        }
                    }
                }
                prop_assert!(slots.running() <= limit);
                for (n, l) in limits.iter().enumerate() {
                    prop_assert!(running.iter().filter(|r| r.0 == n).count() <= *l);
                }
                prop_assert_eq!(slots.waiting(), added - started);
                let wanted = slots.wanted(4, || 0.5);
                prop_assert!(wanted.total <= limit * 3 + 4);
                prop_assert!(wanted.free <= limit - slots.running());
            }
            prop_assert_eq!(slots.drain().len(), added - started);
        }
    }

    #[test]
    fn strict_order_empties_the_first_lane_first() {
        let mut slots = Slots::new(10, Order::Strict);
        slots.add_lane(0, 10, 1, 1);
        slots.add_lane(1, 10, 9, 1);
        slots.add(1, [ONE; 3]);
        slots.add(0, [ONE; 2]);
        let order: Vec<usize> = std::iter::from_fn(|| slots.next())
            .map(|(lane, _)| lane)
            .collect();
        assert_eq!(order, [0, 0, 1, 1, 1]);
    }

    #[test]
    fn strict_order_goes_by_rank_not_by_when_a_lane_was_added() {
        let mut slots = Slots::new(10, Order::Strict);
        for rank in [1, 0, 1, 0] {
            let lane = slots.add_lane(rank, 10, 1, 1);
            slots.add(lane, [ONE]);
        }
        let asked: Vec<usize> = slots
            .wanted(0, || 0.5)
            .lanes
            .iter()
            .map(|(n, _)| *n)
            .collect();
        assert_eq!(asked, [1, 3, 0, 2]);
        let order: Vec<usize> = std::iter::from_fn(|| slots.next())
            .map(|(lane, _)| lane)
            .collect();
        assert_eq!(order, [1, 3, 0, 2]);
    }

    #[test]
    fn nothing_starts_when_they_are_closed() {
        let mut slots = Slots::new(10, Order::Strict);
        slots.add_lane(0, 10, 1, 1);
        slots.add(0, [ONE; 2]);
        slots.close();
        assert!(slots.next().is_none());
        assert_eq!(slots.drain().len(), 2);
    }

    #[test]
    fn weighted_order_shares_by_weight() {
        let mut slots = Slots::new(100, Order::Weighted);
        slots.add_lane(0, 100, 3, 1);
        slots.add_lane(0, 100, 1, 1);
        slots.add(0, [ONE; 60]);
        slots.add(1, [ONE; 60]);
        let first: Vec<usize> = std::iter::from_fn(|| slots.next())
            .take(40)
            .map(|(lane, _)| lane)
            .collect();
        assert_eq!(first.iter().filter(|l| **l == 0).count(), 30);
    }

    #[test]
    fn one_free_slot_is_shared_by_weight() {
        let mut slots = Slots::new(1, Order::Weighted);
        slots.add_lane(0, 1, 3, 1);
        slots.add_lane(0, 1, 1, 1);
        let mut first = [0, 0];
        for _ in 0..4000 {
            let wanted = slots.wanted(0, rand::random);
            assert_eq!(wanted.total, 1);
            let lane = wanted.lanes[0].0;
            first[lane] += 1;
            slots.add(lane, [ONE]);
            let (lane, _) = slots.next().unwrap();
            slots.finish(lane);
        }
        assert!((2800..3200).contains(&first[0]), "{first:?}");
    }

    #[test]
    fn jobs_that_wait_for_a_full_lane_do_not_keep_others_from_free_slots() {
        let mut slots = Slots::new(4, Order::Weighted);
        slots.add_lane(0, 1, 1, 1);
        slots.add_lane(0, 4, 1, 1);
        slots.add(0, [ONE; 4]);
        slots.next().unwrap();
        assert!(slots.next().is_none(), "the first lane is full");
        let wanted = slots.wanted(0, || 0.5);
        assert_eq!((wanted.total, wanted.free, slots.free(1)), (2, 3, 3));
        assert_eq!(wanted.lanes, [(1, 2)]);
    }

    #[test]
    fn a_reserved_slot_is_kept_free() {
        let mut slots = Slots::new(1, Order::Strict);
        slots.add_lane(0, 1, 1, 1);
        slots.add(0, [ONE; 2]);
        let (lane, _) = slots.next().unwrap();
        slots.reserve(0);
        assert!(!slots.reservation_holds(0), "the slot is still in use");
        slots.finish(lane);
        assert!(slots.reservation_holds(0));
        assert!(slots.next().is_none(), "the free slot is reserved");
        slots.unreserve(0);
        assert!(slots.next().is_some());
    }
}
