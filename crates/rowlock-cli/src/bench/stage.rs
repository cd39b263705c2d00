//! The stage of a benchmark: a database, a fresh schema in it, a client, and a worker whose handler only keeps count.

use std::sync::Arc;

use anyhow::Context;
use rowlock::{Client, ConnInfo, NewJob, Worker};
use rowlock_testkit::PrivatePostgres;
use serde_json::value::RawValue;

use super::ledger::Ledger;
use crate::Global;

pub(super) const SCHEMA: &str = "rowlock_bench";
pub(super) const QUEUE: &str = "bench";
const KIND: &str = "noop";

pub(super) struct Stage {
    /// For looking and preparing; not for what is measured.
    pub(super) sql: tokio_postgres::Client,
    pub(super) client: Client,
    info: ConnInfo,
    url: String,
    history: bool,
    padding: String,
    /// The server, if it is ours; it ends with the stage.
    server: Option<PrivatePostgres>,
}

impl Stage {
    pub(super) async fn set(
        global: &Global,
        history: bool,
        payload_bytes: usize,
    ) -> anyhow::Result<Self> {
        let (server, url) = match &global.database.database {
            Some(url) => (None, url.clone()),
            None => {
                let server = PrivatePostgres::builder()
                    .setting("shared_buffers", "1GB")
                    .setting("max_wal_size", "8GB")
                    .setting("max_connections", "300")
                    .start()?;
                let url = server.url("postgres");
                (Some(server), url)
            }
        };
        let info = ConnInfo::parse(&url)?;
        let client = Client::builder()
            .schema(SCHEMA)
            .connections(16)
            .lazy(info.clone())?;
        let sql = plain_connection(&url).await?;
        let padding = "x".repeat(payload_bytes.saturating_sub(16));
        let stage = Self {
            sql,
            client,
            info,
            url,
            history,
            padding,
            server,
        };
        stage.clear().await?;
        Ok(stage)
    }

    /// Makes the schema anew.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        self.sql
            .batch_execute(&format!(
                "set client_min_messages = error; drop schema if exists {SCHEMA} cascade"
            ))
            .await?;
        self.client.migrate().await?;
        let retention = if self.history { "1 day" } else { "0" };
        let sql =
            format!("select {SCHEMA}.set_queue('{QUEUE}', '{{\"retention\": \"{retention}\"}}')");
        self.sql.batch_execute(&sql).await?;
        // What the last scenario left must not be written out during the next.
        let _ = self.sql.batch_execute("checkpoint").await;
        Ok(())
    }

    pub(super) async fn strike(self) -> anyhow::Result<()> {
        self.sql
            .batch_execute(&format!(
                "set client_min_messages = error; drop schema if exists {SCHEMA} cascade"
            ))
            .await?;
        drop(self.sql);
        if let Some(mut server) = self.server {
            server.stop()?;
        }
        Ok(())
    }

    /// Another connection, for those who hold vacuum back.
    pub(super) async fn another(&self) -> anyhow::Result<tokio_postgres::Client> {
        plain_connection(&self.url).await
    }

    /// The `n`-th job.
    pub(super) fn job(&self, n: u64) -> NewJob {
        let json = if self.padding.is_empty() {
            format!("{{\"n\":{n}}}")
        } else {
            format!("{{\"n\":{n},\"x\":\"{}\"}}", self.padding)
        };
        let payload = RawValue::from_string(json).unwrap_or_default();
        NewJob::new(KIND, &payload)
            .unwrap_or_else(|e| unreachable!("a small object is fine: {e}"))
            .queue(QUEUE)
    }

    /// A worker with default settings that writes each job into the ledger.
    pub(super) fn worker(&self, ledger: &Arc<Ledger>) -> anyhow::Result<Worker> {
        let ledger = ledger.clone();
        // A client of its own, as a worker process would have.
        let client = Client::builder().schema(SCHEMA).lazy(self.info.clone())?;
        let worker = Worker::builder(client).queue(QUEUE).handle_kind(
            KIND,
            move |job: rowlock::RawJob, _| {
                ledger.ran(number(&job.payload));
                async {}
            },
        );
        Ok(worker.build()?)
    }

    pub(super) async fn count(&self, sql: &str) -> anyhow::Result<i64> {
        Ok(self.sql.query_one(sql, &[]).await?.get(0))
    }
}

/// The number of a job, without a JSON parser in what is measured.
fn number(payload: &str) -> u64 {
    let digits = payload
        .split_once(':')
        .map_or("", |(_, rest)| rest.trim_start());
    digits
        .chars()
        .map_while(|c| c.to_digit(10))
        .fold(0, |n, d| n * 10 + u64::from(d))
}

async fn plain_connection(url: &str) -> anyhow::Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .context(
            "cannot connect for measuring (only connections without TLS are supported here)",
        )?;
    tokio::spawn(connection);
    Ok(client)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_read() {
        assert_eq!(number(r#"{"n": 42}"#), 42);
        assert_eq!(number(r#"{"n":7,"x":"xxx"}"#), 7);
    }
}
