//! Asking for jobs: what a claim is told, and what is kept of it until it is answered.

use std::future::{poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::futures::Notified;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::room::Room;
use crate::db::{Link, Micros, Param};
use crate::error::Result;
use crate::worker::bundle::MOST;
use crate::worker::core::{Core, NO_LANE, lock};
use crate::worker::cursor::Cursor;
use crate::worker::lane::Lane;
use crate::worker::slots::{Ticket, Wanted};
use crate::worker::spare::SpareLink;
use crate::worker::token::random_token;

/// Queues in one claim statement; more of them are asked in turn.
const LANES_PER_CLAIM: usize = 64;
/// Jobs that are taken at once when somebody has rung, before a claim looks at everything.
const FRESH_MAX: usize = 10;

const SQL_BUNDLE: &str = "select * from rowlock.claim_bundle($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const SQL_FRESH: &str = "select * from rowlock.claim_fresh($1, $2, $3, $4, $5, $6, $7)";
const SQL: &str = "select * from rowlock.claim_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, true, $13, $14)";

/// A claim under way.
pub(super) struct Asked<'a> {
    /// Whether it is on the spare connection.
    pub(super) spare: bool,
    /// Whether it only looks at what has just become due.
    pub(super) fresh: bool,
    /// Whether it asks for a bundle, and takes nothing else.
    pub(super) bundle: bool,
    /// What was due later it leaves alone.
    pub(super) until: Option<Micros>,
    /// What it may leave behind was due after this, if anybody knows: what was due before was settled when it was sent, and where it starts nobody had it locked.
    pub(super) leaves_after: Option<Micros>,
    /// Whether all that was asked for could start at once.
    pub(super) all_start: bool,
    /// How many jobs it may bring.
    pub(super) want: usize,
    /// What it counts on in the slots.
    pub(super) ticket: Ticket,
    /// Where it starts in each of its queues.
    pub(super) from: Vec<(Arc<Lane>, Cursor)>,
    /// Queues that did not fit into the statement and are asked next.
    pub(super) rest: Vec<(usize, usize)>,
    pub(super) look_back: Duration,
    pub(super) token: i64,
    pub(super) began: Instant,
    pub(super) rewinds: u64,
    /// Whoever rings from here on is heard, even if the claim just misses what it rang for.
    pub(super) rung: Pin<Box<Notified<'a>>>,
    pub(super) rows: BoxFuture<'a, Result<Vec<Row>>>,
}

/// The connection that a claim is sent on.
pub(super) enum Hand<'a> {
    Own(&'a Link),
    Spare(SpareLink),
}

impl Hand<'_> {
    fn link(&self) -> &Link {
        match self {
            Hand::Own(link) => link,
            Hand::Spare(link) => link,
        }
    }
}

/// What is said of each queue in a claim.
struct Claim {
    queues: Vec<Arc<str>>,
    wants: Vec<i32>,
    after_at: Vec<Micros>,
    after_id: Vec<i64>,
    follow: Vec<bool>,
    until_at: Option<Vec<Micros>>,
    until_id: Option<Vec<i64>>,
}

impl Claim {
    fn new(from: &[(Arc<Lane>, Cursor)], wants: Vec<i32>, until: Option<Micros>) -> Self {
        let (mut after_at, mut after_id) = (Vec::new(), Vec::new());
        for (_, cursor) in from {
            cursor.write_to(&mut after_at, &mut after_id);
        }
        let places = after_at.len();
        Self {
            queues: from.iter().map(|(lane, _)| lane.queue.clone()).collect(),
            wants,
            after_at,
            after_id,
            follow: from.iter().map(|(_, cursor)| cursor.may_follow()).collect(),
            until_at: until.map(|at| vec![at; places]),
            until_id: until.map(|_| vec![i64::MAX; places]),
        }
    }
}

impl Core {
    /// Asks for jobs of all queues that there is room for, from so far back, and until they were due so late if that is given.
    pub(super) fn ask<'a>(
        &'a self,
        hand: Hand<'a>,
        room: Room,
        look_back: Duration,
        until: Option<Micros>,
    ) -> Asked<'a> {
        let Room { ticket, wanted, .. } = room;
        let mut lanes = wanted.lanes;
        let rest = lanes.split_off(lanes.len().min(LANES_PER_CLAIM));
        let mut rung = Box::pin(self.bell.notified());
        rung.as_mut().enable();
        let (token, rewinds) = (random_token(), self.rewinds.load(Relaxed));
        let mut from = Vec::with_capacity(lanes.len());
        let mut wants = Vec::with_capacity(lanes.len());
        for (number, room) in lanes {
            let lane = self.lane(number);
            let cursor = lock(&lane.cursor).clone();
            from.push((lane, cursor));
            wants.push(i32::try_from(room).unwrap_or(i32::MAX));
        }
        let claim = Claim::new(&from, wants, until);
        Asked {
            spare: matches!(hand, Hand::Spare(_)),
            fresh: false,
            bundle: false,
            until,
            leaves_after: None,
            all_start: wanted.all_start,
            want: wanted.total,
            ticket,
            from,
            rest,
            look_back,
            token,
            began: Instant::now(),
            rewinds,
            rung,
            rows: async move {
                let (want, suspects) = (wanted.total, wanted.all_start);
                self.send_claim(hand.link(), claim, want, token, suspects, look_back)
                    .await
            }
            .boxed(),
        }
    }

    /// Asks for a bundle of the one queue that there is room for.
    pub(super) fn ask_bundle<'a>(
        &'a self,
        hand: Hand<'a>,
        room: Room,
        until: Option<Micros>,
    ) -> Asked<'a> {
        let Room { ticket, wanted, .. } = room;
        let want = wanted.total.min(MOST);
        let lane = self.lane(wanted.lanes[0].0);
        let mut rung = Box::pin(self.bell.notified());
        rung.as_mut().enable();
        let (token, rewinds) = (random_token(), self.rewinds.load(Relaxed));
        let cursor = lock(&lane.cursor).clone();
        let (mut after_at, mut after_id) = (Vec::new(), Vec::new());
        cursor.write_to(&mut after_at, &mut after_id);
        let queue = lane.queue.clone();
        Asked {
            spare: matches!(hand, Hand::Spare(_)),
            fresh: false,
            bundle: true,
            until,
            leaves_after: None,
            all_start: wanted.all_start,
            want,
            ticket,
            from: vec![(lane, cursor)],
            rest: Vec::new(),
            look_back: Duration::ZERO,
            token,
            began: Instant::now(),
            rewinds,
            rung,
            rows: async move {
                let n = i32::try_from(want).unwrap_or(i32::MAX);
                let (worker, lease_ms) = (self.worker_id(), self.lease_ms());
                let params: [Param<'_>; 9] = [
                    (&&*queue, Type::TEXT),
                    (&n, Type::INT4),
                    (&worker, Type::INT8),
                    (&token, Type::INT8),
                    (&lease_ms, Type::INT4),
                    (&self.kinds, Type::TEXT_ARRAY),
                    (&after_at, Type::TIMESTAMPTZ_ARRAY),
                    (&after_id, Type::INT8_ARRAY),
                    (&until, Type::TIMESTAMPTZ),
                ];
                self.look(hand.link(), "claim jobs", SQL_BUNDLE, &params)
                    .await
            }
            .boxed(),
        }
    }

    /// Asks for what has just become due in the queue that somebody has rung for, if there are slots for it.
    pub(super) fn ask_fresh<'a>(&'a self, link: &'a Link) -> Option<Asked<'a>> {
        if self.stopping.is_cancelled() {
            return None;
        }
        let number = self.rung_for.swap(NO_LANE, Relaxed);
        let (ticket, want) = lock(&self.slots).ask_one(number, FRESH_MAX)?;
        let mut rung = Box::pin(self.bell.notified());
        rung.as_mut().enable();
        let token = random_token();
        let lane = self.lane(number);
        Some(Asked {
            spare: false,
            fresh: true,
            bundle: false,
            until: None,
            leaves_after: None,
            all_start: true,
            want,
            ticket,
            from: Vec::new(),
            rest: Vec::new(),
            look_back: Duration::ZERO,
            token,
            began: Instant::now(),
            rewinds: 0,
            rung,
            rows: async move {
                let n = i32::try_from(want).unwrap_or(i32::MAX);
                let (worker, lease_ms) = (self.worker_id(), self.lease_ms());
                let (mut after_at, mut after_id) = (Vec::new(), Vec::new());
                lock(&lane.cursor).write_to(&mut after_at, &mut after_id);
                let params: [Param<'_>; 7] = [
                    (&&*lane.queue, Type::TEXT),
                    (&n, Type::INT4),
                    (&worker, Type::INT8),
                    (&token, Type::INT8),
                    (&lease_ms, Type::INT4),
                    (&self.kinds, Type::TEXT_ARRAY),
                    (&after_at, Type::TIMESTAMPTZ_ARRAY),
                ];
                self.look(link, "claim jobs", SQL_FRESH, &params).await
            }
            .boxed(),
        })
    }

    /// Asks the queues that the last claim left out, for what it left.
    pub(super) fn ask_rest<'a>(
        &'a self,
        link: &'a Link,
        asked: Asked<'a>,
        jobs: usize,
    ) -> Asked<'a> {
        let wanted = Wanted {
            lanes: asked.rest,
            total: asked.want - jobs,
            free: 0,
            all_start: asked.all_start,
        };
        let room = Room {
            ticket: asked.ticket,
            wanted,
            quick: false,
            torrent: false,
        };
        let next = self.ask(Hand::Own(link), room, asked.look_back, asked.until);
        // Who rang since the first of them is to be heard.
        let (rung, leaves_after) = (asked.rung, asked.leaves_after);
        Asked {
            rung,
            leaves_after,
            ..next
        }
    }

    async fn send_claim(
        &self,
        link: &Link,
        claim: Claim,
        want: usize,
        token: i64,
        suspects: bool,
        look_back: Duration,
    ) -> Result<Vec<Row>> {
        let queues: Vec<&str> = claim.queues.iter().map(|q| &**q).collect();
        let want = i32::try_from(want).unwrap_or(i32::MAX);
        let worker = self.worker_id();
        let lease_ms = self.lease_ms();
        let look_back_ms = i32::try_from(look_back.as_millis()).unwrap_or(i32::MAX);
        self.look(
            link,
            "claim jobs",
            SQL,
            &[
                (&queues, Type::TEXT_ARRAY),
                (&claim.wants, Type::INT4_ARRAY),
                (&want, Type::INT4),
                (&worker, Type::INT8),
                (&token, Type::INT8),
                (&lease_ms, Type::INT4),
                (&self.kinds, Type::TEXT_ARRAY),
                (&suspects, Type::BOOL),
                (&claim.after_at, Type::TIMESTAMPTZ_ARRAY),
                (&claim.after_id, Type::INT8_ARRAY),
                (&look_back_ms, Type::INT4),
                (&claim.follow, Type::BOOL_ARRAY),
                (&claim.until_at, Type::TIMESTAMPTZ_ARRAY),
                (&claim.until_id, Type::INT8_ARRAY),
            ],
        )
        .await
    }
}

/// Polled once, a statement is sent. An answer this early can only be that there is no connection.
pub(super) fn on_its_way(mut asked: Asked<'_>) -> Asked<'_> {
    if let Some(early) = (&mut asked.rows).now_or_never() {
        asked.rows = Box::pin(ready(early));
    }
    asked
}

/// Waits for the first of them to be answered, and takes it out.
pub(super) async fn first_answer<'a>(
    under_way: &mut Vec<Asked<'a>>,
) -> (Asked<'a>, Result<Vec<Row>>) {
    let (n, rows) = poll_fn(|cx| {
        let mut answers = under_way.iter_mut().enumerate();
        answers
            .find_map(|(n, asked)| match asked.rows.as_mut().poll(cx) {
                Poll::Ready(rows) => Some(Poll::Ready((n, rows))),
                Poll::Pending => None,
            })
            .unwrap_or(Poll::Pending)
    })
    .await;
    (under_way.remove(n), rows)
}
