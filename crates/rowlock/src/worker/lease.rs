//! Leases: renewed, in batches, only for jobs that outlive half of theirs, or that of a bundle for a moment. The same task says now and then that the worker is alive.
//!
//! A handler is told when its lease is gone, or when nobody could be reached for so long that it must be taken for gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::attempt::{Attempt, CancelReason};
use super::bundle::OVER_WITHIN;
use super::core::{Core, lock};
use crate::db::Link;
use crate::error::{Error, Result};

/// How often leases are looked at; the shortest lease is a second.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);
/// Most leases in one statement.
const BATCH_MAX: usize = 1000;

/// Renews leases and reports the worker until it is stopped.
pub(super) async fn lease_loop(core: Arc<Core>, link: Arc<Link>) {
    let mut beat = Instant::now();
    while core.pause(LOOK_EVERY).await {
        core.watching_expiry(core.renew(&link)).await;
        core.watching_expiry(core.close_bundles(&link)).await;
        if beat.elapsed() >= HEARTBEAT_EVERY {
            beat = Instant::now();
            let alive = async {
                if let Err(e) = core.heartbeat(&link).await {
                    tracing::warn!(error = %e, "cannot report that the worker is alive");
                }
            };
            core.watching_expiry(alive).await;
        }
    }
}

impl Core {
    /// Waits for something that talks to the database. It may take long, or never end while there is no connection, and just then the
    /// handlers must hear that their leases run out.
    async fn watching_expiry(&self, talk: impl Future<Output = ()>) {
        tokio::pin!(talk);
        loop {
            tokio::select! {
                () = &mut talk => return self.give_up_expired(),
                () = tokio::time::sleep(LOOK_EVERY) => self.give_up_expired(),
                () = self.stopped.cancelled() => return,
            }
        }
    }

    /// Tells the database of bundles that nothing is left of. In a flood acknowledgements do so on the way.
    async fn close_bundles(&self, link: &Link) {
        let tokens = self.closed.take();
        if tokens.is_empty() {
            return;
        }
        let closed = self
            .rows(
                link,
                "close bundles",
                "select rowlock.close_bundles($1)",
                &[(&tokens, Type::INT8_ARRAY)],
            )
            .await;
        if let Err(e) = closed {
            tracing::warn!(error = %e, "cannot close bundles, will try again");
            self.closed.add(tokens);
        }
    }

    /// Renews the leases that are half over.
    async fn renew(&self, link: &Link) {
        let now = Instant::now();
        let mut due: HashMap<(usize, Duration), Vec<Arc<Attempt>>> = HashMap::new();
        for attempt in lock(&self.held).values() {
            // One that is over and only waits to be acknowledged needs no lease of its own.
            let lasts = if attempt.is_bundled() && !attempt.is_answered() {
                OVER_WITHIN.min(attempt.origin.lease / 2)
            } else {
                attempt.origin.lease / 2
            };
            if now.duration_since(attempt.leased_since()) >= lasts
                && attempt.cancel_reason() != Some(CancelReason::LeaseLost)
            {
                due.entry((attempt.origin.lane.number, attempt.origin.lease))
                    .or_default()
                    .push(attempt.clone());
            }
        }
        for ((_, lease), attempts) in due {
            for batch in attempts.chunks(BATCH_MAX) {
                if let Err(e) = self.renew_batch(link, lease, batch).await {
                    tracing::warn!(error = %e, "cannot renew leases, will try again");
                }
            }
        }
    }

    async fn renew_batch(
        &self,
        link: &Link,
        lease: Duration,
        batch: &[Arc<Attempt>],
    ) -> Result<()> {
        let by_id: HashMap<i64, &Arc<Attempt>> = batch.iter().map(|a| (a.id, a)).collect();
        let queue: &str = batch[0].queue();
        let ids: Vec<i64> = batch.iter().map(|a| a.id).collect();
        let tokens: Vec<i64> = batch.iter().map(|a| a.origin.token).collect();
        let lease_ms = i32::try_from(lease.as_millis())
            .unwrap_or(i32::MAX)
            .clamp(1000, 86_400_000);
        let sent = Instant::now();
        let rows = self
            .rows(
                link,
                "renew leases",
                "select done, tids, lost, cancelled from rowlock.extend($1, $2, $3, $4)",
                &[
                    (&queue, Type::TEXT),
                    (&ids, Type::INT8_ARRAY),
                    (&tokens, Type::INT8_ARRAY),
                    (&lease_ms, Type::INT4),
                ],
            )
            .await?;
        let Some(row) = rows.first() else {
            return Ok(());
        };
        let (done, tids): (Vec<i64>, Vec<&str>) = (row.get(0), row.get(1));
        for (id, tid) in done.iter().zip(tids) {
            if let Some(attempt) = by_id.get(id) {
                attempt.renewed(sent, tid);
                self.closed.add(attempt.leave_bundle());
            }
        }
        for id in row.get::<_, Vec<i64>>(2) {
            // Between our look and this statement it may have been acknowledged: then it is no longer held. One that the handler
            // has completed in its own transaction is gone as it should be.
            if let Some(attempt) = by_id
                .get(&id)
                .filter(|a| self.holds(a) && !a.completed_in_tx.load(Relaxed))
            {
                self.lose(attempt);
            }
        }
        for id in row.get::<_, Vec<i64>>(3) {
            if let Some(attempt) = by_id.get(&id) {
                attempt.cancel(CancelReason::Cancelled);
            }
        }
        // Those that are busy are locked by somebody for a moment; the next look sees to them.
        Ok(())
    }

    pub(super) fn lose(&self, attempt: &Arc<Attempt>) {
        if attempt.cancel_reason().is_none() {
            tracing::warn!(id = attempt.id, kind = %attempt.origin.kind, queue = %attempt.queue(), attempt = attempt.number(), "the lease was lost");
        }
        attempt.cancel(CancelReason::LeaseLost);
    }

    /// A lease that could not be renewed in time counts as lost: another worker may have the job by now. Its acknowledgement is
    /// still sent, and counts if nobody has it.
    fn give_up_expired(&self) {
        let now = Instant::now();
        let expired: Vec<Arc<Attempt>> = lock(&self.held)
            .values()
            .filter(|a| {
                // While the handler's own transaction holds the row, it cannot be renewed, and nobody can take it.
                a.cancel_reason().is_none()
                    && a.lease_is_over(now)
                    && a.ran().is_some()
                    && !a.completed_in_tx.load(Relaxed)
            })
            .cloned()
            .collect();
        for attempt in expired {
            tracing::warn!(id = attempt.id, kind = %attempt.origin.kind, "the lease ran out and could not be renewed");
            attempt.cancel(CancelReason::Unreachable);
        }
    }

    async fn heartbeat(&self, link: &Link) -> Result<()> {
        let worker = self.worker_id();
        let running = i32::try_from(lock(&self.slots).running()).unwrap_or(i32::MAX);
        let state = if self.stopping.is_cancelled() {
            "draining"
        } else {
            "running"
        };
        let rows = self
            .rows(
                link,
                "report that the worker is alive",
                "select rowlock.heartbeat($1, $2, $3, $4)",
                &[
                    (&worker, Type::INT8),
                    (&running, Type::INT4),
                    (&state, Type::TEXT),
                    (&self.queue_names(), Type::TEXT_ARRAY),
                ],
            )
            .await?;
        if rows.first().is_some_and(|r| !r.get::<_, bool>(0)) {
            // Somebody took us for dead.
            self.register(link).await?;
        }
        // New queues are announced, but a message may have been missed.
        if self.discover(link).await? {
            self.bell.notify_waiters();
        }
        Ok(())
    }

    /// Tells the database who works here.
    pub(super) async fn register(&self, link: &Link) -> Result<()> {
        let config = &self.config;
        let queues: Vec<&str> = config.queues.iter().map(|q| q.text()).collect();
        let kinds = self.kinds.clone().unwrap_or_default();
        let (host, pid) = (host_name(), i32::try_from(std::process::id()).unwrap_or(0));
        let concurrency = i32::try_from(config.concurrency).unwrap_or(i32::MAX);
        let rows = self
            .rows(
                link,
                "register the worker",
                "select rowlock.register_worker($1, $2, $3, $4, $5, $6, $7)",
                &[
                    (&config.name, Type::TEXT),
                    (&host, Type::TEXT),
                    (&pid, Type::INT4),
                    (&env!("CARGO_PKG_VERSION"), Type::TEXT),
                    (&queues, Type::TEXT_ARRAY),
                    (&kinds, Type::TEXT_ARRAY),
                    (&concurrency, Type::INT4),
                ],
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| Error::Setup("the worker got no id".into()))?;
        self.worker.store(row.get(0), Relaxed);
        Ok(())
    }

    pub(super) async fn unregister(&self, link: &Link) -> Result<()> {
        self.close_bundles(link).await;
        let worker = self.worker_id();
        self.rows(
            link,
            "unregister the worker",
            "select rowlock.unregister_worker($1)",
            &[(&worker, Type::INT8)],
        )
        .await?;
        Ok(())
    }
}

pub(super) fn host_name() -> String {
    whoami::hostname().unwrap_or_else(|_| "unknown".into())
}
