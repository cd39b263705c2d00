//! The settings of a table that is worked as a queue: gathered, checked by themselves, then checked against the table.

use std::future::Future;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::handler::{Handler, TableRow};
use super::inspect::inspect;
use super::name::{TableName, parse_one, quote};
use super::policy::{OnDone, OnFailed};
use super::row_tx::RowTx;
use super::statements::{Clauses, Source};
use super::{IntoOutcome, TableQueue, validate};
use crate::client::Client;
use crate::error::{Error, Invalid, Result};

/// Most rows in one batch.
const BATCH_MAX: usize = 10_000;
/// Most rows in one batch whose handler uses the transaction. Each has a savepoint, and past 64 of those in a transaction
/// Postgres has to look on disk for which of them committed: not only here, but in every session.
const BATCH_IN_TX_MAX: usize = 60;
const BATCH_DEFAULT: usize = 100;
const CONCURRENCY_MAX: usize = 100;
const AT_ONCE_MAX: usize = 10_000;
const ROW_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Longest piece of SQL in the settings, in bytes.
const CLAUSE_BYTES_MAX: usize = 64 * 1024;

/// What a [`TableQueue`] is to do, before it has seen the table. See [`TableQueue::builder`].
#[must_use = "a builder does nothing until build is called"]
pub struct TableQueueBuilder {
    table: String,
    name: Option<String>,
    key: Option<Vec<String>>,
    columns: Option<Vec<String>>,
    pending: Option<String>,
    order_by: Option<String>,
    batch: usize,
    on_done: Option<OnDone>,
    on_failed: OnFailed,
    concurrency: usize,
    at_once: usize,
    timeout: Duration,
    poll: Duration,
    listen: Option<String>,
    grace: Duration,
    stop_now: CancellationToken,
    row_bytes_max: usize,
    handler: Option<Handler>,
}

/// Settings that have been checked by themselves.
pub(super) struct Settings {
    pub(super) table: TableName,
    name: Option<String>,
    pub(super) key: Option<Vec<String>>,
    pub(super) columns: Option<Vec<String>>,
    pending: String,
    order_by: Option<String>,
    batch: usize,
    on_done: OnDone,
    pub(super) on_failed: OnFailed,
    pub(super) concurrency: usize,
    pub(super) at_once: usize,
    pub(super) timeout: Duration,
    pub(super) poll: Duration,
    /// The channel, without quotes.
    pub(super) listen: Option<String>,
    pub(super) grace: Duration,
    pub(super) stop_now: CancellationToken,
    pub(super) row_bytes_max: usize,
    pub(super) handler: Handler,
}

impl TableQueueBuilder {
    pub(super) fn new(table: &str) -> Self {
        Self {
            table: table.to_owned(),
            name: None,
            key: None,
            columns: None,
            pending: None,
            order_by: None,
            batch: BATCH_DEFAULT,
            on_done: None,
            on_failed: OnFailed::default(),
            concurrency: 1,
            at_once: 10,
            timeout: Duration::from_secs(300),
            poll: Duration::from_secs(1),
            listen: None,
            grace: Duration::from_secs(30),
            stop_now: CancellationToken::new(),
            row_bytes_max: validate::PAYLOAD_BYTES_MAX,
            handler: None,
        }
    }

    /// The name under which failures are remembered, in logs and metrics: `schema.table` by default. Two queues over one table,
    /// with different pending conditions, need two names.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The columns that tell rows apart: a unique key without nulls. By default the primary key.
    pub fn key<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.key = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// The columns that the handler gets. By default all that the table has when the queue is built.
    pub fn columns<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Which rows are to be worked: an SQL condition on the table's columns, as in `status = 'pending'`.
    ///
    /// This is SQL that runs as it stands, with the rights of the connection's role: it is for the developer to write and must
    /// never be made from somebody's input. A condition that fails for one row (a cast of something that is no number) fails every
    /// claim.
    ///
    /// Rows that are deleted when done need no condition: all of them are pending, by default.
    pub fn pending(mut self, condition: impl Into<String>) -> Self {
        self.pending = Some(condition.into());
        self
    }

    /// In which order rows are claimed: what would stand after `ORDER BY`. By default in none. Raw SQL: see
    /// [`pending`](Self::pending).
    ///
    /// Create an index that has these columns, and the pending condition as its own: see [`TableQueue`] for the reason.
    pub fn order_by(mut self, order: impl Into<String>) -> Self {
        self.order_by = Some(order.into());
        self
    }

    /// How many rows are claimed, worked and marked in one transaction at most (100 by default).
    ///
    /// A handler [with the transaction](Self::handler_in_tx) gets at most 60, as each row has a savepoint and more than 64 of those
    /// in one transaction slow down the whole server.
    pub fn batch(mut self, rows: usize) -> Self {
        self.batch = rows;
        self
    }

    /// What happens to a row that is done. There is no default.
    pub fn on_done(mut self, what: OnDone) -> Self {
        self.on_done = Some(what);
        self
    }

    /// What happens to a row whose handler fails.
    pub fn on_failed(mut self, what: OnFailed) -> Self {
        self.on_failed = what;
        self
    }

    /// How many batches are worked in parallel, each on a connection of its own (1 by default).
    pub fn concurrency(mut self, batches: usize) -> Self {
        self.concurrency = batches;
        self
    }

    /// How many rows of one batch are handled at once (10 by default); they start in order. With 1, a row starts when the one before
    /// it has ended. A handler [with the transaction](Self::handler_in_tx) always has one at a time.
    pub fn at_once(mut self, rows: usize) -> Self {
        self.at_once = rows;
        self
    }

    /// How long one row may take (5 minutes by default). Keep it short: a batch is one transaction, and while that is open, vacuum
    /// cannot clean up anywhere in the database.
    pub fn timeout(mut self, per_row: Duration) -> Self {
        self.timeout = per_row;
        self
    }

    /// How long to wait, about, before looking again when nothing is pending (1 s by default).
    pub fn poll(mut self, every: Duration) -> Self {
        self.poll = every;
        self
    }

    /// A channel on which somebody sends `NOTIFY` when there are new rows, so that nothing waits for the next poll.
    pub fn listen(mut self, channel: impl Into<String>) -> Self {
        self.listen = Some(channel.into());
        self
    }

    /// How long a [run](TableQueue::run) that is stopped waits for the handlers that are running (30 s by default).
    pub fn grace(mut self, at_most: Duration) -> Self {
        self.grace = at_most;
        self
    }

    /// Ends every run of this queue at once when it is cancelled, or the grace of one that is being stopped: handlers that still run are
    /// dropped, what is done is marked and committed, and the other rows are free again at no cost to them.
    pub fn stop_now(mut self, when: CancellationToken) -> Self {
        self.stop_now = when;
        self
    }

    /// The largest row, in bytes of JSON (1 MiB by default). A larger one is parked; [`columns`](Self::columns) can leave out
    /// what makes it large.
    pub fn row_bytes_max(mut self, bytes: usize) -> Self {
        self.row_bytes_max = bytes;
        self
    }

    /// The handler, for work outside of this database: sending, calling, writing files.
    ///
    /// *At least once*: if the process dies between the effect and the commit of the batch, the row is free again and will be
    /// worked again. Several rows are handled [at once](Self::at_once).
    ///
    /// ```
    /// # use rowlock::{OnDone, TableQueue, TableRow};
    /// #[derive(serde::Deserialize)]
    /// struct Mail { id: i64, address: String }
    ///
    /// async fn send(mail: TableRow<Mail>) -> Result<(), std::io::Error> {
    ///     println!("to {}, try {}", mail.data.address, mail.failures + 1);
    ///     Ok(())
    /// }
    ///
    /// let queue = TableQueue::builder("mails").pending("sent_at is null").on_done(OnDone::set("sent_at = now()")).handler(send);
    /// ```
    pub fn handler<T, H, F>(mut self, handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(TableRow<T>) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: IntoOutcome,
    {
        self.handler = Some(Handler::outside(handler));
        self
    }

    /// The handler, for work in this database: what it does through the [`RowTx`] is committed together with the mark on the row.
    ///
    /// *Exactly once*, for all that goes through the transaction. If the handler fails, what it did for this row is undone and the
    /// rest of the batch goes on. Rows are handled one after the other.
    ///
    /// ```
    /// # use rowlock::{OnDone, RowTx, TableQueue, TableRow};
    /// #[derive(serde::Deserialize)]
    /// struct Payment { id: i64, account: i64, cents: i64 }
    ///
    /// async fn book(row: TableRow<Payment>, tx: RowTx) -> rowlock::Result<()> {
    ///     let sql = "update account set cents = cents + $2 where id = $1";
    ///     tx.execute(sql, (row.data.account, row.data.cents)).await?;
    ///     Ok(())
    /// }
    ///
    /// let queue = TableQueue::builder("payments").on_done(OnDone::Delete).handler_in_tx(book);
    /// ```
    pub fn handler_in_tx<T, H, F>(mut self, handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(TableRow<T>, RowTx) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: IntoOutcome,
    {
        self.handler = Some(Handler::in_tx(handler));
        self
    }

    /// Checks the settings, then checks them against the table: that it is there, has the key and the columns, that the role may do
    /// what it has to, and that Postgres takes the SQL.
    pub async fn build(self, client: &Client) -> Result<TableQueue> {
        let settings = self.settings()?;
        let inspected = inspect(client, &settings).await?;
        Ok(TableQueue::new(client.clone(), settings, inspected))
    }

    /// Checks the settings by themselves, without looking at the table.
    pub fn check(&self) -> Result<()> {
        TableName::parse(&self.table)?;
        if let Some(name) = &self.name {
            validate::name("name", name)?;
        }
        names("key", self.key.as_deref())?;
        names("columns", self.columns.as_deref())?;
        let on_done = self.when_done()?;
        if self.handler.is_none() {
            return Err(no_handler(&self.table));
        }
        clause("pending", &self.when_pending(on_done)?)?;
        if let Some(order) = &self.order_by {
            clause("order_by", order)?;
        }
        if let OnDone::Set(assignments) = on_done {
            clause("on_done", assignments)?;
        }
        if let Some(assignments) = &self.on_failed.set {
            clause("on_failed", assignments)?;
        }
        self.on_failed.check()?;
        within("batch", self.batch, BATCH_MAX)?;
        within("concurrency", self.concurrency, CONCURRENCY_MAX)?;
        within("at_once", self.at_once, AT_ONCE_MAX)?;
        within("row_bytes_max", self.row_bytes_max, ROW_BYTES_MAX)?;
        validate::timeout(self.timeout)?;
        if self.poll < Duration::from_millis(1) || self.poll > Duration::from_secs(86_400) {
            let poll = format!("{:?}", self.poll);
            return Err(Invalid::new("poll", poll, "must be from 1 ms to a day").into());
        }
        if let Some(channel) = &self.listen {
            parse_one("listen", channel)?;
        }
        Ok(())
    }

    fn when_done(&self) -> Result<&OnDone> {
        self.on_done.as_ref().ok_or_else(|| {
            Error::Setup(format!(
                "table {}: say what happens to a row that is done, with on_done(OnDone::Delete) or on_done(OnDone::set(\"...\"))",
                self.table
            ))
        })
    }

    fn when_pending(&self, on_done: &OnDone) -> Result<String> {
        match (&self.pending, on_done) {
            (Some(pending), _) => Ok(pending.clone()),
            (None, OnDone::Delete) => Ok("true".to_owned()),
            (None, OnDone::Set(_)) => Err(Error::Setup(format!(
                "table {}: say which rows are pending, with pending(\"...\"): rows that are kept when done would be worked for ever",
                self.table
            ))),
        }
    }

    fn settings(self) -> Result<Settings> {
        self.check()?;
        let on_done = self.when_done()?.clone();
        let pending = self.when_pending(&on_done)?;
        let Some(handler) = self.handler else {
            return Err(no_handler(&self.table));
        };
        let batch = match handler {
            Handler::InTx(_) => self.batch.min(BATCH_IN_TX_MAX),
            Handler::Outside(_) => self.batch,
        };
        let listen = self.listen.map(|c| parse_one("listen", &c)).transpose()?;
        Ok(Settings {
            table: TableName::parse(&self.table)?,
            name: self.name,
            key: names("key", self.key.as_deref())?,
            columns: names("columns", self.columns.as_deref())?,
            pending,
            order_by: self.order_by,
            batch,
            on_done,
            on_failed: self.on_failed,
            concurrency: self.concurrency,
            at_once: self.at_once,
            timeout: self.timeout,
            poll: self.poll,
            listen,
            grace: self.grace,
            stop_now: self.stop_now,
            row_bytes_max: self.row_bytes_max,
            handler,
        })
    }
}

impl Settings {
    pub(super) fn clauses(&self) -> Clauses<'_> {
        Clauses {
            pending: &self.pending,
            order_by: self.order_by.as_deref(),
            on_done: &self.on_done,
            on_failed: &self.on_failed,
            batch: self.batch,
            row_bytes_max: self.row_bytes_max,
        }
    }

    pub(super) fn deletes(&self) -> bool {
        self.on_done == OnDone::Delete
    }

    /// The name under which failures are remembered.
    pub(super) fn name(&self, source: &Source) -> String {
        self.name.clone().unwrap_or_else(|| source.display())
    }

    /// The index that makes claims cheap.
    pub(super) fn index_to_create(&self, source: &Source) -> String {
        let key = || {
            let names: Vec<_> = source.key.iter().map(|c| quote(&c.name)).collect();
            names.join(", ")
        };
        let order = self.order_by.clone().unwrap_or_else(key);
        format!(
            "create index concurrently on {} ({order}) where {}",
            source.qualified(),
            self.pending
        )
    }
}

fn no_handler(table: &str) -> Error {
    Error::Setup(format!(
        "table {table}: there is no handler: give one with handler(...) or handler_in_tx(...)"
    ))
}

/// The names of columns, read as SQL reads them.
fn names(what: &'static str, columns: Option<&[String]>) -> Result<Option<Vec<String>>, Invalid> {
    let Some(columns) = columns else {
        return Ok(None);
    };
    if columns.is_empty() {
        return Err(Invalid::new(what, "[]", "names no column"));
    }
    let names: Result<Vec<_>, _> = columns.iter().map(|c| parse_one(what, c)).collect();
    names.map(Some)
}

fn clause(what: &'static str, sql: &str) -> Result<(), Invalid> {
    if sql.trim().is_empty() {
        return Err(Invalid::new(what, sql, "is empty: SQL belongs here"));
    }
    if sql.len() > CLAUSE_BYTES_MAX {
        return Err(Invalid::new(what, sql, "is longer than 64 kB"));
    }
    if sql.contains('\0') {
        return Err(Invalid::new(what, sql, "has a NUL character"));
    }
    Ok(())
}

fn within(what: &'static str, value: usize, max: usize) -> Result<(), Invalid> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(Invalid::new(
        what,
        value,
        format!("must be from 1 to {max}"),
    ))
}

impl std::fmt::Debug for TableQueueBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableQueueBuilder")
            .field("table", &self.table)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn nothing(_: TableRow<serde_json::Value>) {}

    async fn nothing_in_tx(_: TableRow<serde_json::Value>, _: RowTx) {}

    fn builder() -> TableQueueBuilder {
        TableQueueBuilder::new("items")
            .on_done(OnDone::Delete)
            .handler(nothing)
    }

    #[test]
    fn each_bad_setting_has_an_error_of_its_own() {
        let bad: Vec<(TableQueueBuilder, &str)> = vec![
            (TableQueueBuilder::new("a b"), "double quotes"),
            (TableQueueBuilder::new("items"), "on_done(OnDone::Delete)"),
            (
                TableQueueBuilder::new("items").on_done(OnDone::Delete),
                "there is no handler",
            ),
            (
                builder().on_done(OnDone::set("done = true")),
                "which rows are pending",
            ),
            (builder().pending(" "), "pending \" \" is empty"),
            (builder().order_by(""), "order_by \"\" is empty"),
            (builder().batch(0), "batch \"0\" must be from 1"),
            (builder().concurrency(1000), "concurrency \"1000\""),
            (builder().at_once(0), "at_once \"0\""),
            (builder().row_bytes_max(0), "row_bytes_max \"0\""),
            (builder().timeout(Duration::ZERO), "timeout \"0ns\""),
            (builder().poll(Duration::ZERO), "poll \"0ns\""),
            (builder().name(""), "name \"\" is empty"),
            (builder().key(["a.b"]), "key \"a.b\" has a dot"),
            (builder().key([""; 0]), "key \"[]\" names no column"),
            (
                builder().listen("a b"),
                "listen \"a b\" needs double quotes",
            ),
            (
                builder().on_failed(OnFailed::park_after(0)),
                "on_failed: failures \"0\"",
            ),
        ];
        for (builder, text) in bad {
            let error = builder.check().expect_err(text).to_string();
            assert!(error.contains(text), "{error}: {text}");
        }
    }

    #[test]
    fn savepoints_limit_the_batch() {
        let batch = |b: TableQueueBuilder| b.batch(100).settings().unwrap().batch;
        assert_eq!(batch(builder()), 100);
        assert_eq!(batch(builder().handler_in_tx(nothing_in_tx)), 60);
    }
}
