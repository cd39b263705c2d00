//! The stage of a benchmark: a database, a fresh schema in it, a client, and a worker whose handler only keeps count.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use rowlock::{Client, ConnInfo, NewJob, Stopped, Worker, WorkerBuilder};
use rowlock_testkit::PrivatePostgres;
use serde_json::value::RawValue;

use super::cpu;
use super::figures::Figures;
use super::ledger::Ledger;
use super::meter::Meter;
use super::signals::Signals;
use crate::Global;

pub(super) const SCHEMA: &str = "rowlock_bench";
pub(super) const QUEUE: &str = "bench";
pub(super) const KIND: &str = "noop";

/// Connections that a worker has for itself, and what the rest of the program may need.
const EACH_WORKER: usize = 5;
const OTHERS: usize = 5;

pub(super) struct Stage {
    /// For looking and preparing; not for what is measured.
    pub(super) sql: tokio_postgres::Client,
    pub(super) client: Client,
    pub(super) signals: &'static Signals,
    pub(super) url: String,
    info: ConnInfo,
    padding: String,
    /// A process of the server, if that is on this machine.
    backend: Option<i32>,
    wal: Wal,
    /// The server, if it is ours; it ends with the stage.
    server: Option<PrivatePostgres>,
}

/// Whether the write-ahead log can be looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wal {
    Closed,
    Open,
    /// By an extension that was made for it and goes with the stage.
    Opened,
}

impl Stage {
    pub(super) async fn set(
        global: &Global,
        signals: &'static Signals,
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
        sql.batch_execute("set client_min_messages = error").await?;
        let stage = Self {
            backend: local_backend(&sql).await?,
            wal: open_wal(&sql).await,
            padding: noise(payload_bytes.saturating_sub(16)),
            sql,
            client,
            signals,
            info,
            url,
            server,
        };
        stage.clear(false).await?;
        Ok(stage)
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

    pub(super) async fn strike(self) -> anyhow::Result<()> {
        self.drop_schema().await?;
        if self.wal == Wal::Opened {
            self.sql
                .batch_execute("drop extension if exists pg_walinspect")
                .await?;
        }
        drop(self.sql);
        if let Some(mut server) = self.server {
            server.stop()?;
        }
        Ok(())
    }

    /// Another connection.
    pub(super) async fn another(&self) -> anyhow::Result<tokio_postgres::Client> {
        plain_connection(&self.url).await
    }

    pub(super) async fn others(&self, n: usize) -> anyhow::Result<Vec<tokio_postgres::Client>> {
        let mut all = Vec::with_capacity(n);
        for _ in 0..n {
            all.push(self.another().await?);
        }
        Ok(all)
    }

    /// Fails unless so many workers can connect; `option`: where fewer can be asked for.
    pub(super) async fn has_room_for(&self, workers: usize, option: &str) -> anyhow::Result<()> {
        let sql = "select current_setting('max_connections')::bigint - (select count(*) from pg_stat_activity where backend_type = 'client backend')";
        let room = usize::try_from(self.count(sql).await?).unwrap_or(0);
        let needed = workers * EACH_WORKER + OTHERS;
        anyhow::ensure!(
            room >= needed,
            "the server has room for {room} more connections, and {workers} workers may need {needed}: say fewer {option}, or raise max_connections"
        );
        Ok(())
    }

    /// The payload of the `n`-th job.
    pub(super) fn payload(&self, n: u64) -> String {
        payload(n, &self.padding)
    }

    /// What each payload is filled up with.
    pub(super) fn padding(&self) -> &str {
        &self.padding
    }

    /// The `n`-th job.
    pub(super) fn job(&self, n: u64) -> NewJob {
        job_of(self.payload(n)).queue(QUEUE)
    }

    /// Puts so many jobs in by COPY, for later: the queue is paused, so that workers can be started before the time is taken.
    pub(super) async fn load(&self, jobs: u64) -> anyhow::Result<()> {
        self.pause().await?;
        self.client.bulk((0..jobs).map(|n| self.job(n))).await?;
        self.checkpoint().await;
        Ok(())
    }

    pub(super) async fn pause(&self) -> anyhow::Result<()> {
        let sql = format!("select {SCHEMA}.pause('{QUEUE}')");
        Ok(self.sql.batch_execute(&sql).await?)
    }

    /// Lets what was loaded be worked off.
    pub(super) async fn open(&self) -> anyhow::Result<()> {
        let sql = format!("select {SCHEMA}.resume('{QUEUE}')");
        Ok(self.sql.batch_execute(&sql).await?)
    }

    /// A worker with default settings, without a handler. It has a client of its own, as a worker process would.
    pub(super) fn builder(&self) -> anyhow::Result<WorkerBuilder> {
        let client = Client::builder().schema(SCHEMA).lazy(self.info.clone())?;
        Ok(Worker::builder(client).queue(QUEUE))
    }

    /// A worker with default settings that writes each job into the ledger.
    pub(super) fn worker(&self, ledger: &Arc<Ledger>) -> anyhow::Result<Worker> {
        Ok(counting(self.builder()?, ledger).build()?)
    }

    /// Works off what is there, as one worker does, and checks it.
    pub(super) async fn work_off(&self, jobs: u64, history: bool) -> anyhow::Result<Figures> {
        self.work_off_again(jobs, history, 0).await
    }

    /// As [`work_off`](Self::work_off), after the same was done so many times before.
    pub(super) async fn work_off_again(
        &self,
        jobs: u64,
        history: bool,
        before: u64,
    ) -> anyhow::Result<Figures> {
        let ledger = Arc::new(Ledger::new(jobs));
        let worker = self.worker(&ledger)?.start().await?;
        let _bar = super::watch::bar("working off", jobs, {
            let worker = worker.clone();
            move || worker.handled()
        });
        let meter = Meter::read(self).await?;
        self.open().await?;
        worker.drained().await;
        let figures = meter.cost(self, jobs, self.answered()?).await?;
        let stopped = worker.shutdown().await;
        self.check(&ledger, jobs * (before + 1), stopped, history)
            .await?;
        Ok(figures)
    }

    /// When the last acknowledgement was answered.
    pub(super) fn answered(&self) -> anyhow::Result<Instant> {
        self.signals
            .last_answer()
            .context("no acknowledgement was answered")
    }

    /// Fails unless each job ran exactly once and was acknowledged, durably, exactly once.
    pub(super) async fn check(
        &self,
        ledger: &Ledger,
        jobs: u64,
        stopped: Stopped,
        history: bool,
    ) -> anyhow::Result<()> {
        anyhow::ensure!(
            stopped.unsettled == 0 && stopped.interrupted == 0,
            "{} jobs were not settled, {} were interrupted",
            stopped.unsettled,
            stopped.interrupted
        );
        self.check_acknowledged(ledger, jobs, history).await
    }

    pub(super) async fn check_acknowledged(
        &self,
        ledger: &Ledger,
        jobs: u64,
        history: bool,
    ) -> anyhow::Result<()> {
        ledger.check()?;
        let sql = format!(
            "select (select count(*) from {SCHEMA}.job), (select count(*) from {SCHEMA}.dead),
                    (select count(*) from {SCHEMA}.finished where outcome = 'done'), (select count(distinct id) from {SCHEMA}.finished)"
        );
        let row = self.sql.query_one(&sql, &[]).await?;
        let [left, dead, done, distinct]: [i64; 4] = std::array::from_fn(|n| row.get(n));
        let kept = if history { signed(jobs) } else { 0 };
        anyhow::ensure!(
            left == 0 && dead == 0 && done == kept && distinct == kept,
            "not acknowledged exactly once: {left} jobs are left, {dead} are dead, the history has {done} entries of {distinct} jobs and \
             should have {kept}"
        );
        Ok(())
    }

    /// CPU of the whole server so far, if it is on this machine.
    pub(super) fn postgres_cpu_us(&self) -> Option<u64> {
        cpu::postgres_us(self.backend?)
    }

    pub(super) fn backend(&self) -> Option<i32> {
        self.backend
    }

    /// Bytes of page images in a stretch of the log. Reading it is not part of what is measured.
    pub(super) async fn page_images(&self, from: &str, to: &str) -> Option<f64> {
        if self.wal == Wal::Closed {
            return None;
        }
        // Only what is on the disk can be read, and claims do not wait for that; a durable commit does.
        self.sql
            .execute(
                "select pg_logical_emit_message(true, 'rowlock_bench', '')",
                &[],
            )
            .await
            .ok()?;
        let sql = "select coalesce(sum(fpi_size), 0)::float8 from pg_get_wal_stats($1::text::pg_lsn, $2::text::pg_lsn)";
        let row = self.sql.query_one(sql, &[&from, &to]).await.ok()?;
        Some(row.get(0))
    }

    pub(super) async fn count(&self, sql: &str) -> anyhow::Result<i64> {
        Ok(self.sql.query_one(sql, &[]).await?.get(0))
    }
}

/// A text that does not get smaller by compression.
pub(super) fn noise(bytes: usize) -> String {
    use rand::Rng;
    use rand::distr::Alphanumeric;
    let letters = rand::rng().sample_iter(Alphanumeric);
    letters.take(bytes).map(char::from).collect()
}

/// As the database counts. There are never so many that it matters.
pub(super) fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(super) fn payload(n: u64, padding: &str) -> String {
    if padding.is_empty() {
        format!("{{\"n\":{n}}}")
    } else {
        format!("{{\"n\":{n},\"x\":\"{padding}\"}}")
    }
}

/// A job of the kind that only counts, with this payload.
pub(super) fn job_of(payload: String) -> NewJob {
    let payload = RawValue::from_string(payload).unwrap_or_default();
    NewJob::new(KIND, &payload).unwrap_or_else(|e| unreachable!("an object is fine: {e}"))
}

/// With a handler that writes each job into the ledger and does nothing else.
pub(super) fn counting(worker: WorkerBuilder, ledger: &Arc<Ledger>) -> WorkerBuilder {
    let ledger = ledger.clone();
    worker.handle_kind(KIND, move |job: rowlock::RawJob, _| {
        ledger.ran(number(&job.payload));
        async {}
    })
}

/// The number of a job, without a JSON parser in what is measured.
pub(super) fn number(payload: &str) -> u64 {
    let Some((_, rest)) = payload.split_once("\"n\":") else {
        return u64::MAX;
    };
    rest.trim_start()
        .bytes()
        .map_while(|b| b.is_ascii_digit().then(|| u64::from(b - b'0')))
        .fold(0, |n, d| n * 10 + d)
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

/// The process of this connection, if its server is on this machine.
async fn local_backend(sql: &tokio_postgres::Client) -> anyhow::Result<Option<i32>> {
    let asked = "select case when inet_server_addr() is null or inet_server_addr() = inet_client_addr() then pg_backend_pid() end";
    let pid: Option<i32> = sql.query_one(asked, &[]).await?.get(0);
    Ok(pid.filter(|pid| cpu::postgres_us(*pid).is_some()))
}

async fn open_wal(sql: &tokio_postgres::Client) -> Wal {
    let there = "select 1 from pg_extension where extname = 'pg_walinspect'";
    match sql.query_opt(there, &[]).await {
        Ok(Some(_)) => Wal::Open,
        Ok(None)
            if sql
                .batch_execute("create extension pg_walinspect")
                .await
                .is_ok() =>
        {
            Wal::Opened
        }
        _ => Wal::Closed,
    }
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
            let database = Database {
                database: Some(db.url().to_owned()),
                schema: None,
            };
            let global = Global {
                database,
                json: false,
            };
            let signals = signals::hear().unwrap();
            Self::set(&global, signals, 16).await.unwrap()
        }
    }

    #[tokio::test]
    async fn what_was_not_acknowledged_is_noticed() {
        let db = TestDb::new().await.unwrap();
        let stage = Stage::of_test(&db).await;
        let ledger = Ledger::new(3);
        (0..3).for_each(|n| ledger.ran(n));
        stage.check_acknowledged(&ledger, 3, false).await.unwrap();
        let said = |checked: anyhow::Result<()>| checked.unwrap_err().to_string();

        let unkept = said(stage.check_acknowledged(&ledger, 3, true).await);
        assert!(unkept.contains("has 0 entries of 0 jobs"), "{unkept}");
        stage.load(3).await.unwrap();
        let left = said(stage.check_acknowledged(&ledger, 3, false).await);
        assert!(left.contains("3 jobs are left"), "{left}");
        let mut stopped = Stopped::default();
        stopped.unsettled = 2;
        let unsettled = said(stage.check(&ledger, 3, stopped, false).await);
        assert!(unsettled.contains("2 jobs were not settled"), "{unsettled}");
        stage.strike().await.unwrap();
    }

    #[test]
    fn numbers_are_read() {
        assert_eq!(number(r#"{"n": 42}"#), 42);
        assert_eq!(number(r#"{"n":7,"x":"xxx"}"#), 7);
        assert_eq!(number(r#"{"x": "a:b", "n": 9}"#), 9);
        assert_eq!(number("{}"), u64::MAX, "a stray, for the ledger");
    }
}
