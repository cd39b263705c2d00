//! Cursors: where the next scan of a queue starts, for each priority. Only hints: a claim without them is always right. Pure.

use std::time::Duration;

use crate::db::Micros;

/// Priorities, highest first, as the database scans them.
pub(crate) const PRIORITIES: usize = 9;

pub(crate) type Position = (Micros, i64);

const START: Position = (Micros::NEG_INFINITY, 0);
/// Nobody is so far ahead of the database's clock unless that was set back.
const SET_BACK: Duration = Duration::from_secs(1);

/// The last `(run_at, id)` seen in each priority of one queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cursor {
    seen: [Position; PRIORITIES],
    /// It was set back, and has not caught up with the others yet.
    back: bool,
    /// The database's time when it was last heard of.
    clock: Micros,
}

impl Default for Cursor {
    fn default() -> Self {
        Self {
            seen: [START; PRIORITIES],
            back: false,
            clock: Micros::NEG_INFINITY,
        }
    }
}

impl Cursor {
    /// Which entry belongs to a priority.
    fn place(priority: i16) -> usize {
        usize::try_from(4 - priority)
            .unwrap_or(0)
            .min(PRIORITIES - 1)
    }

    /// A job was claimed here: nothing before it is left for us.
    pub(crate) fn claimed(&mut self, priority: i16, run_at: Micros, id: i64) {
        let at = &mut self.seen[Self::place(priority)];
        *at = (*at).max((run_at, id));
    }

    /// The claim passed over rows up to here.
    pub(crate) fn passed(&mut self, at: &[Micros], id: &[i64]) {
        for ((mine, at), id) in self.seen.iter_mut().zip(at).zip(id) {
            *mine = (*mine).max((*at, *id));
        }
    }

    /// A full scan took a job behind us and had no room for more: go on from there.
    pub(crate) fn rewound(&mut self, priority: i16, run_at: Micros, id: i64) {
        self.back = true;
        let at = &mut self.seen[Self::place(priority)];
        *at = (*at).min((run_at, id));
    }

    /// Something came up behind us, not before this time.
    pub(crate) fn back_to_time(&mut self, since: Micros) {
        if since > Micros::NEG_INFINITY && self.seen == [START; PRIORITIES] {
            // Whoever has seen nothing begins where the others are, and that was set back too. (Unless they have gone on since, before what came up was committed. Then a
            // scan finds it: whoever is rung for and finds nothing asks for one.)
            return;
        }
        self.back = true;
        for mine in &mut self.seen {
            *mine = (*mine).min((since, START.1));
        }
    }

    /// What was to be claimed from there on was not, and others may have been told to begin behind it.
    pub(crate) fn back_to(&mut self, from: &Self) {
        self.back = true;
        for (mine, from) in self.seen.iter_mut().zip(from.seen) {
            *mine = (*mine).min(from);
        }
    }

    /// Whether it is here or further, in the priority in which workers follow each other.
    pub(crate) fn is_at(&self, place: Position) -> bool {
        self.seen[Self::place(0)] >= place
    }

    /// When what it has seen last was due, in the priority in which workers follow each other.
    pub(crate) fn stands_at(&self) -> Micros {
        self.seen[Self::place(0)].0
    }

    /// The database answered at this time. Its clock may have been set back: then a place that lies ahead means nothing.
    pub(crate) fn answered(&mut self, clock: Micros) {
        self.clock = clock;
        // Of two claims under way the first may be answered last, but not by so much.
        let ahead = |at: Micros| at.since(clock) >= SET_BACK;
        for mine in self.seen.iter_mut().filter(|(at, _)| ahead(*at)) {
            *mine = (clock, START.1);
        }
    }

    /// Whether all that it saw was due longer ago than this: whoever looks so far back begins where it is anyway.
    pub(crate) fn is_behind(&self, by: Duration) -> bool {
        let seen = self.seen.iter().map(|(at, _)| *at).max();
        self.clock > Micros::NEG_INFINITY && seen.is_some_and(|at| self.clock.since(at) > by)
    }

    /// It came as far as the others are.
    pub(crate) fn caught_up(&mut self) {
        self.back = false;
    }

    /// Whether the next scan may start where another worker's stopped: not while this one looks for what came up behind it.
    pub(crate) fn may_follow(&self) -> bool {
        !self.back
    }

    pub(crate) fn write_to(&self, at: &mut Vec<Micros>, id: &mut Vec<i64>) {
        at.extend(self.seen.iter().map(|p| p.0));
        id.extend(self.seen.iter().map(|p| p.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn position() -> impl Strategy<Value = (i16, Micros, i64)> {
        (-4i16..=4, (0i64..100).prop_map(Micros), 0i64..100)
    }

    proptest! {
        /// However claims come in, the cursor is the furthest of them in each priority.
        #[test]
        fn claims_only_move_it_forward(seen in proptest::collection::vec(position(), 0..50)) {
            let mut cursor = Cursor::default();
            for (priority, at, id) in &seen {
                cursor.claimed(*priority, *at, *id);
            }
            for priority in -4..=4 {
                let furthest = seen.iter().filter(|s| s.0 == priority).map(|s| (s.1, s.2)).max().unwrap_or(START);
                prop_assert_eq!(cursor.seen[Cursor::place(priority)], furthest);
            }
        }

        #[test]
        fn a_rewind_only_moves_it_back(a in position(), b in position()) {
            let mut cursor = Cursor::default();
            cursor.claimed(a.0, a.1, a.2);
            cursor.rewound(a.0, b.1, b.2);
            prop_assert_eq!(cursor.seen[Cursor::place(a.0)], (a.1, a.2).min((b.1, b.2)));
        }
    }

    #[test]
    fn a_place_ahead_of_the_clock_means_nothing() {
        let mut cursor = Cursor::default();
        cursor.claimed(0, Micros(60_000_000), 7);
        cursor.answered(Micros(59_999_000));
        assert_eq!(cursor.stands_at(), Micros(60_000_000), "of two claims");
        cursor.answered(Micros(30_000_000));
        assert_eq!(cursor.stands_at(), Micros(30_000_000), "set back");
        assert_eq!(cursor.seen[0], START, "others stay");
    }

    #[test]
    fn it_follows_others_unless_it_was_set_back() {
        let mut cursor = Cursor::default();
        assert!(cursor.may_follow(), "others have been here before it");
        cursor.back_to_time(Micros::NEG_INFINITY);
        assert!(!cursor.may_follow(), "it was set back before it began");
        cursor.claimed(4, Micros(10), 5);
        cursor.claimed(0, Micros(10), 1);
        assert!(!cursor.may_follow(), "others may be further");
        assert!(cursor.is_at((Micros(10), 1)) && !cursor.is_at((Micros(10), 2)));
        cursor.caught_up();
        assert!(cursor.may_follow());
        cursor.rewound(0, Micros(3), 1);
        assert!(!cursor.may_follow());
        cursor.caught_up();
        let from = cursor.clone();
        cursor.claimed(0, Micros(5), 2);
        cursor.back_to(&from);
        assert!(!cursor.may_follow(), "others may be further");
        assert!(cursor.is_at((Micros(3), 1)) && !cursor.is_at((Micros(3), 2)));
    }

    #[test]
    fn it_is_set_back_in_time_no_further_than_needed() {
        let mut cursor = Cursor::default();
        cursor.back_to_time(Micros(7));
        assert!(cursor.may_follow(), "the others were set back too");
        cursor.claimed(0, Micros(10), 5);
        cursor.claimed(4, Micros(6), 5);
        cursor.back_to_time(Micros(7));
        assert!(!cursor.may_follow());
        assert_eq!(cursor.seen[Cursor::place(0)], (Micros(7), 0));
        assert_eq!(cursor.seen[Cursor::place(4)], (Micros(6), 5));
        cursor.back_to_time(Micros::NEG_INFINITY);
        assert_eq!(cursor.seen, [START; PRIORITIES]);
    }

    #[test]
    fn it_is_behind_while_what_it_sees_was_due_long_ago() {
        let (second, us) = (Duration::from_secs(1), 1_000_000);
        let mut cursor = Cursor::default();
        assert!(!cursor.is_behind(second), "nobody knows what time it is");
        cursor.answered(Micros(10 * us));
        assert!(cursor.is_behind(second), "it has seen nothing");
        cursor.claimed(0, Micros(8 * us), 1);
        assert!(cursor.is_behind(second));
        cursor.claimed(-2, Micros(9 * us), 2);
        assert!(!cursor.is_behind(second), "in another priority it is not");
        cursor.answered(Micros(11 * us));
        assert!(cursor.is_behind(second));
        cursor.answered(Micros(9 * us));
        assert!(!cursor.is_behind(second), "the clock was set back");
    }

    #[test]
    fn the_highest_priority_comes_first() {
        assert_eq!(
            (Cursor::place(4), Cursor::place(0), Cursor::place(-4)),
            (0, 4, 8)
        );
    }
}
