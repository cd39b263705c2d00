//! Room for jobs: how many a claim may bring, and how far it is to go for them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::ask::Asked;
use crate::db::Micros;
use crate::worker::ack::UNSENT_MAX;
use crate::worker::bundle::{Bundling, QUICK};
use crate::worker::company::Company;
use crate::worker::core::{Core, lock};
use crate::worker::idle::{Idle, LOOK_FAR_BACK};
use crate::worker::pace::Pace;
use crate::worker::settled::{RECENT, Settled};
use crate::worker::slots::{Ticket, Wanted};

/// So many jobs a second are a torrent. Looking back over all that was finished meanwhile costs much then, so claims go no further than what is settled; with fewer it costs so little that jobs
/// need not wait for each other.
const TORRENT: usize = 20_000;

/// Room for more jobs, which a claim may count on.
pub(super) struct Room {
    pub(super) ticket: Ticket,
    pub(super) wanted: Wanted,
    /// Whether all that is held then is expected to be over in a moment.
    pub(super) quick: bool,
    /// Whether so many are over in a second that it pays to claim only what is settled.
    pub(super) torrent: bool,
}

impl Core {
    /// Waits until more jobs are wanted, and says how many. `None` when the worker stops.
    pub(super) async fn wait_for_room(&self, pace: &mut Pace) -> Option<Room> {
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
    pub(super) fn room_now(&self, pace: &mut Pace) -> Option<Room> {
        let may_wait = pace.ahead(self.finished.load(Relaxed), Instant::now());
        let ahead = (!self.suspects.load(Relaxed)).then_some(may_wait);
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
                quick: ahead.is_some() && pace.ends(held, QUICK),
                torrent: pace.ends(TORRENT, Duration::from_secs(1)),
            }
        })
    }

    /// Whether a claim may ask for a bundle: of one queue only, and where jobs are over in a moment.
    pub(super) fn may_bundle(&self, room: &Room, bundling: &Bundling) -> bool {
        let [(lane, _)] = room.wanted.lanes[..] else {
            return false;
        };
        room.quick
            && bundling.is_worth_a_try(room.wanted.total, Instant::now())
            && lock(&self.lane(lane).cursor).may_follow()
    }

    /// How far to look back in a flood. Not at all where that leads nowhere: in a backlog that was due long ago, what is committed late is still ahead.
    pub(super) fn look_back_in_flood(
        &self,
        room: &Room,
        idle: &mut Idle,
        settled: &Settled,
        until: Option<Micros>,
    ) -> Duration {
        let is_behind = |lane| lock(&self.lane(lane).cursor).is_behind(LOOK_FAR_BACK);
        if room.wanted.lanes.iter().all(|(lane, _)| is_behind(*lane)) {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let look_back = idle.look_back_in_flood(now, settled.behind(until));
        if look_back.is_zero() || until.is_none() {
            return look_back;
        }
        // As far as something may have been left behind, or further.
        let reach = settled.reach(now).unwrap_or(LOOK_FAR_BACK);
        whole_ms(look_back.max(reach)).min(LOOK_FAR_BACK)
    }

    /// How far the next claim is to go in a torrent. All the way beside other workers, who may go further and leave something behind; with several queues, where each would
    /// have its own end; and from a cursor that was set back, which has to come as far as the others are.
    pub(super) fn until(
        &self,
        room: &Room,
        settled: &Settled,
        company: &Company,
    ) -> Option<Micros> {
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
    pub(super) fn is_behind(&self, asked: &Asked<'_>) -> bool {
        let mut cursors = asked.from.iter().map(|(lane, _)| lock(&lane.cursor));
        cursors.all(|cursor| cursor.is_behind(RECENT))
    }
}

/// As a claim is told it. Rounded up: what it did not look at must not count.
fn whole_ms(time: Duration) -> Duration {
    let ms = time.as_micros().div_ceil(1000);
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}
