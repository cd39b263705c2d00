//! An attempt: one claimed job, from the claim to the acknowledgement.
//!
//! Shared by the slot that runs it, the lease keeper that renews it, the handler that asks about it and the acknowledgement that
//! ends it. What changes is atomic; nothing here talks to the database.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_util::sync::CancellationToken;

use super::answer::{Rest, column};
use super::bundle::Bundle;
use super::lane::Lane;
use super::registry::Registered;
use super::slots::Waiting;
use crate::client::Client;
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
    pub(crate) origin: Arc<Origin>,
    pub(crate) payload: Box<str>,
    pub(crate) run_at: Micros,
    /// What is different about it, unless it is a job like most: those take less memory, and less time to go through.
    own: Option<Box<Own>>,
    /// Milliseconds from the claim to the start of the newest lease.
    renewed_ms: AtomicU64,
    /// Where the row is; a hint for the fast path of an acknowledgement.
    place: AtomicU64,
    /// By which the database knows the row as the claim wrote it; 0 when it has been written since.
    mark: AtomicI64,
    /// Whether it has no lease but that of its bundle.
    bundled: AtomicBool,
    /// Microseconds from the claim to the start of the handler, and one; 0 before that.
    started_us: AtomicU64,
    cancel: OnceLock<CancelReason>,
    /// Made when the handler asks for it, or when there is something to tell.
    cancel_token: OnceLock<CancellationToken>,
    /// Whether the handler finished the job in a transaction of its own; only the database knows whether that committed.
    pub(crate) completed_in_tx: AtomicBool,
    /// Whether something has been said of it already.
    answered: AtomicBool,
}

/// What a job that is not like most has of its own.
struct Own {
    number: i32,
    failures: i16,
    crashes: i16,
    max_attempts: i16,
    priority: i16,
    created_at: Micros,
    timeout: Option<Duration>,
    tags: Box<[String]>,
    metadata: Option<Box<str>>,
    trace: Option<Box<str>>,
}

impl From<Rest<'_>> for Own {
    fn from(rest: Rest<'_>) -> Self {
        let tags = rest.tags.unwrap_or_default();
        Self {
            number: rest.attempt,
            failures: rest.failures,
            crashes: rest.crashes,
            max_attempts: rest.max_attempts,
            priority: rest.priority,
            created_at: rest.created_at,
            timeout: rest
                .timeout_ms
                .map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))),
            tags: tags.into_iter().map(Into::into).collect(),
            metadata: rest.metadata.map(Into::into),
            trace: rest.trace.map(Into::into),
        }
    }
}

/// What the jobs of one kind that came with one claim have in common. They share it rather than have it each: counters that all jobs of a worker
/// go up and down on move from core to core with each of them.
pub(crate) struct Origin {
    /// The queue.
    pub(crate) lane: Arc<Lane>,
    pub(crate) kind: Arc<str>,
    pub(crate) handler: Arc<Registered>,
    pub(crate) client: Client,
    pub(crate) token: i64,
    /// Just before the claim was sent: the lease runs at least `lease` from here.
    pub(crate) claimed: Instant,
    /// The database's time of the claim.
    pub(crate) clock: Micros,
    pub(crate) lease: Duration,
    /// Where a job does not say otherwise.
    pub(crate) max_attempts: i16,
    /// By which the database knows what the claim has written.
    pub(crate) mark: Option<i64>,
    /// The lease that they share, if they do.
    pub(crate) bundle: Option<Arc<Bundle>>,
}

impl Attempt {
    pub(super) fn new(row: &Row, origin: &Arc<Origin>) -> Self {
        Self {
            id: row.get(column::ID),
            origin: origin.clone(),
            payload: row.get::<_, RawJson<'_>>(column::PAYLOAD).0.into(),
            run_at: row.get(column::RUN_AT),
            own: Rest::of(row).map(|rest| Box::new(rest.into())),
            renewed_ms: AtomicU64::new(0),
            place: AtomicU64::new(row.get::<_, Place>(column::TID).0),
            mark: AtomicI64::new(origin.mark.unwrap_or(0)),
            bundled: AtomicBool::new(origin.bundle.is_some()),
            started_us: AtomicU64::new(0),
            cancel: OnceLock::new(),
            cancel_token: OnceLock::new(),
            completed_in_tx: AtomicBool::new(false),
            answered: AtomicBool::new(false),
        }
    }

    /// Which attempt at the job it is.
    pub(crate) fn number(&self) -> i32 {
        self.own.as_ref().map_or(1, |own| own.number)
    }

    pub(crate) fn failures(&self) -> i16 {
        self.own.as_ref().map_or(0, |own| own.failures)
    }

    pub(crate) fn crashes(&self) -> i16 {
        self.own.as_ref().map_or(0, |own| own.crashes)
    }

    pub(crate) fn max_attempts(&self) -> i16 {
        let own = self.own.as_ref();
        own.map_or(self.origin.max_attempts, |own| own.max_attempts)
    }

    pub(crate) fn priority(&self) -> i16 {
        self.own.as_ref().map_or(0, |own| own.priority)
    }

    pub(crate) fn created_at(&self) -> Micros {
        self.own.as_ref().map_or(self.run_at, |own| own.created_at)
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.own.as_ref()?.timeout
    }

    pub(crate) fn tags(&self) -> &[String] {
        self.own.as_ref().map_or(&[], |own| &own.tags)
    }

    /// As JSON.
    pub(crate) fn metadata(&self) -> Option<&str> {
        self.own.as_ref()?.metadata.as_deref()
    }

    pub(crate) fn trace(&self) -> Option<&str> {
        self.own.as_ref()?.trace.as_deref()
    }

    /// How long it had been due when it was claimed, by the database's clock.
    pub(crate) fn waited(&self) -> Duration {
        self.origin.clock.since(self.run_at)
    }

    pub(crate) fn start(&self, now: Instant) {
        let us = now.duration_since(self.origin.claimed).as_micros();
        self.started_us
            .store(u64::try_from(us).unwrap_or(u64::MAX - 1) + 1, Relaxed);
    }

    /// How long the handler has been at it; `None` before it began.
    pub(crate) fn ran(&self) -> Option<Duration> {
        self.ran_until(Instant::now())
    }

    pub(crate) fn ran_until(&self, now: Instant) -> Option<Duration> {
        let us = self.started_us.load(Relaxed).checked_sub(1)?;
        Some(now.duration_since(self.origin.claimed + Duration::from_micros(us)))
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
    pub(crate) fn lease_is_over(&self, now: Instant) -> bool {
        now.duration_since(self.leased_since()) > self.origin.lease
    }

    pub(crate) fn queue(&self) -> &Arc<str> {
        &self.origin.lane.queue
    }

    /// Since when the newest lease runs.
    pub(crate) fn leased_since(&self) -> Instant {
        self.origin.claimed + Duration::from_millis(self.renewed_ms.load(Relaxed))
    }

    /// The lease was renewed by a statement sent at `sent`, and the row has moved.
    pub(crate) fn renewed(&self, sent: Instant, tid: &str) {
        let ms = sent.duration_since(self.origin.claimed).as_millis();
        self.renewed_ms
            .store(u64::try_from(ms).unwrap_or(u64::MAX), Relaxed);
        self.place.store(Place::parse(tid).0, Relaxed);
        self.touched();
    }

    pub(crate) fn is_bundled(&self) -> bool {
        self.bundled.load(Relaxed)
    }

    /// It is over, or has a lease of its own. Returns the token of the bundle that no other job needs either.
    pub(crate) fn leave_bundle(&self) -> Option<i64> {
        let bundle = self.origin.bundle.as_ref()?;
        self.bundled.swap(false, Relaxed).then(|| bundle.leave())?
    }

    /// The row is written anew, or may be.
    pub(crate) fn touched(&self) {
        self.mark.store(0, Relaxed);
    }

    /// The claim's mark, while nobody is known to have touched the row since.
    pub(crate) fn mark(&self) -> Option<i64> {
        Some(self.mark.load(Relaxed)).filter(|mark| *mark != 0)
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
        self.origin.handler.chunk_max()
    }

    fn goes_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.origin.handler, &other.origin.handler)
    }
}
