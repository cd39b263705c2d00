//! What the proxy is asked to do, and what it has seen.
//!
//! Promises: whoever changes a fault knows that it is in force; counters change before the waiting ones are told. Must not do
//! any I/O.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the database.
    ToServer,
    /// From the database to the client.
    ToClient,
}

/// What happens to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Pass,
    Delayed(Duration),
    Stalled,
}

/// What happens to new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doorway {
    Open,
    Refusing,
    HangingUp,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Close,
    Reset,
}

/// What the proxy has seen since its start.
#[derive(Clone, Debug, Default)]
pub(super) struct Statistics {
    pub(super) accepted: u64,
    pub(super) open: usize,
    pub(super) cuts: u64,
    to_server: u64,
    to_client: u64,
}

impl Statistics {
    pub(super) fn bytes(&self, direction: Direction) -> u64 {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }

    fn add_bytes(&mut self, direction: Direction, n: u64) {
        match direction {
            Direction::ToServer => self.to_server += n,
            Direction::ToClient => self.to_client += n,
        }
    }
}

/// Shared by the handle, the task that accepts, and the tasks of the connections.
#[derive(Debug)]
pub(super) struct State {
    flow: watch::Sender<Flow>,
    /// What was asked for…
    doorway_wanted: watch::Sender<Doorway>,
    /// …and what is so; `None` before the first.
    doorway: watch::Sender<Option<Doorway>>,
    statistics: watch::Sender<Statistics>,
    /// The cut that is to come, if any.
    armed: Mutex<Option<Armed>>,
    /// The connections that are open, as a group that is ended together.
    group: Mutex<Group>,
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    direction: Direction,
    /// How many bytes may still pass.
    left: u64,
    cut: Cut,
}

/// The connections since the last time that all were ended.
#[derive(Debug)]
struct Group {
    /// Tells the members to end.
    ending: watch::Sender<Option<Cut>>,
    /// Each member holds a copy, so the channel closes when the last one has ended.
    member: mpsc::Sender<()>,
    all_ended: mpsc::Receiver<()>,
}

/// A connection's membership of its group; it counts as open until this is dropped.
pub(super) struct Membership<'a> {
    state: &'a State,
    ending: watch::Receiver<Option<Cut>>,
    _member: mpsc::Sender<()>,
}

/// What may be done with bytes that have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permit {
    /// How many of them may pass.
    pub(super) n_bytes: usize,
    /// What is to happen to the connection after that.
    pub(super) then: Option<Cut>,
}

impl Default for State {
    fn default() -> State {
        State {
            flow: watch::Sender::new(Flow::Pass),
            doorway_wanted: watch::Sender::new(Doorway::Open),
            doorway: watch::Sender::new(None),
            statistics: watch::Sender::new(Statistics::default()),
            armed: Mutex::new(None),
            group: Mutex::new(Group::new()),
        }
    }
}

impl Group {
    fn new() -> Group {
        let (member, all_ended) = mpsc::channel(1);
        Group {
            ending: watch::Sender::new(None),
            member,
            all_ended,
        }
    }
}

impl State {
    pub(super) fn set_flow(&self, flow: Flow) {
        self.flow.send_replace(flow);
    }

    pub(super) fn flow(&self) -> watch::Receiver<Flow> {
        self.flow.subscribe()
    }

    /// Asks for it and waits until it is so.
    pub(super) async fn set_doorway(&self, doorway: Doorway) {
        self.doorway_wanted.send_replace(doorway);
        self.door_is_settled().await;
    }

    /// Waits until the door is as it was asked to be.
    pub(super) async fn door_is_settled(&self) {
        let mut doorway = self.doorway.subscribe();
        // The sender is in `self`, so this cannot fail.
        let _ = doorway
            .wait_for(|now| *now == Some(*self.doorway_wanted.borrow()))
            .await;
    }

    pub(super) fn doorway_wanted(&self) -> watch::Receiver<Doorway> {
        self.doorway_wanted.subscribe()
    }

    pub(super) fn doorway_is(&self, doorway: Doorway) {
        self.doorway.send_replace(Some(doorway));
    }

    pub(super) fn arm(&self, direction: Direction, left: u64, cut: Cut) {
        *lock(&self.armed) = Some(Armed {
            direction,
            left,
            cut,
        });
    }

    pub(super) fn disarm(&self) {
        *lock(&self.armed) = None;
    }

    /// How many of the `arrived` bytes may pass. A cut is given to one connection only.
    pub(super) fn permit(&self, direction: Direction, arrived: usize) -> Permit {
        let mut armed = lock(&self.armed);
        let whole = Permit {
            n_bytes: arrived,
            then: None,
        };
        let Some(now) = armed.as_mut().filter(|armed| armed.direction == direction) else {
            return whole;
        };
        let arrived_u64 = arrived as u64;
        if arrived_u64 < now.left {
            now.left -= arrived_u64;
            return whole;
        }
        // `left` is at most `arrived` here, so it fits.
        let permit = Permit {
            n_bytes: usize::try_from(now.left).unwrap_or(arrived),
            then: Some(now.cut),
        };
        *armed = None;
        permit
    }

    pub(super) fn forwarded(&self, direction: Direction, n: usize) {
        self.statistics
            .send_modify(|statistics| statistics.add_bytes(direction, n as u64));
    }

    pub(super) fn was_cut(&self) {
        self.statistics
            .send_modify(|statistics| statistics.cuts += 1);
    }

    pub(super) fn was_accepted(&self) {
        self.statistics
            .send_modify(|statistics| statistics.accepted += 1);
    }

    pub(super) fn statistics(&self) -> Statistics {
        self.statistics.borrow().clone()
    }

    pub(super) async fn wait_until(&self, reached: impl FnMut(&Statistics) -> bool) {
        // The sender is in `self`, so this cannot fail.
        let _ = self.statistics.subscribe().wait_for(reached).await;
    }

    /// Makes a new connection a member of the current group.
    pub(super) fn join(&self) -> Membership<'_> {
        let group = lock(&self.group);
        let membership = Membership {
            state: self,
            ending: group.ending.subscribe(),
            _member: group.member.clone(),
        };
        drop(group);
        self.statistics
            .send_modify(|statistics| statistics.open += 1);
        membership
    }

    /// Ends all connections and waits until they have ended.
    pub(super) async fn end_connections(&self, cut: Cut) {
        let mut group = std::mem::replace(&mut *lock(&self.group), Group::new());
        group.ending.send_replace(Some(cut));
        drop(group.member);
        let _ = group.all_ended.recv().await; // `None` when the last member has left
    }
}

impl Membership<'_> {
    /// Waits until the group is told to end.
    pub(super) async fn told_to_end(&mut self) -> Cut {
        match self.ending.wait_for(Option::is_some).await.map(|cut| *cut) {
            Ok(Some(cut)) => cut,
            _ => Cut::Close, // the proxy is gone
        }
    }
}

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        self.state
            .statistics
            .send_modify(|statistics| statistics.open -= 1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Option<Cut> = None;

    fn permit(state: &State, direction: Direction, arrived: usize) -> (usize, Option<Cut>) {
        let permit = state.permit(direction, arrived);
        (permit.n_bytes, permit.then)
    }

    #[test]
    fn exactly_as_many_bytes_pass_as_were_allowed() {
        let state = State::default();
        state.arm(Direction::ToClient, 10, Cut::Reset);
        assert_eq!(permit(&state, Direction::ToServer, 100), (100, WHOLE));
        assert_eq!(permit(&state, Direction::ToClient, 4), (4, WHOLE));
        assert_eq!(
            permit(&state, Direction::ToClient, 100),
            (6, Some(Cut::Reset))
        );
        assert_eq!(
            permit(&state, Direction::ToClient, 100),
            (100, WHOLE),
            "it happens once"
        );
    }

    #[test]
    fn a_cut_comes_with_the_last_byte_and_not_with_the_one_after() {
        let state = State::default();
        state.arm(Direction::ToServer, 4, Cut::Close);
        assert_eq!(
            permit(&state, Direction::ToServer, 4),
            (4, Some(Cut::Close))
        );
        state.arm(Direction::ToServer, 0, Cut::Close);
        assert_eq!(
            permit(&state, Direction::ToServer, 1),
            (0, Some(Cut::Close))
        );
        state.arm(Direction::ToServer, 0, Cut::Close);
        state.disarm();
        assert_eq!(permit(&state, Direction::ToServer, 1), (1, WHOLE));
    }

    #[tokio::test]
    async fn ending_reaches_the_members_of_before_only() {
        let state = State::default();
        let mut before = state.join();
        let member = async {
            let cut = before.told_to_end().await;
            drop(before);
            cut
        };
        let ((), cut) = tokio::join!(state.end_connections(Cut::Reset), member);
        assert_eq!(cut, Cut::Reset);
        let mut after = state.join();
        assert!(
            tokio::time::timeout(Duration::ZERO, after.told_to_end())
                .await
                .is_err()
        );
        assert_eq!(state.statistics().open, 1);
    }
}
