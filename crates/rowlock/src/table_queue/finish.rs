//! The end of a batch: marks what is done, sets what is parked, remembers what failed, commits.

use std::collections::HashMap;

use tokio_postgres::types::Type;

use super::Outcome;
use super::batch::{Batch, Failed, Judged};
use super::memory::{NOTE_MS, PARKED_MS, REMEMBER, delay_ms};
use super::policy::Verdict;
use crate::db::Param;
use crate::error::Error;

impl Batch<'_> {
    /// Marks all rows that are done in one statement. If Postgres refuses one of them, what its handler did has to be undone, too,
    /// and that is not possible any more without undoing the rest: so the batch is given up, and the next one marks each row in the
    /// row's own savepoint.
    pub(super) async fn mark_jointly(&self, judged: &[Judged]) -> Result<(), Failed> {
        let done = keys_of(judged, |v| *v == Verdict::Done);
        if self.careful || done.is_empty() {
            return Ok(());
        }
        match self.mark_in_savepoint(&done, &done).await? {
            Ok(()) => Ok(()),
            Err(e) => Err(Failed {
                blamed: Vec::new(),
                fatal: false,
                careful: true,
                ..self.failed("mark rows", e, &[])
            }),
        }
    }

    /// Marks all rows that are done in one statement; if Postgres refuses one of them, each by itself, so that the effects of the others
    /// are not repeated.
    pub(super) async fn mark_done(&self, judged: &mut [Judged]) -> Result<(), Failed> {
        let done: Vec<String> = keys_of(judged, |v| *v == Verdict::Done);
        if done.is_empty() {
            return Ok(());
        }
        if self.mark_in_savepoint(&done, &done).await?.is_ok() {
            return Ok(());
        }
        for row in judged.iter_mut().filter(|r| r.verdict == Verdict::Done) {
            let one = std::slice::from_ref(&row.key);
            if let Err(error) = self.mark_in_savepoint(one, &done).await? {
                row.verdict = self.judge(not_marked(&error), row.known);
            }
        }
        Ok(())
    }

    /// Marks these rows, or leaves all as it was and returns what Postgres said.
    async fn mark_in_savepoint(
        &self,
        keys: &[String],
        blamed: &[String],
    ) -> Result<Result<(), tokio_postgres::Error>, Failed> {
        let sql = &self.inspected.statements.mark;
        match self.in_savepoint(sql, keys, blamed).await? {
            Ok(rows) => {
                self.refuse_still_pending(&rows)
                    .map_err(Failed::by_itself)?;
                Ok(Ok(()))
            }
            Err(e) => Ok(Err(e)),
        }
    }

    /// Runs a statement over keys so that, if Postgres refuses it, the transaction goes on without it.
    async fn in_savepoint(
        &self,
        sql: &str,
        keys: &[String],
        blamed: &[String],
    ) -> Result<Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>, Failed> {
        let params: [Param<'_>; 1] = [(&keys, Type::TEXT_ARRAY)];
        let (saved, rows) = tokio::join!(
            self.live.client.batch_execute("savepoint rowlock_mark"),
            self.live.client.query_typed(sql, &params),
        );
        saved.map_err(|e| self.failed("mark rows", e, blamed))?;
        match rows {
            Ok(rows) => {
                self.simple("release savepoint rowlock_mark", blamed)
                    .await?;
                Ok(Ok(rows))
            }
            Err(e) if e.as_db_error().is_some() => {
                self.simple(
                    "rollback to savepoint rowlock_mark; release savepoint rowlock_mark",
                    blamed,
                )
                .await?;
                Ok(Err(e))
            }
            Err(e) => Err(self.failed("mark rows", e, blamed)),
        }
    }

    /// A row that is pending although it is done would be worked again and again.
    pub(super) fn refuse_still_pending(&self, marked: &[tokio_postgres::Row]) -> Result<(), Error> {
        let pending = |row: &&tokio_postgres::Row| row.len() > 1 && row.get::<_, bool>(1);
        let Some(row) = marked.iter().find(pending) else {
            return Ok(());
        };
        Err(Error::Setup(format!(
            "{}: what on_done sets leaves the row with key {} pending, so it would be worked again and again: set something that the pending condition rules out",
            self.table(),
            row.get::<_, &str>(0)
        )))
    }

    /// Sets on parked rows what the policy says. Returns which of them are not pending any more: those need not be skipped, and
    /// if somebody makes them pending again, that somebody wants them to be worked.
    pub(super) async fn set_parked(
        &self,
        judged: &[Judged],
    ) -> Result<HashMap<String, i64>, Failed> {
        let mut delays = HashMap::new();
        let parked = keys_of(judged, |v| matches!(v, Verdict::Park { .. }));
        let Some(sql) = &self.inspected.statements.park else {
            return Ok(delays);
        };
        for key in parked {
            match self
                .in_savepoint(sql, std::slice::from_ref(&key), &[])
                .await?
            {
                Ok(rows) => {
                    if rows.first().is_some_and(|row| !row.get::<_, bool>(1)) {
                        delays.insert(key, NOTE_MS);
                    }
                }
                Err(e) => {
                    let error = crate::db::describe(&e);
                    tracing::error!(table = self.shared.memory.source, key, %error, "what on_failed sets was refused; the row is parked without it");
                }
            }
        }
        Ok(delays)
    }

    /// Remembers what has to be remembered, and commits.
    pub(super) async fn commit(
        &self,
        judged: &[Judged],
        parked_ms: &HashMap<String, i64>,
    ) -> Result<(), Failed> {
        let mut forgotten: Vec<&str> = Vec::new();
        let mut noted: Vec<Noted<'_>> = Vec::new();
        for row in judged {
            match &row.verdict {
                Verdict::Done if row.known.noted => forgotten.push(&row.key),
                Verdict::Done => {}
                Verdict::Later {
                    failures,
                    delay,
                    error,
                    ..
                } => noted.push((&row.key, *failures, 0, delay_ms(*delay), error)),
                Verdict::Park {
                    failures,
                    crashes,
                    error,
                } => {
                    let delay_ms = parked_ms.get(&row.key).copied().unwrap_or(PARKED_MS);
                    noted.push((&row.key, *failures, *crashes, delay_ms, error));
                }
            }
        }
        // In the order of the keys, as everybody does.
        noted.sort_unstable();
        let int = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let keys: Vec<&str> = noted.iter().map(|n| n.0).collect();
        let failures: Vec<i32> = noted.iter().map(|n| int(n.1)).collect();
        let crashes: Vec<i32> = noted.iter().map(|n| int(n.2)).collect();
        let delays: Vec<i64> = noted.iter().map(|n| n.3).collect();
        let errors: Vec<&str> = noted.iter().map(|n| n.4).collect();
        let memory = &self.shared.memory;
        let params: [Param<'_>; 8] = [
            (&memory.source, Type::TEXT),
            (&self.id, Type::INT8),
            (&forgotten, Type::TEXT_ARRAY),
            (&keys, Type::TEXT_ARRAY),
            (&failures, Type::INT4_ARRAY),
            (&crashes, Type::INT4_ARRAY),
            (&delays, Type::INT8_ARRAY),
            (&errors, Type::TEXT_ARRAY),
        ];
        let schema = memory.client.schema();
        let sql = schema.sql(REMEMBER);
        let (remembered, committed) = tokio::join!(
            self.live.client.query_typed(&sql, &params),
            self.live.client.batch_execute("commit"),
        );
        if let Err(e) = remembered {
            let error = Error::database("remember what became of a batch", schema.as_str(), e);
            return Err(Failed::by_itself(error));
        }
        // Whose fault it is cannot be told here: a constraint may wait for the commit to be checked. So each is tried alone.
        committed.map_err(|e| {
            let done = keys_of(judged, |v| *v == Verdict::Done);
            Failed {
                fatal: false,
                ..self.failed("commit a batch", e, &done)
            }
        })
    }
}

/// Key, failures, crashes, delay in ms, error.
type Noted<'a> = (&'a str, u32, u32, i64, &'a str);

fn keys_of(judged: &[Judged], which: impl Fn(&Verdict) -> bool) -> Vec<String> {
    let chosen = judged.iter().filter(|row| which(&row.verdict));
    chosen.map(|row| row.key.clone()).collect()
}

pub(super) fn not_marked(error: &tokio_postgres::Error) -> Outcome {
    Outcome::Retry {
        error: format!(
            "worked, but could not be marked as done: {}",
            crate::db::describe(error)
        ),
        after: None,
    }
}
