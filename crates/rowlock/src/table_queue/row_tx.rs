//! The transaction of a batch, lent to the handler of one row for its turn.
//!
//! Promises: what goes through it is committed with the mark on the row, or not at all. Must not: reach past the row's turn. A
//! handler that hands it to a task of its own cannot touch the rows that come after.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::BytesMut;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{RwLock, RwLockReadGuard};
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

use crate::db::{Live, Param};
use crate::error::{Error, Invalid, Result};
use crate::tx::{BoxError, Transaction};
use crate::unreadable;

const DOING: &str = "run a handler's statement";

/// Commands that would end the transaction, or the savepoint that guards the row.
const RESERVED: &[&str] = &[
    "abort",
    "begin",
    "commit",
    "end",
    "prepare",
    "release",
    "rollback",
    "savepoint",
    "start",
];

/// The transaction in which a row is worked and marked, for the handler of that row.
///
/// It is also a [`Transaction`], so jobs can be enqueued in it: `client.enqueue(job).in_tx(&mut tx)`.
///
/// Parameters are anything that serde writes as a list: a tuple, an array, a `Vec`; `()` for none. They travel as text and Postgres
/// takes each for what the statement needs there: numbers, texts, booleans and null as they are, times and uuids as texts, and lists
/// and objects as JSON.
pub struct RowTx {
    live: Live,
    turn: Arc<Turn>,
}

/// A row's turn. Statements hold it for reading; ending it waits for them.
#[derive(Default)]
struct Turn {
    over: RwLock<bool>,
    /// Whether a statement was sent.
    used: AtomicBool,
}

/// Ends a row's turn.
pub(super) struct TurnGuard(Arc<Turn>);

impl TurnGuard {
    /// After this, no statement of the row's handler runs any more. Returns whether there was any.
    pub(super) async fn end(self) -> bool {
        *self.0.over.write().await = true;
        self.0.used.load(Relaxed)
    }
}

impl RowTx {
    pub(super) fn new(live: Live) -> (Self, TurnGuard) {
        let turn = Arc::new(Turn::default());
        let guard = TurnGuard(turn.clone());
        (Self { live, turn }, guard)
    }

    /// Runs a statement and returns how many rows it touched.
    ///
    /// ```no_run
    /// # async fn f(tx: rowlock::RowTx) -> rowlock::Result<()> {
    /// tx.execute("insert into ledger (item, amount) values ($1, $2)", (7, "12.50")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn execute(&self, sql: &str, params: impl Serialize) -> Result<u64> {
        refuse_reserved(sql)?;
        let params = texts(params)?;
        let _turn = self.turn.take().await?;
        self.live
            .client
            .execute_typed(sql, &typed(&params))
            .await
            .map_err(failed)
    }

    /// Runs a statement that returns rows (also `insert … returning`), and reads each as a `T` by the names of its columns.
    ///
    /// ```no_run
    /// # async fn f(tx: rowlock::RowTx) -> rowlock::Result<()> {
    /// #[derive(serde::Deserialize)]
    /// struct Account { id: i64, cents: i64 }
    ///
    /// let accounts: Vec<Account> = tx.query("select id, cents from account where owner = $1", ("ann",)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn query<T: DeserializeOwned>(
        &self,
        sql: &str,
        params: impl Serialize,
    ) -> Result<Vec<T>> {
        refuse_reserved(sql)?;
        let params = texts(params)?;
        let sql = format!(
            "with rowlock_q as (\n{sql}\n) select row_to_json(rowlock_q)::text from rowlock_q"
        );
        let _turn = self.turn.take().await?;
        let rows = self
            .live
            .client
            .query_typed(&sql, &typed(&params))
            .await
            .map_err(failed)?;
        rows.iter()
            .map(|row| {
                serde_json::from_str(row.get(0)).map_err(|e| {
                    let doing = "read a row of a handler's statement";
                    Error::json(doing, unreadable::error(&e))
                })
            })
            .collect()
    }
}

impl Transaction for RowTx {
    async fn query_text(
        &mut self,
        sql: &str,
        params: &[Option<&str>],
    ) -> Result<Vec<Vec<Option<String>>>, BoxError> {
        let _turn = self.turn.take().await?;
        let params: Vec<Param<'_>> = params
            .iter()
            .map(|p| (p as &(dyn ToSql + Sync), Type::TEXT))
            .collect();
        let rows = self.live.client.query_typed(sql, &params).await?;
        let texts = |row: &tokio_postgres::Row| -> Result<Vec<Option<String>>, BoxError> {
            (0..row.len()).map(|n| Ok(row.try_get(n)?)).collect()
        };
        rows.iter().map(texts).collect()
    }
}

impl std::fmt::Debug for RowTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowTx").finish_non_exhaustive()
    }
}

impl Turn {
    /// Holds the turn for one statement, if it is not over.
    async fn take(&self) -> Result<RwLockReadGuard<'_, bool>> {
        let over = self.over.read().await;
        if *over {
            return Err(Error::Closed {
                doing: format!("{DOING}: the row's turn is over"),
            });
        }
        self.used.store(true, Relaxed);
        Ok(over)
    }
}

fn failed(e: tokio_postgres::Error) -> Error {
    Error::Database {
        doing: DOING.into(),
        source: Arc::new(e),
    }
}

fn refuse_reserved(sql: &str) -> Result<(), Invalid> {
    let word = sql
        .trim_start()
        .split(|c: char| !c.is_ascii_alphabetic())
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    if RESERVED.contains(&&*word) {
        let rule = "is not for handlers: the batch begins and ends its transaction itself";
        return Err(Invalid::new("statement", word, rule));
    }
    Ok(())
}

/// The parameters as Postgres reads them.
fn texts(params: impl Serialize) -> Result<Vec<Text>> {
    let value = serde_json::to_value(params)
        .map_err(|e| Error::json("write the parameters of a handler's statement", e))?;
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(values) => Ok(values.into_iter().map(Text::of).collect()),
        other => Err(Invalid::new(
            "parameters",
            kind(&other),
            "must be a list: a tuple (with a comma if it is one: (x,)), an array, or ()",
        )
        .into()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "an object",
        Value::String(_) => "a text",
        _ => "a single value",
    }
}

fn typed(params: &[Text]) -> Vec<Param<'_>> {
    // Unknown: the statement says what it needs.
    params
        .iter()
        .map(|p| (p as &(dyn ToSql + Sync), Type::UNKNOWN))
        .collect()
}

/// A value of whatever type, in the form in which one types it.
#[derive(Debug, PartialEq)]
struct Text(Option<String>);

impl Text {
    fn of(value: Value) -> Self {
        Self(match value {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        })
    }
}

impl ToSql for Text {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        let Some(text) = &self.0 else {
            return Ok(IsNull::Yes);
        };
        if text.contains('\0') {
            return Err("holds a NUL character, which Postgres cannot store".into());
        }
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_written_as_one_types_them() {
        let text = |s: &str| Text(Some(s.into()));
        let params = (7, "a", true, 1.5, None::<i32>, [1, 2]);
        let expected = [
            text("7"),
            text("a"),
            text("true"),
            text("1.5"),
            Text(None),
            text("[1,2]"),
        ];
        assert_eq!(texts(params).unwrap(), expected);
        assert_eq!(texts(()).unwrap(), []);
        assert!(texts("a").unwrap_err().to_string().contains("(x,)"));
    }

    #[test]
    fn the_transaction_is_not_the_handlers_to_end() {
        for sql in ["commit", " ROLLBACK to savepoint a", "Begin;", "release x"] {
            assert!(refuse_reserved(sql).is_err(), "{sql}");
        }
        assert!(refuse_reserved("insert into commit values (1)").is_ok());
    }
}
