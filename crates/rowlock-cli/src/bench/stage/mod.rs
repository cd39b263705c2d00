//! The stage of a benchmark: a database, a fresh schema in it, a client, and workers whose handlers only keep count.

mod check;
mod jobs;
mod password;
mod room;
mod server;
mod wal;
mod work;

use rowlock::{Client, ConnInfo};

use super::cpu;
use super::signals::Signals;
use crate::Global;
pub(super) use jobs::{job_of, noise, number, payload, signed};
use server::Server;
pub(super) use work::counting;

pub(super) const SCHEMA: &str = "rowlock_bench";
pub(super) const QUEUE: &str = "bench";
pub(super) const KIND: &str = "noop";

/// Connections that a worker has for itself, that the client of the producers has, and what the rest of the program may need.
const EACH_WORKER: usize = 5;
const CLIENT: usize = 16;
const OTHERS: usize = 5;

pub(super) struct Stage {
    /// For looking and preparing; not for what is measured. It holds the lock that keeps other benches away.
    pub(super) sql: tokio_postgres::Client,
    pub(super) client: Client,
    pub(super) signals: &'static Signals,
    /// For worker processes. It may hold a password.
    pub(super) url: String,
    padding: String,
    /// A process of the server, if that is on this machine.
    backend: Option<i32>,
    /// Whether the write-ahead log can be looked into.
    wal_is_open: bool,
    server: Server,
}

impl Stage {
    /// Connects, and refuses what cannot be measured before anything is changed.
    pub(super) async fn set_up(
        global: &Global,
        signals: &'static Signals,
        payload_bytes: usize,
    ) -> anyhow::Result<Self> {
        let server = Server::find(global.database.database.as_deref())?;
        let client = Client::builder()
            .schema(SCHEMA)
            .connections(CLIENT)
            .lazy(server.info.clone())?;
        server.check_encryption(&client).await?;
        let sql = server.connect().await?;
        server.check(&client, &sql).await?;
        sql.batch_execute("set client_min_messages = error").await?;
        endure(&sql).await?;
        lock(&sql, &server.info).await?;
        if server.is_private() {
            wal::extend(&sql).await;
        }
        Ok(Self {
            backend: local_backend(&sql).await?,
            wal_is_open: wal::is_open(&sql).await,
            padding: noise(payload_bytes.saturating_sub(16)),
            url: server.text.clone(),
            sql,
            client,
            signals,
            server,
        })
    }

    /// Makes the schema anew, with or without a history of finished jobs.
    pub(super) async fn clear(&self, history: bool) -> anyhow::Result<()> {
        self.drop_schema().await?;
        self.client.migrate().await?;
        let retention = if history { "1 day" } else { "0" };
        let sql =
            format!("select {SCHEMA}.set_queue('{QUEUE}', '{{\"retention\": \"{retention}\"}}')");
        self.sql.batch_execute(&sql).await?;
        self.checkpoint().await;
        Ok(())
    }

    /// What was written so far must not be written out during what is measured. Not everybody may ask for it.
    pub(super) async fn checkpoint(&self) {
        let _ = self.sql.batch_execute("checkpoint").await;
    }

    async fn drop_schema(&self) -> anyhow::Result<()> {
        let sql = format!("drop schema if exists {SCHEMA} cascade");
        Ok(self.sql.batch_execute(&sql).await?)
    }

    /// Takes away what was put there.
    pub(super) async fn take_down(self) -> anyhow::Result<()> {
        self.drop_schema().await?;
        drop(self.sql);
        self.server.stop()
    }

    /// Another connection.
    pub(super) async fn another(&self) -> anyhow::Result<tokio_postgres::Client> {
        self.server.connect().await
    }

    pub(super) async fn others(&self, n: usize) -> anyhow::Result<Vec<tokio_postgres::Client>> {
        let mut all = Vec::with_capacity(n);
        for _ in 0..n {
            all.push(self.another().await?);
        }
        Ok(all)
    }

    pub(super) fn info(&self) -> &ConnInfo {
        &self.server.info
    }

    /// Whether the server was started for this and ends with it.
    pub(super) fn is_private(&self) -> bool {
        self.server.is_private()
    }

    /// CPU of the whole server so far, if it is on this machine.
    pub(super) fn postgres_cpu_us(&self) -> Option<u64> {
        cpu::postgres_us(self.backend?)
    }

    pub(super) fn backend(&self) -> Option<i32> {
        self.backend
    }

    /// Bytes of page images in a stretch of the log, if it can be looked into.
    pub(super) async fn page_images(&self, from: &str, to: &str) -> Option<f64> {
        if !self.wal_is_open {
            return None;
        }
        wal::page_images(&self.sql, from, to).await
    }

    pub(super) async fn count(&self, sql: &str) -> anyhow::Result<i64> {
        Ok(self.sql.query_one(sql, &[]).await?.get(0))
    }
}

/// Nothing may end this session while it only waits: the lock would go with it.
async fn endure(sql: &tokio_postgres::Client) -> anyhow::Result<()> {
    let limits = "select count(set_config(name, '0', false)) from pg_settings
                   where name in ('idle_session_timeout', 'statement_timeout', 'transaction_timeout')";
    sql.query_one(limits, &[]).await?;
    Ok(())
}

/// Two of them would drop each other's schema.
async fn lock(sql: &tokio_postgres::Client, info: &ConnInfo) -> anyhow::Result<()> {
    let sql_lock = format!("select pg_try_advisory_lock(hashtextextended('{SCHEMA}', 0))");
    let locked: bool = sql.query_one(&sql_lock, &[]).await?.get(0);
    anyhow::ensure!(
        locked,
        "another rowlock bench is at work in {info}: nothing was changed; wait for its end, or name another database"
    );
    Ok(())
}

/// The process of this connection, if its server is on this machine.
async fn local_backend(sql: &tokio_postgres::Client) -> anyhow::Result<Option<i32>> {
    let asked = "select case when inet_server_addr() is null or inet_server_addr() = inet_client_addr() then pg_backend_pid() end";
    let pid: Option<i32> = sql.query_one(asked, &[]).await?.get(0);
    Ok(pid.filter(|pid| cpu::postgres_us(*pid).is_some()))
}

#[cfg(test)]
mod tests {
    use rowlock_testkit::TestDb;

    use super::*;
    use crate::bench::signals;
    use crate::connect::Database;

    impl Stage {
        /// On the database of a test.
        pub(in crate::bench) async fn of_test(db: &TestDb) -> Self {
            let stage = Self::on(db).await.unwrap();
            stage.clear(false).await.unwrap();
            stage
        }

        async fn on(db: &TestDb) -> anyhow::Result<Self> {
            let database = Database {
                database: Some(db.url().to_owned()),
                schema: None,
            };
            let global = Global {
                database,
                json: false,
            };
            Self::set_up(&global, signals::hear().unwrap(), 16).await
        }
    }

    #[tokio::test]
    async fn a_second_bench_on_the_same_database_is_refused() {
        let db = TestDb::new().await.unwrap();
        let stage = Stage::of_test(&db).await;
        stage.load(3).await.unwrap();
        let second = Stage::on(&db).await.err().unwrap().to_string();
        assert!(
            second.contains("another rowlock bench is at work"),
            "{second}"
        );
        let sql = format!("select count(*) from {SCHEMA}.job");
        assert_eq!(stage.count(&sql).await.unwrap(), 3, "nothing was changed");
        stage.take_down().await.unwrap();
        // The server may take a moment to notice that the session is gone.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while Stage::on(&db).await.is_err() {
            assert!(std::time::Instant::now() < deadline, "the lock is held");
        }
    }
}
