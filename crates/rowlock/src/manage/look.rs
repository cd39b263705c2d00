//! Looking at what no other function tells: for tools that examine the database itself, such as `rowlock doctor`.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio_postgres::types::Type;

use super::row;
use crate::client::Client;
use crate::db::Connection;
use crate::error::{Error, Result};

impl Client {
    /// Reads with a query of one's own, in a read-only transaction that takes `at_most` so long. In the query `rowlock.` stands
    /// for the schema. Each row is read from JSON, by the names of its columns; `doing` is said in errors.
    ///
    /// ```no_run
    /// # async fn f(client: rowlock::Client) -> rowlock::Result<()> {
    /// #[derive(serde::Deserialize)]
    /// struct Size { bytes: i64 }
    /// let sql = "select pg_table_size('rowlock.job') as bytes";
    /// let size: Vec<Size> = client.look("measure", sql, std::time::Duration::from_secs(5)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn look<T: DeserializeOwned>(
        &self,
        doing: &str,
        sql: &str,
        at_most: Duration,
    ) -> Result<Vec<T>> {
        let schema = self.schema();
        let failed = |e| Error::database(doing, schema.as_str(), e);
        let sql = format!("select to_jsonb(r) as r from ({}) r", schema.sql(sql));
        let connection = self.connection().await?;
        connection.begin().await.map_err(failed)?;
        let rows = read(&connection, &sql, at_most).await.map_err(failed);
        let rows = connection.end(schema, doing, rows).await?;
        rows.iter()
            .map(|r| {
                row::json(r, "r")?.ok_or_else(|| Error::Setup(format!("cannot {doing}: no row")))
            })
            .collect()
    }

    /// Whether something between this client and the server shares sessions, as a pooler in transaction mode does. Then workers hear of
    /// new jobs only by polling.
    pub async fn is_pooled(&self) -> Result<bool> {
        Ok(!self.connection().await?.direct)
    }
}

async fn read(
    connection: &Connection,
    sql: &str,
    at_most: Duration,
) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
    let ms = at_most.as_millis().clamp(1, 86_400_000);
    let limits = format!(
        "set transaction read only; set local statement_timeout = {ms}; set local lock_timeout = {ms}; set local timezone = 'UTC'"
    );
    connection.client.batch_execute(&limits).await?;
    // Not prepared: a tool asks each question once.
    connection
        .client
        .query_typed(
            sql,
            &[] as &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)],
        )
        .await
}
