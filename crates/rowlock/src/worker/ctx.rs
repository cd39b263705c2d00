//! The context of an attempt: what a handler can ask about its job and say of it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempt, CancelReason};
use crate::client::Client;
use crate::db::RawJson;
use crate::error::{Error, Result};
use crate::job::JobId;
use crate::tx::{BoxError, Transaction};
use crate::{unreadable, validate};

/// After so many ms a row that somebody has locked is tried again.
const BUSY_WAITS: [u64; 6] = [5, 20, 50, 100, 200, 400];

tokio::task_local! {
    static TRACE: Box<str>;
}

/// The trace of the job that the current task handles.
pub(crate) fn current_trace() -> Option<String> {
    TRACE.try_with(|trace| trace.to_string()).ok()
}

/// Runs a handler so that what it enqueues carries the trace on.
pub(super) async fn with_trace<F: Future>(trace: Option<Box<str>>, handler: F) -> F::Output {
    match trace {
        Some(trace) => TRACE.scope(trace, handler).await,
        None => handler.await,
    }
}

/// As [`with_trace`], for a handler that blocks its thread.
pub(super) fn with_trace_blocking<T>(trace: Option<Box<str>>, handler: impl FnOnce() -> T) -> T {
    match trace {
        Some(trace) => TRACE.sync_scope(trace, handler),
        None => handler(),
    }
}

/// What a handler can ask about its job and say of it. Cheap to clone.
#[derive(Clone)]
pub struct Ctx {
    attempt: Arc<Attempt>,
}

impl Ctx {
    pub(super) fn new(attempt: Arc<Attempt>) -> Self {
        Self { attempt }
    }

    /// The job.
    pub fn id(&self) -> JobId {
        JobId(self.attempt.id)
    }

    /// Its queue.
    pub fn queue(&self) -> &str {
        self.attempt.queue()
    }

    /// Its kind, as it was enqueued (an alias, perhaps).
    pub fn kind(&self) -> &str {
        &self.attempt.origin.kind
    }

    /// Which attempt this is: 1 is the first. Counts every time the job was claimed, also when it was given back or its worker
    /// died.
    pub fn attempt(&self) -> i32 {
        self.attempt.number()
    }

    /// How often it has failed before.
    pub fn failures(&self) -> i16 {
        self.attempt.failures()
    }

    /// How often its worker died or lost the lease.
    pub fn crashes(&self) -> i16 {
        self.attempt.crashes()
    }

    /// After how many failures it is dead.
    pub fn max_attempts(&self) -> i16 {
        self.attempt.max_attempts()
    }

    /// Whether one more failure is the last.
    pub fn is_last_attempt(&self) -> bool {
        self.attempt.failures() + 1 >= self.attempt.max_attempts()
    }

    /// Its priority.
    pub fn priority(&self) -> i16 {
        self.attempt.priority()
    }

    /// When it was due.
    pub fn run_at(&self) -> Option<Timestamp> {
        self.attempt.run_at()
    }

    /// When it was enqueued.
    pub fn created_at(&self) -> Option<Timestamp> {
        self.attempt.created_at().to_timestamp()
    }

    /// Its labels.
    pub fn tags(&self) -> &[String] {
        self.attempt.tags()
    }

    /// Its metadata.
    pub fn metadata(&self) -> serde_json::Map<String, serde_json::Value> {
        // It was checked to be an object when it was stored.
        self.attempt
            .metadata()
            .and_then(|m| serde_json::from_str(m).ok())
            .unwrap_or_default()
    }

    /// The W3C traceparent of whoever enqueued it.
    pub fn trace(&self) -> Option<&str> {
        self.attempt.trace()
    }

    /// How long one attempt may run, and how long this one still may; `None` if there is no limit.
    pub fn time_left(&self) -> Option<Duration> {
        let limit = self.attempt.timeout()?;
        Some(limit.saturating_sub(self.attempt.ran().unwrap_or_default()))
    }

    /// A client of the same queue, to enqueue more.
    pub fn client(&self) -> &Client {
        &self.attempt.origin.client
    }

    /// A key that stays the same across all attempts at this job and is different for every other: give it to services that
    /// take an idempotency key.
    pub fn key(&self) -> String {
        format!("{}-{}", self.client().schema(), self.attempt.id)
    }

    /// Fires when the handler should stop: see [`CancelReason`].
    pub fn cancel_token(&self) -> CancellationToken {
        self.attempt.cancel_token().clone()
    }

    /// Waits until the handler should stop, and says why.
    pub async fn cancelled(&self) -> CancelReason {
        self.attempt.cancel_token().cancelled().await;
        // The reason is set before the token fires.
        self.attempt
            .cancel_reason()
            .unwrap_or(CancelReason::Cancelled)
    }

    /// Why the handler should stop, if it should.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.attempt.cancel_reason()
    }

    /// Says how far the job is, for those who watch. Any JSON up to 64 KiB; say it about once a second, not in a tight loop.
    pub async fn progress(&self, progress: &impl Serialize) -> Result<()> {
        let doing = "report progress";
        let json = serde_json::to_string(progress).map_err(|e| Error::json(doing, e))?;
        validate::no_nul("progress", &json)?;
        let a = &*self.attempt;
        a.touched();
        let rows = self
            .client()
            .rows(
                doing,
                "select rowlock.progress($1, $2, $3, $4)",
                &[
                    (&&**a.queue(), Type::TEXT),
                    (&a.id, Type::INT8),
                    (&a.origin.token, Type::INT8),
                    (&RawJson(&json), Type::JSONB),
                ],
            )
            .await?;
        match rows.first().map(|r| r.get::<_, &str>(0)) {
            // Gone with the handler's own transaction: nobody is left to be told.
            Some("lost") if a.completed_in_tx.load(Relaxed) => Ok(()),
            Some("lost") => {
                a.cancel(CancelReason::LeaseLost);
                Err(Error::LeaseLost { id: a.id })
            }
            // Somebody is just renewing or cancelling it: the next report will do.
            _ => Ok(()),
        }
    }

    /// Remembers in the database what this job already did outside of it. The first attempt that gets here runs `effect` and
    /// stores what it returned; later attempts get the stored value and do not run it.
    ///
    /// There is a gap that no queue can close: if the process dies after the effect and before its result is stored, the next
    /// attempt runs it again. Give the outside service [`key`](Self::key) too, if it takes one.
    ///
    /// ```no_run
    /// # use rowlock::Ctx;
    /// # struct Bank; impl Bank { async fn charge(&self, _: &str) -> std::io::Result<String> { Ok(String::new()) } }
    /// # async fn f(ctx: Ctx, bank: Bank) -> rowlock::Result<()> {
    /// let key = ctx.key();
    /// let receipt: String = ctx.once("charge", || bank.charge(&key)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn once<T, E, F, Fut>(&self, key: &str, effect: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        E: Into<BoxError>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let doing = "look up what was done before";
        validate::name("key", key)?;
        let a = &*self.attempt;
        let stored = self
            .client()
            .rows(
                doing,
                "select value from rowlock.once_get($1, $2, $3)",
                &[
                    (&&**a.queue(), Type::TEXT),
                    (&a.id, Type::INT8),
                    (&key, Type::TEXT),
                ],
            )
            .await?;
        if let Some(row) = stored.first() {
            return read_once(key, row.get::<_, RawJson<'_>>(0).0);
        }
        let value = effect()
            .await
            .map_err(|e| Error::driver(format!("do {key:?} once"), e.into()))?;
        let json = serde_json::to_string(&value)
            .map_err(|e| Error::json(format!("remember what {key:?} returned"), e))?;
        validate::no_nul("value", &json)?;
        let rows = self
            .client()
            .rows(
                "remember what was done",
                "select value from rowlock.once_put($1, $2, $3, $4)",
                &[
                    (&&**a.queue(), Type::TEXT),
                    (&a.id, Type::INT8),
                    (&key, Type::TEXT),
                    (&RawJson(&json), Type::JSONB),
                ],
            )
            .await?;
        // Another attempt may have been first; then its value counts.
        match rows.first() {
            Some(row) => read_once(key, row.get::<_, RawJson<'_>>(0).0),
            None => Ok(value),
        }
    }

    /// Finishes the job inside the handler's own transaction: its writes and the end of the job happen together or not at all,
    /// so its effects in this database happen exactly once.
    ///
    /// Commit afterwards and return `Ok`. If the transaction does not commit, the attempt counts as failed. If the lease was lost,
    /// this returns an error: then do not commit.
    pub async fn complete_in_tx<T: Transaction>(&self, tx: &mut T) -> Result<()> {
        self.complete_in_tx_json(tx, None).await
    }

    /// As [`complete_in_tx`](Self::complete_in_tx), with a result to keep.
    pub async fn complete_in_tx_with<T: Transaction>(
        &self,
        tx: &mut T,
        result: &impl Serialize,
    ) -> Result<()> {
        let json = serde_json::to_string(result)
            .map_err(|e| Error::json("write the result as JSON", e))?;
        validate::no_nul("result", &json)?;
        self.complete_in_tx_json(tx, Some(&json)).await
    }

    async fn complete_in_tx_json<T: Transaction>(
        &self,
        tx: &mut T,
        result: Option<&str>,
    ) -> Result<()> {
        let a = &*self.attempt;
        let doing = "complete the job in the handler's transaction";
        let sql = self.client().schema().sql(
            "select cardinality(done)::text, cardinality(busy)::text from rowlock.complete($1::text, array[$2::text::bigint], \
             array[$3::text::bigint], array[$4::text], array[$5::text::jsonb])",
        );
        let (id, token, tid) = (
            a.id.to_string(),
            a.origin.token.to_string(),
            a.place().to_string(),
        );
        let params = [
            Some(&**a.queue()),
            Some(&id),
            Some(&token),
            Some(&tid),
            result,
        ];
        for wait in BUSY_WAITS {
            let rows = tx
                .query_text(&sql, &params)
                .await
                .map_err(|e| Error::driver(doing, e))?;
            let one = |n: usize| rows.first().and_then(|r| r[n].as_deref()) == Some("1");
            if one(0) {
                a.completed_in_tx.store(true, Relaxed);
                return Ok(());
            }
            if !one(1) {
                a.cancel(CancelReason::LeaseLost);
                return Err(Error::LeaseLost { id: a.id });
            }
            // Most likely our own renewal of the lease is just under way.
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        Err(Error::Busy { id: a.id })
    }

    pub(super) fn attempt_ref(&self) -> &Arc<Attempt> {
        &self.attempt
    }
}

fn read_once<T: DeserializeOwned>(key: &str, json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|e| {
        Error::json(
            format!("read what {key:?} returned before"),
            unreadable::error(&e),
        )
    })
}

impl std::fmt::Debug for Ctx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ctx")
            .field("id", &self.attempt.id)
            .field("queue", self.attempt.queue())
            .field("kind", &self.attempt.origin.kind)
            .field("attempt", &self.attempt.number())
            .finish_non_exhaustive()
    }
}
