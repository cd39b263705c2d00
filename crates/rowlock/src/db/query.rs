//! Running a statement: prepared once where the session is ours alone, unnamed in one round trip where a pooler may hand the
//! next statement to another server process.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, PoisonError};

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};

use super::connect::Connection;
use crate::error::Error;
use crate::schema::Schema;

/// A parameter and its type. The type is always said, so that the server need not be asked.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

impl Connection {
    /// Runs a statement and returns all rows. `sql` must be one of a bounded set of texts: each is remembered.
    pub(crate) async fn rows(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.unanswered.store(true, Relaxed);
        let result = self.rows_somehow(sql, params).await;
        self.unanswered.store(false, Relaxed);
        result
    }

    async fn rows_somehow(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if !self.direct {
            return self.client.query_typed(sql, params).await;
        }
        match self.rows_prepared(sql, params).await {
            // What was prepared no longer fits: a migration has changed what the function returns.
            Err(e) if is_stale(&e) => {
                self.prepared().remove(sql);
                self.rows_prepared(sql, params).await
            }
            result => result,
        }
    }

    async fn rows_prepared(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let known = self.prepared().get(sql).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let types: Vec<Type> = params.iter().map(|(_, ty)| ty.clone()).collect();
                let statement = self.client.prepare_typed(sql, &types).await?;
                self.prepared().insert(sql.into(), statement.clone());
                statement
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
        self.client.query(&statement, &values).await
    }

    fn prepared(&self) -> MutexGuard<'_, HashMap<Box<str>, Statement>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a statement that returns exactly one row.
    pub(crate) async fn row(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Row, tokio_postgres::Error> {
        let mut rows = self.rows(sql, params).await?;
        // Our statements of this sort are `select function(...)`, which always give one row.
        Ok(rows.swap_remove(0))
    }

    /// Begins a transaction. A connection that is given back to its pool inside one is closed.
    pub(crate) async fn begin(&self) -> Result<(), tokio_postgres::Error> {
        self.in_transaction.store(true, Relaxed);
        self.client
            .batch_execute("begin isolation level read committed")
            .await
    }

    /// Ends the transaction: commits what went well, rolls back what did not.
    pub(crate) async fn end<T>(
        &self,
        schema: &Schema,
        doing: &str,
        result: crate::Result<T>,
    ) -> crate::Result<T> {
        let ended = match &result {
            Ok(_) => self.client.batch_execute("commit").await,
            Err(_) => self.client.batch_execute("rollback").await,
        };
        if ended.is_ok() {
            self.in_transaction.store(false, Relaxed);
        }
        match (result, ended) {
            (Ok(_), Err(e)) => Err(Error::database(doing, schema.as_str(), e)),
            (result, _) => result,
        }
    }

    /// Whether somebody has left it in the middle of something: who has it next would be in that transaction, or wait for that statement first.
    pub(super) fn is_abandoned(&self) -> bool {
        self.in_transaction.load(Relaxed) || self.unanswered.load(Relaxed)
    }
}

/// "cached plan must not change result type", or the statement is gone. Both are found out before anything runs.
fn is_stale(e: &tokio_postgres::Error) -> bool {
    e.code().is_some_and(|code| {
        [
            SqlState::FEATURE_NOT_SUPPORTED,
            SqlState::INVALID_SQL_STATEMENT_NAME,
        ]
        .contains(code)
    })
}
