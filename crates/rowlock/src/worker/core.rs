//! The core: what the tasks of one worker share.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rapidhash::RapidHashMap;
use tokio::sync::Notify;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ack::Acks;
use super::attempt::Attempt;
use super::bundle::Closed;
use super::config::Config;
use super::lane::Lane;
use super::registry::Registry;
use super::slots::Slots;
use super::telemetry::WorkerMeters;
use crate::client::Client;
use crate::db::{Link, LinkError, Live, Micros, Param};
use crate::error::{Error, Result};
use crate::schema::Schema;

/// The number of no lane.
pub(super) const NO_LANE: usize = usize::MAX;

/// What the tasks of one worker share.
pub(super) struct Core {
    pub(super) client: Client,
    pub(super) schema: Schema,
    pub(super) config: Config,
    pub(super) registry: Registry,
    /// The kinds to ask for; `None` for all.
    pub(super) kinds: Option<Vec<String>>,
    /// The id of the worker's row.
    pub(super) worker: AtomicI64,
    lanes: Mutex<Lanes>,
    pub(super) slots: Mutex<Slots<Arc<Attempt>>>,
    /// Every job that is claimed and not acknowledged, by id.
    pub(super) held: Mutex<RapidHashMap<i64, Arc<Attempt>>>,
    pub(super) acks: Acks,
    pub(super) closed: Closed,
    /// There is room for more jobs.
    pub(super) room: Notify,
    /// Below so many waiting jobs it is time to claim; set by the claim loop.
    pub(super) low_water: AtomicUsize,
    /// Somebody rang, or something else made it worth looking at once.
    pub(super) bell: Notify,
    /// The lane that somebody has rung for, last of all; [`NO_LANE`] once that was heeded.
    pub(super) rung_for: AtomicUsize,
    /// Somebody has disarmed the bell that this worker may wait for.
    pub(super) disarmed: AtomicBool,
    /// Somebody has scheduled a job that is due before the bell has to be armed again.
    pub(super) rescheduled: AtomicBool,
    /// Whether a bell would be heard.
    pub(super) listening: AtomicBool,
    /// A full scan is wanted soon.
    pub(super) sweep: Notify,
    /// A full scan found more jobs whose leases had expired than it had room for: for a while, claims bring only what starts at once,
    /// because such jobs are not claimed ahead.
    pub(super) suspects: AtomicBool,
    /// A slot that was reserved for a full scan may have become free.
    pub(super) slot_freed: Notify,
    /// The database has answered for some jobs.
    pub(super) acks_settled: Notify,
    /// A claim found nothing while nothing was held.
    pub(super) drained: Notify,
    /// A full scan is under way, and may bring jobs that a claim no longer sees.
    pub(super) sweeping: AtomicBool,
    /// A claim found nothing while a scan was under way or jobs were held, and is to be repeated when they are not.
    pub(super) look_again: AtomicBool,
    /// How many wait for the queues to be drained.
    pub(super) draining: AtomicUsize,
    /// There are queues whose bells are not armed yet.
    pub(super) new_lanes: AtomicBool,
    /// Counts the times that cursors were set back, so that a claim under way does not undo it. Read and changed under the lock of
    /// the cursor it is about.
    pub(super) rewinds: AtomicU64,
    /// How often somebody has rung.
    pub(super) rings: AtomicU64,
    /// The tasks that claim.
    pub(super) looking: TaskTracker,
    /// Claim no more.
    pub(super) stopping: CancellationToken,
    /// End the grace period.
    pub(super) hurry: CancellationToken,
    /// Drop the handlers that have not stopped when they were told to.
    pub(super) abandoned: CancellationToken,
    /// Drop everything.
    pub(super) stopped: CancellationToken,
    /// The slots that run jobs.
    pub(super) running: TaskTracker,
    pub(super) finished: AtomicU64,
    pub(super) meters: WorkerMeters,
}

#[derive(Default)]
struct Lanes {
    all: Vec<Arc<Lane>>,
    by_queue: HashMap<Arc<str>, usize>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is changed in single steps: a panic elsewhere leaves it sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    pub(super) fn new(client: Client, config: Config, registry: Registry) -> Self {
        let slots = Mutex::new(Slots::new(config.concurrency, config.order));
        Self {
            schema: client.schema().clone(),
            kinds: registry.kinds(),
            client,
            registry,
            worker: AtomicI64::new(0),
            lanes: Mutex::default(),
            slots,
            held: Mutex::default(),
            acks: Acks::default(),
            closed: Closed::default(),
            room: Notify::new(),
            low_water: AtomicUsize::new(0),
            bell: Notify::new(),
            rung_for: AtomicUsize::new(NO_LANE),
            disarmed: AtomicBool::new(false),
            rescheduled: AtomicBool::new(false),
            listening: AtomicBool::new(false),
            sweep: Notify::new(),
            suspects: AtomicBool::new(false),
            slot_freed: Notify::new(),
            acks_settled: Notify::new(),
            drained: Notify::new(),
            sweeping: AtomicBool::new(false),
            look_again: AtomicBool::new(false),
            draining: AtomicUsize::new(0),
            new_lanes: AtomicBool::new(false),
            rewinds: AtomicU64::new(0),
            rings: AtomicU64::new(0),
            looking: TaskTracker::new(),
            stopping: CancellationToken::new(),
            hurry: CancellationToken::new(),
            abandoned: CancellationToken::new(),
            stopped: CancellationToken::new(),
            running: TaskTracker::new(),
            finished: AtomicU64::new(0),
            meters: WorkerMeters::new(),
            config,
        }
    }

    pub(super) fn worker_id(&self) -> i64 {
        self.worker.load(Relaxed)
    }

    /// How long leases last, if it is not as the queues say.
    pub(super) fn lease_ms(&self) -> Option<i32> {
        self.config
            .lease
            .map(|lease| i32::try_from(lease.as_millis()).unwrap_or(i32::MAX))
    }

    pub(super) fn lane(&self, n: usize) -> Arc<Lane> {
        lock(&self.lanes).all[n].clone()
    }

    pub(super) fn lanes(&self) -> Vec<Arc<Lane>> {
        lock(&self.lanes).all.clone()
    }

    pub(super) fn lane_of(&self, queue: &str) -> Option<usize> {
        lock(&self.lanes).by_queue.get(queue).copied()
    }

    pub(super) fn queue_names(&self) -> Vec<String> {
        lock(&self.lanes)
            .all
            .iter()
            .map(|l| l.queue.to_string())
            .collect()
    }

    /// Serves this queue too, if one of the subscriptions means it. Returns whether it is new.
    pub(super) fn subscribe(&self, queue: &str) -> bool {
        let mut subscriptions = self.config.queues.iter().enumerate();
        let Some((rank, subscription)) = subscriptions.find(|(_, q)| q.means(queue)) else {
            return false;
        };
        let mut lanes = lock(&self.lanes);
        if lanes.by_queue.contains_key(queue) {
            return false;
        }
        let limit = subscription.concurrency.unwrap_or(self.config.concurrency);
        let n =
            lock(&self.slots).add_lane(rank, limit, subscription.weight, self.registry.chunk_max());
        debug_assert_eq!(n, lanes.all.len());
        let lane = Arc::new(Lane::new(n, queue));
        lanes.by_queue.insert(lane.queue.clone(), n);
        lanes.all.push(lane);
        self.new_lanes.store(true, Relaxed);
        true
    }

    /// Makes the next claim look at all of this queue that is due since then.
    pub(super) fn rewind(&self, lane: &Lane, since: Micros) {
        let mut cursor = lock(&lane.cursor);
        cursor.back_to_time(since);
        self.rewinds.fetch_add(1, Relaxed);
    }

    /// Keeps claimed jobs until they are settled.
    pub(super) fn hold(&self, attempts: &[Arc<Attempt>]) {
        let mut before = Vec::new();
        {
            let mut held = lock(&self.held);
            for attempt in attempts {
                before.extend(held.insert(attempt.id, attempt.clone()));
            }
        }
        // The lease expired, and the job came back to us: whoever had it here is not the one who has it now.
        before.iter().for_each(|attempt| self.lose(attempt));
    }

    /// Whether the attempt is not settled yet.
    pub(super) fn holds(&self, attempt: &Attempt) -> bool {
        lock(&self.held)
            .get(&attempt.id)
            .is_some_and(|held| held.origin.token == attempt.origin.token)
    }

    /// The attempts are settled. A newer attempt at the same job, which may be ours too, is not.
    pub(super) fn forget<'a>(&self, attempts: impl IntoIterator<Item = &'a Arc<Attempt>>) {
        let mut closed = Vec::new();
        self.abandon(
            attempts
                .into_iter()
                .inspect(|a| closed.extend(a.leave_bundle())),
        );
        if !closed.is_empty() {
            self.closed.add(closed);
        }
    }

    /// Nothing can be said of these attempts: their leases have to run out.
    pub(super) fn abandon<'a>(&self, attempts: impl IntoIterator<Item = &'a Arc<Attempt>>) {
        let none_left = {
            let mut held = lock(&self.held);
            for attempt in attempts {
                if let Entry::Occupied(entry) = held.entry(attempt.id) {
                    if entry.get().origin.token == attempt.origin.token {
                        entry.remove();
                    }
                }
            }
            held.is_empty()
        };
        self.acks_settled.notify_waiters();
        if none_left && self.look_again.swap(false, SeqCst) {
            self.bell.notify_waiters();
        }
    }

    /// Runs a statement of ours on a link. A connection that does not answer in time is given up.
    pub(super) async fn rows(
        &self,
        link: &Link,
        doing: &str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        let live = self.live(link, doing).await?;
        let sql = self.schema.sql(sql);
        match tokio::time::timeout(self.config.statement_timeout, live.rows(&sql, params)).await {
            Ok(result) => result.map_err(|e| Error::database(doing, self.schema.as_str(), e)),
            Err(_) => {
                link.report_broken(live.generation());
                Err(Error::Closed {
                    doing: format!(
                        "{doing}: no answer within {:?}",
                        self.config.statement_timeout
                    ),
                })
            }
        }
    }

    /// As [`rows`](Self::rows), for those who look for jobs: while there is no connection, the end of the worker ends the wait.
    pub(super) async fn look(
        &self,
        link: &Link,
        doing: &str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        tokio::select! {
            biased;
            live = self.live(link, doing) => drop(live?),
            () = self.stopping.cancelled() => return Err(Error::Closed { doing: doing.into() }),
        }
        self.rows(link, doing, sql, params).await
    }

    pub(super) async fn live(&self, link: &Link, doing: &str) -> Result<Live> {
        link.get().await.map_err(|e| match e {
            LinkError::Stopped => Error::Closed {
                doing: doing.into(),
            },
            LinkError::Failed(e) => Error::Connect((*e).clone()),
        })
    }

    /// Finds the queues that the subscriptions mean and serves those that are new.
    pub(super) async fn discover(&self, link: &Link) -> Result<bool> {
        let mut new = false;
        for name in self.config.queues.iter().filter_map(|q| q.name()) {
            if self.lane_of(name).is_none() {
                self.rows(
                    link,
                    "look up a queue",
                    "select 1 from rowlock.ensure_queue($1)",
                    &[(&name, Type::TEXT)],
                )
                .await?;
                new |= self.subscribe(name);
            }
        }
        if self.config.queues.iter().any(|q| q.name().is_none()) {
            for row in self
                .rows(link, "list the queues", "select rowlock.queue_names()", &[])
                .await?
            {
                new |= self.subscribe(row.get(0));
            }
        }
        Ok(new)
    }

    /// Waits, but not beyond the time when no more jobs are wanted.
    pub(super) async fn pause_looking(&self, how_long: Duration) {
        tokio::select! {
            () = tokio::time::sleep(how_long) => {}
            () = self.stopping.cancelled() => {}
        }
    }

    /// Waits, but not beyond the end. Returns whether the worker is still to go on.
    pub(super) async fn pause(&self, how_long: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(how_long) => true,
            () = self.stopped.cancelled() => false,
        }
    }
}
