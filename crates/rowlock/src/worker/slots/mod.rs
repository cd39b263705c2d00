//! Slots: which claimed job runs next, and how many more to claim. Pure, so that it can be tested by properties; the worker keeps
//! one behind a lock that is held for moments.
//!
//! A *lane* is one queue that the worker serves. A job that is claimed waits in its lane until a slot is free there and in the
//! worker; claiming a bounded number ahead of free slots keeps short jobs from waiting for the database.

use std::collections::VecDeque;

use smallvec::{SmallVec, smallvec};

/// Most jobs in one claim. Smaller ones follow each other, and what one brought runs while the next is under way…
const CLAIM_MAX: usize = 1000;
/// …unless other workers claim of the same queues: what they do is under way then, and since it takes turns with them, each claim begins with cold caches.
const CLAIM_MAX_IN_COMPANY: usize = 2700;

/// Jobs that are handled together: mostly one.
pub(crate) type Chunk<J> = SmallVec<[J; 1]>;

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
    /// Free slots that claims under way may fill.
    asked: usize,
    /// Jobs that claims under way may bring.
    coming: usize,
    /// Jobs that are claimed and about to be added.
    expected: usize,
}

impl<J> Lane<J> {
    fn waiting_soon(&self) -> usize {
        self.waiting.len() + self.expected
    }
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
    /// Free slots that claims under way may fill.
    asked: usize,
    /// Jobs that claims under way may bring.
    coming: usize,
    /// Jobs that one claim may bring.
    claim_max: usize,
    /// No job starts any more.
    closed: bool,
}

/// What a claim under way counts on.
#[derive(Debug)]
#[must_use = "it is to be answered"]
pub(crate) struct Ticket {
    jobs: usize,
    slots: usize,
    lanes: Vec<TicketLane>,
}

#[derive(Debug)]
struct TicketLane {
    number: usize,
    jobs: usize,
    slots: usize,
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
    /// Whether all of them could start at once, in whichever lanes they are found.
    pub(crate) all_start: bool,
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
            asked: 0,
            coming: 0,
            claim_max: CLAIM_MAX,
            closed: false,
        }
    }

    /// Whether no other worker claims of the same queues.
    pub(crate) fn alone(&mut self, alone: bool) {
        self.claim_max = if alone {
            CLAIM_MAX
        } else {
            CLAIM_MAX_IN_COMPANY
        };
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
            asked: 0,
            coming: 0,
            expected: 0,
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

    /// How many jobs wait or are about to.
    fn waiting_soon(&self) -> usize {
        self.waiting + self.lanes.iter().map(|l| l.expected).sum::<usize>()
    }

    /// How many jobs wait, are about to, or may be brought by claims under way.
    pub(crate) fn waiting_or_coming(&self) -> usize {
        self.waiting_soon() + self.coming
    }

    /// So many jobs are claimed, and will be [added](Self::add) in a moment: until then they count as if they waited already, so that
    /// more can be asked for meanwhile.
    pub(crate) fn expect(&mut self, lane: usize, jobs: usize) {
        self.lanes[lane].expected = jobs;
    }

    /// Puts claimed jobs at the end of their lane.
    pub(crate) fn add(&mut self, lane: usize, jobs: impl IntoIterator<Item = J>) {
        let lane = &mut self.lanes[lane];
        lane.expected = 0;
        let before = lane.waiting.len();
        lane.waiting.extend(jobs);
        self.waiting += lane.waiting.len() - before;
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
    pub(crate) fn next(&mut self) -> Option<(usize, Chunk<J>)> {
        if self.closed || self.waiting == 0 || self.running + self.reserved >= self.limit {
            return None;
        }
        let n = self.choose()?;
        let lane = &mut self.lanes[n];
        let first = lane.waiting.pop_front()?;
        let mut jobs: Chunk<J> = smallvec![first];
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

    /// What to claim, when up to `ahead` jobs may wait beyond the free slots; `None`: no more than start at once, also where a
    /// handler takes several. `luck`, in 0..1 and new with each call, decides which
    /// lane is asked first where the order is weighted: with one slot free there is no other way to share it.
    pub(crate) fn wanted(&self, ahead: Option<usize>, mut luck: impl FnMut() -> f64) -> Wanted {
        let free = (self.limit).saturating_sub(self.running + self.reserved);
        let mut lanes = Vec::with_capacity(self.lanes.len());
        let weights: usize = self.lanes.iter().map(|l| l.weight).sum();
        let chunk_of = |lane: &Lane<J>| if ahead.is_some() { lane.chunk } else { 1 };
        let chunk = self.lanes.iter().map(chunk_of).max().unwrap_or(1);
        let ahead = ahead.unwrap_or(0);
        // Jobs that wait for a lane at its limit cannot use the free slots: they must not keep others from them.
        let ready = self.ready();
        let total = (free * chunk).saturating_sub(ready)
            + ahead.saturating_sub(self.waiting_soon() - ready);
        let total = total.saturating_sub(self.coming).min(self.claim_max);
        for (n, lane) in self.ranked.iter().map(|n| (*n, &self.lanes[*n])) {
            let free = lane.limit.saturating_sub(lane.running + lane.reserved);
            let mut room =
                (free * chunk_of(lane) + ahead).saturating_sub(lane.waiting_soon() + lane.coming);
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
        let free = free.saturating_sub(ready + self.asked);
        let fits = |(n, room): &(usize, usize)| {
            let lane = &self.lanes[*n];
            lane.running + lane.reserved + lane.waiting_soon() + lane.coming + room <= lane.limit
        };
        Wanted {
            all_start: total <= free && lanes.iter().all(fits),
            lanes,
            total,
            free,
        }
    }

    /// How many of the jobs that wait, or are about to, their lanes have slots for.
    fn ready(&self) -> usize {
        let ready = |lane: &Lane<J>| {
            let free = lane.limit.saturating_sub(lane.running + lane.reserved);
            lane.waiting_soon().min(free * lane.chunk)
        };
        self.lanes.iter().map(ready).sum()
    }

    /// A claim is under way that may fill free slots, until [`answered`](Self::answered).
    pub(crate) fn ask(&mut self, wanted: &Wanted) -> Ticket {
        let lanes = wanted.lanes.iter().map(|(number, room)| {
            let lane = &mut self.lanes[*number];
            let free = lane
                .limit
                .saturating_sub(lane.running + lane.reserved + lane.asked);
            let jobs = (*room).min(wanted.total);
            let ticket = TicketLane {
                number: *number,
                jobs,
                slots: free.min(jobs),
            };
            lane.asked += ticket.slots;
            lane.coming += ticket.jobs;
            ticket
        });
        let ticket = Ticket {
            lanes: lanes.collect(),
            jobs: wanted.total,
            slots: wanted.total.min(wanted.free),
        };
        self.asked += ticket.slots;
        self.coming += ticket.jobs;
        ticket
    }

    /// As [`ask`](Self::ask), for free slots of one lane: how many it may fill, at most so many. `None` if there are none, if another lane
    /// might have to come first, or if the lane's jobs are to come together.
    pub(crate) fn ask_one(&mut self, lane: usize, at_most: usize) -> Option<(Ticket, usize)> {
        let first = self.order == Order::Weighted || self.lanes.len() == 1;
        if !first || self.lanes.get(lane)?.chunk > 1 {
            return None;
        }
        let mut wanted = self.wanted(None, || 0.5);
        let (_, room) = *wanted.lanes.iter().find(|(number, _)| *number == lane)?;
        wanted.total = room.min(wanted.total).min(wanted.free).min(at_most);
        wanted.lanes = vec![(lane, wanted.total)];
        (wanted.total > 0).then(|| (self.ask(&wanted), wanted.total))
    }

    /// The claim is over; what it brought is [expected](Self::expect) by now.
    pub(crate) fn answered(&mut self, ticket: &Ticket) {
        self.asked -= ticket.slots;
        self.coming -= ticket.jobs;
        for part in &ticket.lanes {
            let lane = &mut self.lanes[part.number];
            lane.asked -= part.slots;
            lane.coming -= part.jobs;
        }
    }

    /// Whether no slot of this lane is free.
    pub(crate) fn is_full(&self, lane: usize) -> bool {
        let lane = &self.lanes[lane];
        lane.running >= lane.limit || self.running >= self.limit
    }

    /// Reserves slots of this lane that nothing runs in, waits for or may be claimed for, and says how many: half of them, so
    /// that a scan never stops a worker.
    pub(crate) fn reserve_free(&mut self, lane: usize) -> usize {
        let at = &self.lanes[lane];
        let taken = at.running + at.reserved + at.asked + at.waiting_soon();
        let taken_in_all = self.running + self.reserved + self.asked + self.ready();
        let here = at.limit.saturating_sub(taken);
        let n = here
            .min(self.limit.saturating_sub(taken_in_all))
            .div_ceil(2);
        self.lanes[lane].reserved += n;
        self.reserved += n;
        n
    }

    /// Keeps the next slot that becomes free in this lane from being used, so that a full scan has a place for what it finds.
    pub(crate) fn reserve(&mut self, lane: usize) {
        self.lanes[lane].reserved += 1;
        self.reserved += 1;
    }

    /// Whether the reserved slots are free, and nothing is on its way to them.
    pub(crate) fn reservation_holds(&self, lane: usize) -> bool {
        let lane = &self.lanes[lane];
        lane.running + lane.reserved + lane.asked <= lane.limit
            && self.running + self.reserved + self.asked <= self.limit
    }

    pub(crate) fn unreserve(&mut self, lane: usize, n: usize) {
        self.lanes[lane].reserved -= n;
        self.reserved -= n;
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
mod tests;
