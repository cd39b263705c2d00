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
                        slots.unreserve(lane, 1);
                    }
                }
            }
            prop_assert!(slots.running() <= limit);
            for (n, l) in limits.iter().enumerate() {
                prop_assert!(running.iter().filter(|r| r.0 == n).count() <= *l);
            }
            prop_assert_eq!(slots.waiting(), added - started);
            let wanted = slots.wanted(Some(4), || 0.5);
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
        .wanted(Some(0), || 0.5)
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
        let wanted = slots.wanted(Some(0), rand::random);
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
    let wanted = slots.wanted(Some(0), || 0.5);
    assert_eq!((wanted.total, wanted.free), (2, 3));
    assert_eq!(slots.reserve_free(1), 2);
    assert_eq!(wanted.lanes, [(1, 2)]);
}

/// Otherwise one of two suspects would wait while the other runs, and be blamed for what that one does.
#[test]
fn a_scan_and_a_claim_never_count_on_the_same_slot() {
    let mut slots = Slots::<Job>::new(1, Order::Strict);
    slots.add_lane(0, 1, 1, 1);
    let wanted = slots.wanted(Some(0), || 0.5);
    assert!(wanted.all_start);
    let ticket = slots.ask(&wanted);
    assert_eq!(slots.reserve_free(0), 0, "the claim may fill it");
    slots.reserve(0);
    assert!(!slots.reservation_holds(0), "the claim may fill it");
    slots.answered(&ticket);
    assert!(slots.reservation_holds(0));
    let wanted = slots.wanted(Some(1), || 0.5);
    assert_eq!(
        (wanted.free, wanted.all_start),
        (0, false),
        "it is the scan's now"
    );
    let _under_way = slots.ask(&wanted);
    assert!(
        slots.reservation_holds(0),
        "a later claim does not count on it"
    );
}

#[test]
fn only_what_starts_at_once_is_claimed_when_that_is_asked_for() {
    let mut slots = Slots::<Job>::new(4, Order::Strict);
    slots.add_lane(0, 2, 1, 10);
    slots.add_lane(0, 4, 1, 10);
    let wanted = slots.wanted(None, || 0.5);
    assert_eq!((wanted.total, wanted.all_start), (4, true));
    assert_eq!(wanted.lanes, [(0, 2), (1, 4)]);
    assert!(!slots.wanted(Some(0), || 0.5).all_start);
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
    slots.unreserve(0, 1);
    assert!(slots.next().is_some());
}

/// What is claimed but not decoded yet counts as if it waited: the next claim, which is sent meanwhile, asks for that much less.
#[test]
fn expected_jobs_count_as_waiting() {
    for jobs in [0, 1, 3, 7, 20] {
        let (mut expecting, mut has) = (
            Slots::<Job>::new(4, Order::Strict),
            Slots::<Job>::new(4, Order::Strict),
        );
        for slots in [&mut expecting, &mut has] {
            slots.add_lane(0, 3, 1, 1);
            slots.add_lane(1, 4, 1, 1);
        }
        expecting.expect(0, jobs);
        has.add(0, std::iter::repeat_n(ONE, jobs));
        for ahead in [None, Some(0), Some(5), Some(30)] {
            assert_eq!(
                expecting.wanted(ahead, || 0.5),
                has.wanted(ahead, || 0.5),
                "{jobs} jobs, {ahead:?}"
            );
        }
        assert!(expecting.next().is_none(), "they cannot run yet");
        expecting.add(0, std::iter::repeat_n(ONE, jobs));
        assert_eq!(expecting.waiting_soon(), has.waiting(), "counted once");
    }
}

#[test]
fn a_claim_has_a_limit() {
    let mut slots = Slots::<Job>::new(100_000, Order::Weighted);
    for rank in 0..3 {
        slots.add_lane(rank, 100_000, 1, 1);
    }
    let wanted = slots.wanted(Some(4000), || 0.5);
    assert_eq!(wanted.total, CLAIM_MAX);
    assert!(wanted.all_start, "there is a slot for each of them");
    slots.alone(false);
    assert_eq!(slots.wanted(Some(4000), || 0.5).total, CLAIM_MAX_IN_COMPANY);
    slots.alone(true);
    assert_eq!(slots.wanted(Some(4000), || 0.5).total, CLAIM_MAX);
}

#[test]
fn a_few_slots_of_one_lane_can_be_asked_for() {
    let mut slots = Slots::<Job>::new(12, Order::Weighted);
    let lanes = [3, 100].map(|limit| slots.add_lane(0, limit, 1, 1));
    let (narrow, most) = slots.ask_one(lanes[0], 10).expect("there is room");
    assert_eq!(most, 3, "no more than its limit");
    let (wide, most) = slots.ask_one(lanes[1], 5).expect("there is room");
    assert_eq!(most, 5, "no more than asked for");
    let (rest, most) = slots.ask_one(lanes[1], 10).expect("there is room");
    assert!(most <= 4, "{most}, where eight of twelve are counted on");
    assert!(slots.ask_one(lanes[0], 10).is_none(), "it is full");
    for ticket in [narrow, wide, rest] {
        slots.answered(&ticket);
    }
    assert_eq!(slots.wanted(None, || 0.5).free, 12, "as it was before");

    let mut strict = Slots::<Job>::new(12, Order::Strict);
    let only = strict.add_lane(0, 100, 1, 1);
    assert!(strict.ask_one(only, 1).is_some());
    strict.add_lane(1, 100, 1, 1);
    assert!(strict.ask_one(only, 1).is_none(), "who comes first?");

    let mut batches = Slots::<Job>::new(12, Order::Weighted);
    let lane = batches.add_lane(0, 100, 1, 50);
    assert!(batches.ask_one(lane, 10).is_none(), "they come together");
    assert!(batches.ask_one(lane + 1, 10).is_none(), "there is none");
}

#[test]
fn what_a_claim_cannot_fill_is_free_for_a_scan() {
    let mut slots = Slots::<Job>::new(2 * CLAIM_MAX, Order::Weighted);
    let lane = slots.add_lane(0, 2 * CLAIM_MAX, 1, 1);
    let wanted = slots.wanted(None, || 0.5);
    let _ = slots.ask(&wanted);
    assert_eq!(slots.reserve_free(lane), CLAIM_MAX / 2);
}

proptest! {
    /// Two claims under way never ask for more than one would that could bring all at once, and when they have brought nothing it is as
    /// if they had not been.
    #[test]
    fn claims_under_way_count_as_if_they_had_brought_all(
        limit in 1usize..200,
        limits in proptest::array::uniform3(1usize..150),
        waiting in proptest::array::uniform3(0usize..100),
        ahead in 0usize..CLAIM_MAX,
        strict in any::<bool>(),
    ) {
        let mut slots = Slots::<Job>::new(limit, if strict { Order::Strict } else { Order::Weighted });
        for (l, jobs) in limits.into_iter().zip(waiting) {
            let lane = slots.add_lane(0, l, 1, 1);
            slots.add(lane, std::iter::repeat_n(ONE, jobs));
        }
        let alone = slots.wanted(Some(ahead), || 0.5);
        let first = slots.ask(&alone);
        let beside = slots.wanted(Some(ahead), || 0.5);
        let second = slots.ask(&beside);
        let starts = |wanted: &Wanted| wanted.total.min(wanted.free);
        prop_assert!(starts(&alone) + starts(&beside) <= limit, "{alone:?} and {beside:?}");
        // What one claim could not take for its bound, or for the share of a lane, is left for the second.
        prop_assert!(alone.total + beside.total <= limit + ahead, "{alone:?} and {beside:?}");
        prop_assert!(beside.total == 0 || !beside.all_start || alone.total + beside.total <= limit, "{alone:?} and {beside:?}");
        prop_assert_eq!(slots.waiting_or_coming(), slots.waiting() + alone.total + beside.total);
        slots.answered(&first);
        slots.answered(&second);
        prop_assert_eq!(slots.wanted(Some(ahead), || 0.5), alone);
    }
}
