//! What is remembered about rows, outside of their table: failures, crashes, and which batches are being worked.
//!
//! Promises: what it remembers never takes part in who gets a row (the row lock alone decides that); losing it costs at most
//! another try. Must not: be written in the batch's own transaction where it has to outlive a crash of that.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio_postgres::types::Type;

use super::policy::{Known, OnFailed};
use crate::client::Client;
use crate::db::Connection;
use crate::error::{Error, Result};

/// A crash is nothing that a batch waits for: it is settled when nobody is in the way. Shorter than the deadlock timeout, so that of two
/// that wait for each other it is never the batch that gives way.
const LOCK_TIMEOUT: &str = "set local lock_timeout = '200ms'";

const DAY_MS: u64 = 86_400_000;
/// Ten years: longer than any backoff, and far from the end of time.
const DELAY_MS_MAX: u64 = 3650 * DAY_MS;

/// As delays: never, and a note that delays nothing.
pub(super) const PARKED_MS: i64 = -1;
pub(super) const NOTE_MS: i64 = -2;

// Sent after the rows are locked, so it sees all that was committed by whoever held them before: the claim itself may have looked
// before that. If Postgres crashes, an entry may be lost, and with it the count of one crash; it need not wait for the disk.
const ENTER: &str = "
with quiet as materialized (select set_config('synchronous_commit', 'off', true)),
entered as (
  insert into rowlock.table_batch (source, batch_id, started_at, keys) select $1, $2, rowlock.clock(), $3 from quiet
)
select f.row_key, case when f.retry_at = '-infinity' then 0 else f.failures end, f.crashes, f.retry_at > rowlock.clock()
  from rowlock.table_failure f
 where f.source = $1 and f.row_key = any ($3)";

// A batch holds its lock as long as its transaction lives: whose lock is free is dead.
const LOOK: &str = "
select exists (select from rowlock.table_batch where source = $1 and pg_try_advisory_xact_lock(batch_id)),
       exists (select from rowlock.table_failure where source = $1 and crashes > 0 and retry_at <= rowlock.clock())";

const TAKE_DEAD: &str = "
delete from rowlock.table_batch where source = $1 and pg_try_advisory_xact_lock(batch_id) returning keys";

const LEAVE: &str =
    "delete from rowlock.table_batch where source = $1 and batch_id = $2 returning true";

const CRASHES: &str =
    "select row_key, crashes from rowlock.table_failure where source = $1 and row_key = any ($2)";

const BLAME: &str = "
insert into rowlock.table_failure as f (source, row_key, failures, crashes, retry_at, failed_at, error)
select $1, x.row_key, 0, x.crashes, rowlock.clock() + x.delay_ms * interval '1 millisecond', rowlock.clock(), $5
  from unnest($2, $3, $4) as x(row_key, crashes, delay_ms)
on conflict (source, row_key) do update
  set crashes = f.crashes + excluded.crashes, failed_at = excluded.failed_at, error = excluded.error,
      retry_at = case when f.retry_at = 'infinity' then f.retry_at else excluded.retry_at end";

/// The end of a batch, in its own transaction: forgets what went well and remembers what did not.
pub(super) const REMEMBER: &str = "
with left_batch as (delete from rowlock.table_batch where source = $1 and batch_id = $2),
forgotten as (delete from rowlock.table_failure where source = $1 and row_key = any ($3))
insert into rowlock.table_failure as f (source, row_key, failures, crashes, retry_at, failed_at, error)
select $1, x.row_key, x.failures, x.crashes,
       case x.delay_ms when -1 then 'infinity'::timestamptz when -2 then '-infinity'::timestamptz
                       else rowlock.clock() + x.delay_ms * interval '1 millisecond' end,
       rowlock.clock(), x.error
  from unnest($4, $5, $6, $7, $8) as x(row_key, failures, crashes, delay_ms, error)
on conflict (source, row_key) do update
  set failures = excluded.failures, crashes = excluded.crashes, retry_at = excluded.retry_at, failed_at = excluded.failed_at,
      error = excluded.error";

const LIST: &str = "
select row_key, failures, crashes, error, retry_at = 'infinity',
       case when isfinite(retry_at) then retry_at end, failed_at
  from rowlock.table_failure where source = $1 order by failed_at desc, row_key limit $2";

const FORGET: &str = "
with forgotten as (delete from rowlock.table_failure where source = $1 and ($2 is null or row_key = any ($2)) returning 1)
select count(*) from forgotten";

/// A row that failed, as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowFailure {
    /// The key of the row, as in [`TableRow::key`](super::TableRow::key).
    pub key: String,
    /// How often its handler failed.
    pub failures: u32,
    /// In how many crashes it was in hand.
    pub crashes: u32,
    /// What went wrong the last time.
    pub error: String,
    /// Whether it is left alone until somebody [retries](super::TableQueue::retry) it.
    pub parked: bool,
    /// When it will be tried again; `None` if it is parked, or was set to something that is not pending.
    pub retry_at: Option<jiff::Timestamp>,
    /// When it failed last.
    pub failed_at: jiff::Timestamp,
}

/// What a look at the memory found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    /// A batch died.
    pub(super) crashed: bool,
    /// Rows are due that have to be worked alone.
    pub(super) alone: bool,
}

/// A batch that ended without its transaction, and the rows that may have been the reason.
#[derive(Debug, Clone)]
pub(super) struct Withdrawal {
    pub(super) batch_id: i64,
    pub(super) blamed: Vec<String>,
    pub(super) error: String,
}

/// The memory of one queue.
pub(super) struct Memory {
    pub(super) client: Client,
    /// The name of the queue.
    pub(super) source: String,
    pub(super) on_failed: OnFailed,
}

impl Memory {
    /// Notes that these rows are being worked, and tells what is remembered of them.
    pub(super) async fn enter(
        &self,
        batch_id: i64,
        keys: &[&str],
    ) -> Result<HashMap<String, Known>> {
        let params = [
            (&self.source as _, Type::TEXT),
            (&batch_id as _, Type::INT8),
            (&keys as _, Type::TEXT_ARRAY),
        ];
        let rows = self.client.rows("begin a batch", ENTER, &params).await?;
        let known = |row: &tokio_postgres::Row| {
            let count = |n: usize| u32::try_from(row.get::<_, i32>(n)).unwrap_or(0);
            let known = Known {
                failures: count(1),
                crashes: count(2),
                waiting: row.get(3),
                noted: true,
            };
            (row.get(0), known)
        };
        Ok(rows.iter().map(known).collect())
    }

    pub(super) async fn look(&self) -> Result<Look> {
        let params = [(&self.source as _, Type::TEXT)];
        let rows = self
            .client
            .rows("look for crashed batches", LOOK, &params)
            .await?;
        // `select exists` always answers.
        Ok(Look {
            crashed: rows[0].get(0),
            alone: rows[0].get(1),
        })
    }

    /// Counts a crash for each row that was in hand when a batch died. Returns how many batches did.
    pub(super) async fn settle_crashes(&self) -> Result<usize> {
        const DOING: &str = "count crashed batches";
        let error = "the process or its connection ended while this row was being worked";
        let connection = self.client.connection().await?;
        connection.begin().await.map_err(|e| self.error(DOING, e))?;
        let settled = async {
            self.simple(&connection, DOING, LOCK_TIMEOUT).await?;
            let sql = self.client.schema().sql(TAKE_DEAD);
            let dead = connection
                .rows(&sql, &[(&self.source, Type::TEXT)])
                .await
                .map_err(|e| self.error(DOING, e))?;
            let batches: Vec<Vec<String>> = dead.iter().map(|row| row.get(0)).collect();
            self.blame(&connection, &batches, error).await?;
            Ok(batches.len())
        };
        let settled = settled.await;
        connection.end(self.client.schema(), DOING, settled).await
    }

    /// Takes back the note of a batch that ended without its transaction. If the note is gone, either the transaction was committed
    /// after all, or somebody else has settled it.
    pub(super) async fn withdraw(&self, withdrawal: &Withdrawal) -> Result<()> {
        const DOING: &str = "withdraw a batch";
        let Withdrawal {
            batch_id,
            blamed,
            error,
        } = withdrawal;
        let connection = self.client.connection().await?;
        connection.begin().await.map_err(|e| self.error(DOING, e))?;
        let withdrawn = async {
            self.simple(&connection, DOING, LOCK_TIMEOUT).await?;
            let sql = self.client.schema().sql(LEAVE);
            let left = connection
                .rows(&sql, &[(&self.source, Type::TEXT), (batch_id, Type::INT8)])
                .await
                .map_err(|e| self.error(DOING, e))?;
            if !left.is_empty() && !blamed.is_empty() {
                self.blame(&connection, std::slice::from_ref(blamed), error)
                    .await?;
            }
            Ok(())
        };
        let withdrawn = withdrawn.await;
        connection.end(self.client.schema(), DOING, withdrawn).await
    }

    /// Counts a crash for each row of these batches. One that was alone waits before it is tried again; of several, most are
    /// innocent, and all may be tried at once.
    async fn blame(
        &self,
        connection: &Connection,
        batches: &[Vec<String>],
        error: &str,
    ) -> Result<()> {
        const DOING: &str = "count a crash";
        if batches.is_empty() {
            return Ok(());
        }
        let schema = self.client.schema();
        // In the order of the keys, so that two who do this at once do not wait for each other.
        let mut counts: BTreeMap<&str, (i32, bool)> = BTreeMap::new();
        for keys in batches {
            for key in keys {
                let (times, alone) = counts.entry(key).or_default();
                *times += 1;
                *alone |= keys.len() == 1;
            }
        }
        let keys: Vec<&str> = counts.keys().copied().collect();
        let rows = connection
            .rows(
                &schema.sql(CRASHES),
                &[(&self.source, Type::TEXT), (&keys, Type::TEXT_ARRAY)],
            )
            .await
            .map_err(|e| self.error(DOING, e))?;
        let before: HashMap<&str, i32> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let times: Vec<i32> = counts.values().map(|(times, _)| *times).collect();
        let delays: Vec<i64> = counts
            .iter()
            .map(|(key, (times, alone))| {
                let crashes = times + before.get(key).copied().unwrap_or(0);
                match alone {
                    true => delay_ms(self.on_failed.delay(crashes.unsigned_abs(), rand::random())),
                    false => 0,
                }
            })
            .collect();
        let params = [
            (&self.source as _, Type::TEXT),
            (&keys as _, Type::TEXT_ARRAY),
            (&times as _, Type::INT4_ARRAY),
            (&delays as _, Type::INT8_ARRAY),
            (&error as _, Type::TEXT),
        ];
        connection
            .rows(&schema.sql(BLAME), &params)
            .await
            .map_err(|e| self.error(DOING, e))?;
        Ok(())
    }

    /// The rows that failed, the latest first.
    pub(super) async fn list(&self, at_most: u32) -> Result<Vec<RowFailure>> {
        let at_most = i64::from(at_most);
        let params = [(&self.source as _, Type::TEXT), (&at_most as _, Type::INT8)];
        let rows = self.client.rows("list failures", LIST, &params).await?;
        let failure = |row: &tokio_postgres::Row| RowFailure {
            key: row.get(0),
            failures: u32::try_from(row.get::<_, i32>(1)).unwrap_or(0),
            crashes: u32::try_from(row.get::<_, i32>(2)).unwrap_or(0),
            error: row.get(3),
            parked: row.get(4),
            retry_at: row.get(5),
            failed_at: row.get(6),
        };
        Ok(rows.iter().map(failure).collect())
    }

    /// Forgets the failures of these rows, or of all.
    pub(super) async fn forget(&self, keys: Option<&[&str]>) -> Result<u64> {
        let params = [
            (&self.source as _, Type::TEXT),
            (&keys as _, Type::TEXT_ARRAY),
        ];
        let rows = self.client.rows("forget failures", FORGET, &params).await?;
        Ok(u64::try_from(rows[0].get::<_, i64>(0)).unwrap_or(0))
    }

    async fn simple(&self, connection: &Connection, doing: &str, sql: &str) -> Result<()> {
        connection
            .client
            .batch_execute(sql)
            .await
            .map_err(|e| self.error(doing, e))
    }

    fn error(&self, doing: &str, e: tokio_postgres::Error) -> Error {
        Error::database(doing, self.client.schema().as_str(), e)
    }
}

/// A delay as the database gets it.
pub(super) fn delay_ms(delay: Duration) -> i64 {
    let ms = u64::try_from(delay.as_millis())
        .unwrap_or(u64::MAX)
        .min(DELAY_MS_MAX);
    i64::try_from(ms).unwrap_or(i64::MAX)
}
