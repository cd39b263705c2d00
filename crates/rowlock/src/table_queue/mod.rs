//! Any table as a queue: its pending rows are claimed in batches with `FOR UPDATE SKIP LOCKED`, worked, and marked or deleted in one
//! transaction. The row lock is the lease.
//!
//! `builder` gathers the settings, `inspect` holds them against the catalog, `statements` writes the SQL; then, batch after batch,
//! `run` → `batch` (`handler`, `row_tx`, `policy`) → `finish` → `memory`.
//!
//! Promises: see [`TableQueue`].
//! Must not: install anything in the table; decide who holds a row by anything but the row lock (all that is remembered only says which
//! rows to pass over); show the data of a row in a log or an error of its own.

mod batch;
mod builder;
mod finish;
mod handler;
mod inspect;
mod memory;
mod name;
mod policy;
mod row_tx;
mod run;
mod statements;
mod stats;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::validate;
use crate::worker::{IntoOutcome, Outcome};

pub use builder::TableQueueBuilder;
pub use handler::TableRow;
pub use memory::RowFailure;
pub use policy::{OnDone, OnFailed};
pub use row_tx::RowTx;
pub use stats::TableStats;

use builder::Settings;
use inspect::{Inspected, inspect};
use memory::Memory;
use run::{Chores, Until, run};

/// A table whose pending rows are worked as a queue. Nothing is installed in that table.
///
/// ```no_run
/// # async fn f() -> rowlock::Result<()> {
/// use rowlock::{Client, OnDone, TableQueue, TableRow};
///
/// #[derive(serde::Deserialize)]
/// struct Item { id: i64, note: String }
///
/// let client = Client::connect("postgres://localhost/app").await?;
/// let queue = TableQueue::builder("work_items")
///     .pending("status = 'pending'")
///     .order_by("created_at, id")
///     .on_done(OnDone::set("status = 'done', done_at = now()"))
///     .concurrency(4)
///     .handler(async |item: TableRow<Item>| println!("{}: {}", item.data.id, item.data.note))
///     .build(&client)
///     .await?;
/// let stats = queue.drain().await?;
/// println!("{} done, {} failed", stats.done, stats.failed);
/// # Ok(())
/// # }
/// ```
///
/// Cheap to clone; all clones are the same queue.
///
/// # What it promises
/// - No row is worked by two at once, however many processes work the table, and none is left out.
/// - A crash frees the rows of its batch at once: nothing has to expire. (A server in the middle of a statement notices within a second.)
/// - A row that fails does not undo its neighbours in the batch, and does not hold up the rows behind it: it is skipped while it waits
///   for its next try, and parked when it has failed too often. That is remembered in `rowlock.table_failure`, and a batch is always
///   filled with rows that can be worked.
/// - A row that ends the whole process does not hold up the rest either. Which rows are being worked is noted outside of the
///   transaction (`rowlock.table_batch`); after a crash they are worked one by one, so the one that is to blame is found
///   alone and parked as poison, while the others are done.
/// - Effects through [`RowTx`] happen exactly once; all others at least once.
///
/// # The index
/// A claim should find the pending rows in their order without sorting and without passing over those that are done. For the example
/// that is
///
/// ```sql
/// create index concurrently on work_items (created_at, id) where status = 'pending';
/// ```
///
/// with the columns of [`order_by`](TableQueueBuilder::order_by) and the condition of [`pending`](TableQueueBuilder::pending). If there
/// is such an index when the queue is built, claims are held to it, whatever the table's statistics say.
/// [`explain`](Self::explain) shows how claims are planned.
///
/// # What it is not for
/// A batch is one transaction, open as long as its rows are worked, and an open transaction keeps vacuum from cleaning up anywhere in
/// the database. Work that takes more than a few seconds belongs in a [job](crate::Job), which is held by a lease.
#[derive(Clone)]
pub struct TableQueue {
    shared: Arc<Shared>,
}

/// What the loops of one queue share.
struct Shared {
    settings: Settings,
    memory: Memory,
    inspected: Mutex<Arc<Inspected>>,
    chores: Mutex<Chores>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is changed in single steps: a panic elsewhere leaves it sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TableQueue {
    /// Begins the settings of a queue over this table: `table` or `schema.table`, in double quotes where SQL needs them.
    pub fn builder(table: &str) -> TableQueueBuilder {
        TableQueueBuilder::new(table)
    }

    fn new(client: Client, settings: Settings, inspected: Inspected) -> Self {
        let memory = Memory {
            client,
            source: settings.name(&inspected.source),
            on_failed: settings.on_failed.clone(),
        };
        Self {
            shared: Arc::new(Shared {
                settings,
                memory,
                inspected: Mutex::new(Arc::new(inspected)),
                chores: Mutex::default(),
            }),
        }
    }

    /// Works until there is nothing left to claim, and tells what became of the rows. Rows that others hold, that wait for another
    /// try, or that are parked are not waited for.
    ///
    /// Dropping the future drops the handlers and rolls their batches back.
    pub async fn drain(&self) -> Result<TableStats> {
        self.drain_until(&CancellationToken::new()).await
    }

    /// As [`drain`](Self::drain), but ends early when `stop` is cancelled, as [`run`](Self::run) does.
    pub async fn drain_until(&self, stop: &CancellationToken) -> Result<TableStats> {
        run(&self.shared, stop, Until::Empty).await
    }

    /// Works until `stop` is cancelled, waiting for new rows when there are none.
    ///
    /// Then no more rows are begun; handlers that run have the [grace](TableQueueBuilder::grace) to end, and are dropped after it. What is
    /// done by then is marked and committed, the other rows are free again.
    ///
    /// A lost connection is made again. An error is returned only when there is no use in going on: the table is gone or does not fit the
    /// settings any more, a privilege is missing.
    pub async fn run(&self, stop: &CancellationToken) -> Result<TableStats> {
        run(&self.shared, stop, Until::Stopped).await
    }

    /// The name under which failures are remembered.
    pub fn name(&self) -> &str {
        &self.shared.memory.source
    }

    /// How Postgres would find the next batch now: its plan for the claim. It should have an index scan on the table, no `Sort` and no
    /// `Seq Scan` on it.
    pub async fn explain(&self) -> Result<String> {
        let (client, settings) = (&self.shared.memory.client, &self.shared.settings);
        let connection = client.connection().await?;
        let inspected = self.shared.inspected();
        inspect::explain(&connection, client, settings, &inspected, "costs off").await
    }

    /// The index that makes claims cheap, as a statement.
    pub fn index_to_create(&self) -> String {
        let inspected = self.shared.inspected();
        self.shared.settings.index_to_create(&inspected.source)
    }

    /// The rows that are remembered as failed, parked ones among them; the latest first.
    pub async fn failures(&self, at_most: u32) -> Result<Vec<RowFailure>> {
        self.shared.memory.list(at_most).await
    }

    /// Forgets the failures of these rows, so that they are worked again if they are pending. Returns how many were remembered.
    pub async fn retry(&self, keys: &[&str]) -> Result<u64> {
        self.shared.memory.forget(Some(keys)).await
    }

    /// As [`retry`](Self::retry), for all rows.
    pub async fn retry_all(&self) -> Result<u64> {
        self.shared.memory.forget(None).await
    }
}

impl Shared {
    fn inspected(&self) -> Arc<Inspected> {
        lock(&self.inspected).clone()
    }

    /// Looks the table up again.
    async fn inspect(&self) -> Result<()> {
        let inspected = inspect(&self.memory.client, &self.settings).await?;
        *lock(&self.inspected) = Arc::new(inspected);
        Ok(())
    }

    /// Forgets the failures of rows that are gone or not pending any more: one page of them, after this key. Returns where the next page
    /// starts.
    async fn sweep(&self, after: &str) -> Result<String> {
        let inspected = self.inspected();
        let connection = self.memory.client.connection().await?;
        let rows = connection
            .client
            .query_typed(
                &inspected.statements.sweep,
                &[(&self.memory.source, Type::TEXT), (&after, Type::TEXT)],
            )
            .await
            .map_err(|e| self.sweep_error(&inspected, e))?;
        let (last, page): (Option<String>, i64) = (rows[0].get(0), rows[0].get(1));
        let full = usize::try_from(page).is_ok_and(|page| page >= statements::SWEEP_PAGE);
        Ok(last.filter(|_| full).unwrap_or_default())
    }

    fn sweep_error(&self, inspected: &Inspected, e: tokio_postgres::Error) -> Error {
        let (table, name) = (inspected.source.display(), &self.memory.source);
        if e.code().is_some_and(|code| code.code().starts_with("22")) {
            return Error::Setup(format!(
                "the failures remembered for {name} are of rows with another key than {table} has: give this queue another name, or forget \
                 them with `delete from {}.table_failure where source = '{}'`",
                self.memory.client.schema(),
                name.replace('\'', "''")
            ));
        }
        Error::Database {
            doing: format!("look for failures of {table} that are out of date"),
            source: Arc::new(e),
        }
    }
}

impl std::fmt::Debug for TableQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableQueue")
            .field("name", &self.shared.memory.source)
            .finish_non_exhaustive()
    }
}

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/guide/any-table-as-a-queue.md")]
struct Guide;
