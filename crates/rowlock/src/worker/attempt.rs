//! An attempt: one claimed job, from the claim to the acknowledgement.
//!
//! Shared by the slot that runs it, the lease keeper that renews it, the handler that asks about it and the acknowledgement that
//! ends it. What changes is atomic; nothing here talks to the database.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_util::sync::CancellationToken;

use super::lane::Lane;
use super::registry::Registered;
use super::slots::Waiting;
use crate::db::{Micros, Place, RawJson};

/// Why a handler is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// The job ran longer than its timeout.
    Timeout,
    /// The lease went to somebody else: whatever this attempt still does, its acknowledgement will be refused.
    LeaseLost,
    /// The database could not be reached for so long that the lease has run out: another worker may have the job. If none has,
    /// this attempt's acknowledgement still counts.
    Unreachable,
    /// Somebody asked for the job to be cancelled.
    Cancelled,
    /// The worker stops and its grace period is over; the job is given back.
    Shutdown,
}

/// One claimed job.
pub(crate) struct Attempt {
    pub(crate) id: i64,
    pub(crate) token: i64,
    /// The queue it came from.
    pub(crate) lane: Arc<Lane>,
    pub(crate) kind: Arc<str>,
    pub(crate) handler: Arc<Registered>,
    pub(crate) payload: Box<str>,
    pub(crate) number: i32,
    pub(crate) failures: i16,
    pub(crate) crashes: i16,
    pub(crate) max_attempts: i16,
    pub(crate) priority: i16,
    pub(crate) run_at: Micros,
    pub(crate) created_at: Micros,
    pub(crate) timeout: Option<Duration>,
    pub(crate) tags: Vec<String>,
    pub(crate) metadata: Option<Box<str>>,
    pub(crate) trace: Option<Box<str>>,
    /// How long it had been due when it was claimed, by the database's clock.
    pub(crate) waited: Duration,
    pub(crate) lease: Duration,
    /// Just before the claim was sent: the lease runs at least `lease` from here.
    pub(crate) claimed: Instant,
    /// Milliseconds from `claimed` to the start of the newest lease.
    renewed_ms: AtomicU64,
    /// Where the row is; a hint for the fast path of an acknowledgement.
    place: AtomicU64,
    started: OnceLock<Instant>,
    cancel: OnceLock<CancelReason>,
    /// Made when the handler asks for it, or when there is something to tell.
    cancel_token: OnceLock<CancellationToken>,
    /// Whether the handler finished the job in a transaction of its own; only the database knows whether that committed.
    pub(crate) completed_in_tx: AtomicBool,
    /// Whether something has been said of it already.
    answered: AtomicBool,
}

/// The columns of a claim, by their place.
pub(crate) mod column {
    pub(crate) const QUEUE: usize = 0;
    pub(crate) const ID: usize = 1;
    pub(crate) const KIND: usize = 2;
    pub(crate) const PAYLOAD: usize = 3;
    pub(crate) const PRIORITY: usize = 4;
    pub(crate) const ATTEMPT: usize = 5;
    pub(crate) const FAILURES: usize = 6;
    pub(crate) const CRASHES: usize = 7;
    pub(crate) const MAX_ATTEMPTS: usize = 8;
    pub(crate) const RUN_AT: usize = 9;
    pub(crate) const CREATED_AT: usize = 10;
    pub(crate) const LEASE_UNTIL: usize = 11;
    pub(crate) const TID: usize = 12;
    pub(crate) const TIMEOUT_MS: usize = 13;
    pub(crate) const TAGS: usize = 15;
    pub(crate) const METADATA: usize = 16;
    pub(crate) const TRACE: usize = 17;
    pub(crate) const CURSOR_AT: usize = 18;
    pub(crate) const CURSOR_ID: usize = 19;
    pub(crate) const PARKED: usize = 20;
    pub(crate) const MORE: usize = 21;
    pub(crate) const CLOCK: usize = 22;
}

/// What a row of a claim does not say itself.
pub(crate) struct Origin {
    pub(crate) lane: Arc<Lane>,
    pub(crate) token: i64,
    pub(crate) claimed: Instant,
    /// The database's time of the claim.
    pub(crate) clock: Micros,
}

impl Attempt {
    pub(crate) fn new(row: &Row, origin: &Origin, handler: Arc<Registered>) -> Self {
        let us = |us: i64| Duration::from_micros(u64::try_from(us).unwrap_or(0));
        let run_at: Micros = row.get(column::RUN_AT);
        let lease_until: Micros = row.get(column::LEASE_UNTIL);
        let kind = handler.kind_text(row.get(column::KIND));
        Self {
            id: row.get(column::ID),
            token: origin.token,
            lane: origin.lane.clone(),
            kind,
            handler,
            payload: row.get::<_, RawJson<'_>>(column::PAYLOAD).0.into(),
            number: row.get(column::ATTEMPT),
            failures: row.get(column::FAILURES),
            crashes: row.get(column::CRASHES),
            max_attempts: row.get(column::MAX_ATTEMPTS),
            priority: row.get(column::PRIORITY),
            run_at,
            created_at: row.get(column::CREATED_AT),
            timeout: row
                .get::<_, Option<i64>>(column::TIMEOUT_MS)
                .map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))),
            tags: row
                .get::<_, Option<Vec<String>>>(column::TAGS)
                .unwrap_or_default(),
            metadata: row
                .get::<_, Option<RawJson<'_>>>(column::METADATA)
                .map(|m| m.0.into()),
            trace: row.get::<_, Option<&str>>(column::TRACE).map(Into::into),
            waited: us(origin.clock.0.saturating_sub(run_at.0)),
            lease: us(lease_until.0.saturating_sub(origin.clock.0)),
            claimed: origin.claimed,
            renewed_ms: AtomicU64::new(0),
            place: AtomicU64::new(row.get::<_, Place>(column::TID).0),
            started: OnceLock::new(),
            cancel: OnceLock::new(),
            cancel_token: OnceLock::new(),
            completed_in_tx: AtomicBool::new(false),
            answered: AtomicBool::new(false),
        }
    }

    pub(crate) fn start(&self) {
        let _ = self.started.set(Instant::now());
    }

    /// How long the handler has been at it; `None` before it began.
    pub(crate) fn ran(&self) -> Option<Duration> {
        self.started.get().map(Instant::elapsed)
    }

    /// Asks the handler to stop. The first reason counts.
    pub(crate) fn cancel(&self, reason: CancelReason) {
        if self.cancel.set(reason).is_ok() {
            self.cancel_token().cancel();
        }
    }

    pub(crate) fn cancel_reason(&self) -> Option<CancelReason> {
        self.cancel.get().copied()
    }

    pub(crate) fn cancel_token(&self) -> &CancellationToken {
        let token = self.cancel_token.get_or_init(CancellationToken::new);
        // Somebody may have cancelled between the two: then the token must say so.
        if self.cancel.get().is_some() {
            token.cancel();
        }
        token
    }

    /// True for the first who wants to say what becomes of it.
    pub(crate) fn first_to_answer(&self) -> bool {
        !self.answered.swap(true, Relaxed)
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Relaxed)
    }

    /// Whether its lease has run out as far as we know: somebody else may have it.
    pub(crate) fn lease_is_over(&self) -> bool {
        self.leased_since().elapsed() > self.lease
    }

    pub(crate) fn queue(&self) -> &Arc<str> {
        &self.lane.queue
    }

    /// Since when the newest lease runs.
    pub(crate) fn leased_since(&self) -> Instant {
        self.claimed + Duration::from_millis(self.renewed_ms.load(Relaxed))
    }

    /// The lease was renewed by a statement sent at `sent`, and the row has moved.
    pub(crate) fn renewed(&self, sent: Instant, tid: &str) {
        let ms = sent.duration_since(self.claimed).as_millis();
        self.renewed_ms
            .store(u64::try_from(ms).unwrap_or(u64::MAX), Relaxed);
        self.place.store(Place::parse(tid).0, Relaxed);
    }

    pub(crate) fn place(&self) -> Place {
        Place(self.place.load(Relaxed))
    }

    pub(crate) fn run_at(&self) -> Option<Timestamp> {
        self.run_at.to_timestamp()
    }
}

impl Waiting for Arc<Attempt> {
    fn chunk_max(&self) -> usize {
        self.handler.chunk_max()
    }

    fn goes_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handler, &other.handler)
    }
}
