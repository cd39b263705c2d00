//! One batch: claimed, noted, worked; then `finish` marks and commits it.
//!
//! Promises: rows are held by nothing but the locks of one transaction, so they are free the moment it ends, whatever ends it; a row
//! that fails never undoes another; a row is marked only if its handler said that it is done. Must not: decide when to claim (`run`
//! does), or keep anything between batches.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

use super::finish::not_marked;
use super::handler::{Claimed, Handler, guarded};
use super::inspect::{Inspected, PIN, UNPIN};
use super::memory::Withdrawal;
use super::policy::{Known, Verdict};
use super::row_tx::RowTx;
use super::stats::Counters;
use super::{Outcome, Shared, validate};
use crate::db::{Live, Param};
use crate::error::Error;

/// How long a statement that a handler left behind may take to end.
const LET_GO_WITHIN: Duration = Duration::from_secs(10);

/// Longest key as text: what an index entry of the memory can hold, with room for the name.
const KEY_BYTES_MAX: usize = 2000;

/// Which rows to claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pick {
    /// The next ones, without those that failed lately or were in a crash.
    Next,
    /// One that was in a crash.
    Alone,
}

/// Whether there was anything to work on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Rows,
}

/// How a run is asked to end.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    /// Begin no more rows.
    pub(super) soft: CancellationToken,
    /// Drop the handlers that still run.
    pub(super) hard: CancellationToken,
}

/// Why a batch came to nothing.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) error: Error,
    /// Whether the next batch would fare no better.
    pub(super) fatal: bool,
    /// What the memory has yet to be told.
    pub(super) unsettled: Option<Withdrawal>,
    /// Whether the next batch should mark each row by itself.
    pub(super) careful: bool,
}

/// A row and what becomes of it.
pub(super) struct Judged {
    pub(super) key: String,
    pub(super) verdict: Verdict,
    pub(super) known: Known,
}

/// What went wrong while a batch was being worked, and which rows may be the reason.
pub(super) struct Failed {
    pub(super) error: Error,
    pub(super) blamed: Vec<String>,
    pub(super) fatal: bool,
    /// A row could not be marked, and only a batch that marks each by itself will tell which.
    pub(super) careful: bool,
}

impl Failed {
    /// Nobody's fault among the rows.
    pub(super) fn by_itself(error: Error) -> Self {
        Self {
            fatal: !error.is_retryable(),
            error,
            blamed: Vec::new(),
            careful: false,
        }
    }
}

pub(super) struct Batch<'a> {
    pub(super) shared: &'a Shared,
    pub(super) inspected: Arc<Inspected>,
    pub(super) live: &'a Live,
    pub(super) stop: &'a Stop,
    pub(super) counters: &'a Counters,
    /// Random; the name of the lock that shows that it lives.
    pub(super) id: i64,
    /// Mark each row in its own savepoint: a joint mark was refused.
    pub(super) careful: bool,
}

impl Batch<'_> {
    /// The life of a batch.
    pub(super) async fn work(&self, pick: Pick) -> Result<Found, Trouble> {
        let claimed = match self.claim(pick).await {
            Ok(claimed) => claimed,
            Err(error) => {
                self.roll_back().await;
                let fatal = !error.is_retryable();
                return Err(Trouble {
                    error,
                    fatal,
                    unsettled: None,
                    careful: false,
                });
            }
        };
        if claimed.is_empty() {
            self.roll_back().await;
            return Ok(Found::Nothing);
        }
        let keys: Vec<&str> = claimed.iter().map(|row| &*row.key).collect();
        let worked = match self.shared.memory.enter(self.id, &keys).await {
            Ok(known) => self.work_rows(pick, claimed, known).await,
            Err(error) => Err(Failed::by_itself(error)),
        };
        match worked {
            Ok(()) => Ok(Found::Rows),
            Err(failed) => Err(self.give_up(failed).await),
        }
    }

    async fn work_rows(
        &self,
        pick: Pick,
        claimed: Vec<Claimed>,
        known: HashMap<String, Known>,
    ) -> Result<(), Failed> {
        let (rows, mut judged) = self.sort_out(pick, claimed, &known);
        match &self.shared.settings.handler {
            Handler::InTx(_) => {
                self.work_in_tx(rows, &known, &mut judged).await?;
                self.mark_jointly(&judged).await?;
            }
            Handler::Outside(_) => {
                self.work_outside(rows, &known, &mut judged).await?;
                self.mark_done(&mut judged).await?;
            }
        }
        let notes = self.set_parked(&judged).await?;
        self.commit(&judged, &notes).await?;
        self.counters.batch();
        for row in &judged {
            self.counters.row(row.known, &row.key, &row.verdict);
        }
        Ok(())
    }

    /// Begins the transaction, takes the lock that shows that this batch lives, and locks rows.
    async fn claim(&self, pick: Pick) -> Result<Vec<Claimed>, Error> {
        let statements = &self.inspected.statements;
        let sql = match pick {
            Pick::Next => &statements.claim,
            Pick::Alone => &statements.claim_alone,
        };
        let pinned = self.inspected.pinned && pick == Pick::Next;
        let begin = begin(self.id, self.live.server_version_num, pinned);
        let name = &self.shared.memory.source;
        let params: [Param<'_>; 1] = [(name, Type::TEXT)];
        // All are sent at once, in this order.
        let (begun, rows, unpinned) = tokio::join!(
            self.live.client.batch_execute(&begin),
            self.live.client.query_typed(sql, &params),
            self.live
                .client
                .batch_execute(if pinned { UNPIN } else { "" }),
        );
        begun.map_err(|e| self.database("begin a batch", e))?;
        let rows = rows.map_err(|e| self.database("claim rows", e))?;
        unpinned.map_err(|e| self.database("begin a batch", e))?;
        let claimed: Vec<Claimed> = rows
            .iter()
            .map(|row| Claimed {
                key: row.get(0),
                failures: 0,
                json: row.get(1),
            })
            .collect();
        if let Some(row) = claimed.iter().find(|row| row.key.len() > KEY_BYTES_MAX) {
            return Err(Error::Setup(format!(
                "{}: a row's key has {} bytes as text, and failures are remembered of keys up to {KEY_BYTES_MAX}: name a shorter unique key with key([...])",
                self.table(),
                row.key.len()
            )));
        }
        Ok(claimed)
    }

    /// Which rows to work, and what is clear about the others beforehand.
    fn sort_out(
        &self,
        pick: Pick,
        claimed: Vec<Claimed>,
        known: &HashMap<String, Known>,
    ) -> (Vec<Claimed>, Vec<Judged>) {
        let settings = &self.shared.settings;
        let mut rows = Vec::with_capacity(claimed.len());
        let mut judged = Vec::new();
        for mut row in claimed {
            let known = known.get(&row.key).copied().unwrap_or_default();
            // Somebody noted this after the claim had looked, and before the row was free.
            if known.waiting || (pick == Pick::Next && known.crashes > 0) {
                continue;
            }
            row.failures = known.failures;
            let fits = row
                .json
                .as_ref()
                .is_some_and(|json| json.len() <= settings.row_bytes_max);
            let verdict = match settings.on_failed.judge_crashes(known) {
                Some(poison) => Some(poison),
                None if fits => None,
                None => {
                    let error = format!(
                        "the row has more than {} bytes as JSON: leave out columns with columns([...]), or raise row_bytes_max",
                        settings.row_bytes_max
                    );
                    Some(self.judge(Outcome::Dead(error), known))
                }
            };
            match verdict {
                Some(verdict) => judged.push(Judged {
                    key: row.key,
                    verdict,
                    known,
                }),
                None => rows.push(row),
            }
        }
        (rows, judged)
    }

    /// Works the rows one after the other, each in a savepoint that holds what its handler did.
    async fn work_in_tx(
        &self,
        rows: Vec<Claimed>,
        known: &HashMap<String, Known>,
        judged: &mut Vec<Judged>,
    ) -> Result<(), Failed> {
        let Handler::InTx(handler) = &self.shared.settings.handler else {
            return Ok(());
        };
        self.simple("savepoint rowlock_row", &[]).await?;
        for row in rows {
            if self.stop.soft.is_cancelled() {
                break;
            }
            let key = row.key.clone();
            let known = known.get(&key).copied().unwrap_or_default();
            let (tx, turn) = RowTx::new(self.live.clone());
            let handled = guarded(|| handler(row, tx), self.shared.settings.timeout);
            let outcome = tokio::select! {
                outcome = handled => Some(outcome),
                () = self.stop.hard.cancelled() => None,
                reason = self.live.closed() => return Err(self.lost(&reason, vec![key])),
            };
            let Ok(used) = tokio::time::timeout(LET_GO_WITHIN, turn.end()).await else {
                return Err(self.stuck(key));
            };
            let Some(outcome) = outcome else {
                return self.undo_row(&key).await;
            };
            let mut verdict = self.judge(outcome, known);
            if verdict != Verdict::Done {
                self.undo_row(&key).await?;
            } else if let Err(failure) = self.end_row(&key, used).await? {
                self.undo_row(&key).await?;
                verdict = self.judge(failure, known);
            }
            judged.push(Judged {
                key,
                verdict,
                known,
            });
        }
        Ok(())
    }

    /// Keeps what a handler did for its row, and opens the savepoint of the next. The inner error is the row's failure.
    async fn end_row(&self, key: &str, used: bool) -> Result<Result<(), Outcome>, Failed> {
        const NEXT: &str = "release savepoint rowlock_row; savepoint rowlock_row";
        let failed = |e| self.failed("end a row", e, &[key.to_owned()]);
        let client = &self.live.client;
        if !self.careful {
            if !used {
                return Ok(Ok(()));
            }
            return match client.batch_execute(NEXT).await {
                Err(e) if e.as_db_error().is_some() => Ok(Err(went_on(&e))),
                ended => ended.map(Ok).map_err(failed),
            };
        }
        let keys = [key];
        let params: [Param<'_>; 1] = [(&keys.as_slice(), Type::TEXT_ARRAY)];
        let (marked, next) = tokio::join!(
            client.query_typed(&self.inspected.statements.mark, &params),
            client.batch_execute(NEXT),
        );
        match marked {
            Ok(rows) => {
                next.map_err(failed)?;
                self.refuse_still_pending(&rows)
                    .map_err(Failed::by_itself)?;
                Ok(Ok(()))
            }
            Err(e) if e.as_db_error().is_some() => Ok(Err(not_marked(&e))),
            Err(e) => Err(failed(e)),
        }
    }

    /// Undoes what a handler did for its row, and keeps the savepoint for the next one.
    async fn undo_row(&self, key: &str) -> Result<(), Failed> {
        let blamed = [key.to_owned()];
        let undo = self.simple("rollback to savepoint rowlock_row", &blamed);
        match tokio::time::timeout(LET_GO_WITHIN, undo).await {
            Ok(undone) => undone,
            Err(_) => Err(self.stuck(key.to_owned())),
        }
    }

    /// Works several rows at once, while the transaction does nothing but hold them.
    async fn work_outside(
        &self,
        rows: Vec<Claimed>,
        known: &HashMap<String, Known>,
        judged: &mut Vec<Judged>,
    ) -> Result<(), Failed> {
        let settings = &self.shared.settings;
        let Handler::Outside(handler) = &settings.handler else {
            return Ok(());
        };
        let starting = stream::iter(rows)
            .take_while(|_| std::future::ready(!self.stop.soft.is_cancelled()))
            .map(|row| async move {
                let key = row.key.clone();
                let outcome = guarded(|| handler(row), settings.timeout).await;
                (key, outcome)
            });
        let mut running = std::pin::pin!(starting.buffer_unordered(settings.at_once));
        loop {
            let next = tokio::select! {
                next = running.next() => next,
                () = self.stop.hard.cancelled() => None,
                // The rows are free already, so whatever the handlers still do is done in vain. They are not the reason: nothing
                // of theirs was on this connection.
                reason = self.live.closed() => return Err(self.lost(&reason, Vec::new())),
            };
            let Some((key, outcome)) = next else {
                return Ok(());
            };
            let known = known.get(&key).copied().unwrap_or_default();
            let verdict = self.judge(outcome, known);
            judged.push(Judged {
                key,
                verdict,
                known,
            });
        }
    }

    /// Ends a batch that cannot be finished: first the note, then the locks, so that nobody takes the note for a crash.
    async fn give_up(&self, failed: Failed) -> Trouble {
        let withdrawal = Withdrawal {
            batch_id: self.id,
            blamed: failed.blamed,
            error: validate::storable(&failed.error.to_string()),
        };
        let settled = self.shared.memory.withdraw(&withdrawal).await.is_ok();
        self.roll_back().await;
        Trouble {
            error: failed.error,
            fatal: failed.fatal,
            careful: failed.careful,
            unsettled: (!settled).then_some(withdrawal),
        }
    }

    async fn roll_back(&self) {
        let rolled_back = self.live.client.batch_execute("rollback");
        let in_time = tokio::time::timeout(LET_GO_WITHIN, rolled_back).await;
        if !matches!(in_time, Ok(Ok(()))) {
            // Closing the connection does the same.
            self.live.abort();
        }
    }

    pub(super) fn judge(&self, outcome: Outcome, known: Known) -> Verdict {
        let policy = &self.shared.settings.on_failed;
        policy.judge(outcome, known, rand::random())
    }

    pub(super) async fn simple(&self, sql: &str, blamed: &[String]) -> Result<(), Failed> {
        let done = self.live.client.batch_execute(sql).await;
        done.map_err(|e| self.failed("work a batch", e, blamed))
    }

    pub(super) fn failed(
        &self,
        doing: &str,
        e: tokio_postgres::Error,
        blamed: &[String],
    ) -> Failed {
        Failed {
            blamed: blamed.to_vec(),
            ..Failed::by_itself(self.database(doing, e))
        }
    }

    fn lost(&self, reason: &str, blamed: Vec<String>) -> Failed {
        let reason = format!("the connection was lost: {reason}");
        Failed {
            error: Error::driver(format!("work a batch of {}", self.table()), reason.into()),
            blamed,
            fatal: false,
            careful: false,
        }
    }

    /// A statement of the handler goes on although the handler has ended: the connection is given up.
    fn stuck(&self, key: String) -> Failed {
        self.live.abort();
        self.lost("a statement of the handler did not end", vec![key])
    }

    fn database(&self, doing: &str, e: tokio_postgres::Error) -> Error {
        Error::Database {
            doing: format!("{doing} of {}", self.table()),
            source: Arc::new(e),
        }
    }

    pub(super) fn table(&self) -> String {
        self.inspected.source.display()
    }
}

fn went_on(error: &tokio_postgres::Error) -> Outcome {
    Outcome::Retry {
        error: format!(
            "a statement of the handler failed, and the handler went on: {}",
            crate::db::describe(error)
        ),
        after: None,
    }
}

/// The start of a batch's transaction. Its rows are held by their locks while handlers work, so the limits on idle and long
/// transactions do not apply to it; and a server that is busy with a statement of a handler must notice when the client is gone.
fn begin(id: i64, server_version_num: u32, pinned: bool) -> String {
    let no_limit = match server_version_num {
        170_000.. => "set local transaction_timeout = 0; ",
        _ => "",
    };
    format!(
        "begin isolation level read committed; set local idle_in_transaction_session_timeout = 0; {no_limit}\
         select set_config('client_connection_check_interval', '1000', true) where version() like '%linux%'; \
         select pg_advisory_xact_lock({id}); {}",
        if pinned { PIN } else { "" },
    )
}
