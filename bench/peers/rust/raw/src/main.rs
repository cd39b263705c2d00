//! What the articles show, without a library: a table with a status and a partial index, `FOR UPDATE SKIP LOCKED`, NOTIFY with
//! each insert. `VARIANT=one`: one job per claim, one claim per connection, 16 connections. `VARIANT=batch`: 100 jobs
//! per claim, 4 connections.

use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adapter::{Config, Ledger, Payload, Peer, Result};
use futures_util::{SinkExt, future::poll_fn};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

const TABLE: &str = "create table job (
    id bigint generated always as identity primary key,
    status text not null default 'ready',
    payload jsonb not null,
    created_at timestamptz not null default now(),
    started_at timestamptz
  );
  create index job_ready on job (id) where status = 'ready'";
const COPY: &str = "copy job (payload) from stdin";
const INSERT: &str = "with new as (insert into job (payload) select jsonb_build_object('n', n) from unnest($1::bigint[]) n)
  select pg_notify('job', '')";
const CLAIM: &str = "update job set status = 'running', started_at = now() where id in (
    select id from job where status = 'ready' order by id limit $1 for update skip locked)
  returning id, payload::text";
const COMPLETE: &str = "delete from job where id = any ($1)";

/// How many a connection claims at once.
const BATCH: i64 = 100;

struct Raw {
    url: String,
    per_claim: i64,
    connections: usize,
    idle: Mutex<Vec<Producer>>,
}

struct Producer {
    client: Client,
    insert: Statement,
}

struct Pool {
    tasks: JoinSet<Result<()>>,
    stopping: Arc<AtomicBool>,
    bell: Arc<Notify>,
}

impl Raw {
    async fn producer(&self) -> Result<Producer> {
        let idle = lock(&self.idle).pop();
        match idle {
            Some(producer) => Ok(producer),
            None => {
                let client = adapter::connect(&self.url).await?;
                let insert = client.prepare(INSERT).await?;
                Ok(Producer { client, insert })
            }
        }
    }
}

impl Peer for Raw {
    type Worker = Pool;

    const BULK_CHUNK: u64 = 0;

    async fn set_up(config: &Config) -> Result<Self> {
        let client = adapter::connect(&config.url).await?;
        client.batch_execute(TABLE).await?;
        let (per_claim, connections) = match config.variant.as_str() {
            "one" => (1, 16),
            _ => match config.at_once() {
                Some(handlers) => (BATCH, handlers.div_ceil(BATCH as usize)),
                None => (BATCH, 4),
            },
        };
        let raw = Self {
            url: config.url.clone(),
            per_claim,
            connections,
            idle: Mutex::new(Vec::new()),
        };
        let mut open = Vec::new();
        for _ in 0..config.enqueuers() {
            open.push(raw.producer().await?);
        }
        lock(&raw.idle).append(&mut open);
        Ok(raw)
    }

    fn settings(&self) -> String {
        format!(
            "{} per claim, {} connections, DELETE when done, NOTIFY with each insert",
            self.per_claim, self.connections
        )
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        let producer = self.producer().await?;
        let mut sink = pin!(producer.client.copy_in::<_, bytes::Bytes>(COPY).await?);
        let numbers: Vec<u64> = jobs.collect();
        for chunk in numbers.chunks(1000) {
            let lines: String = chunk.iter().map(|n| adapter::payload(*n) + "\n").collect();
            sink.send(bytes::Bytes::from(lines)).await?;
        }
        sink.finish().await?;
        lock(&self.idle).push(producer);
        Ok(())
    }

    async fn batch(&self, jobs: Range<u64>) -> Result<()> {
        let producer = self.producer().await?;
        let numbers: Vec<i64> = jobs.map(u64::cast_signed).collect();
        producer.client.query(&producer.insert, &[&numbers]).await?;
        lock(&self.idle).push(producer);
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Pool> {
        let mut pool = Pool {
            tasks: JoinSet::new(),
            stopping: Arc::new(AtomicBool::new(false)),
            bell: Arc::new(Notify::new()),
        };
        listen(&self.url, pool.bell.clone()).await?;
        for _ in 0..self.connections {
            let worker = Claimer {
                client: adapter::connect(&self.url).await?,
                per_claim: self.per_claim,
                ledger: ledger.clone(),
                stopping: pool.stopping.clone(),
                bell: pool.bell.clone(),
            };
            pool.tasks.spawn(worker.work());
        }
        Ok(pool)
    }

    async fn stop(&self, mut pool: Pool) -> Result<()> {
        pool.stopping.store(true, Relaxed);
        pool.bell.notify_waiters();
        while let Some(done) = pool.tasks.join_next().await {
            done??;
        }
        Ok(())
    }

    fn unfinished(&self) -> &'static str {
        "select count(*) from job"
    }
}

struct Claimer {
    client: Client,
    per_claim: i64,
    ledger: Arc<Ledger>,
    stopping: Arc<AtomicBool>,
    bell: Arc<Notify>,
}

impl Claimer {
    async fn work(self) -> Result<()> {
        let claim = self.client.prepare(CLAIM).await?;
        let complete = self.client.prepare(COMPLETE).await?;
        while !self.stopping.load(Relaxed) {
            // Listens before it looks, so that no bell is missed.
            let mut rung = pin!(self.bell.notified());
            rung.as_mut().enable();
            let rows = self.client.query(&claim, &[&self.per_claim]).await?;
            if rows.is_empty() {
                let _ = tokio::time::timeout(Duration::from_secs(1), rung).await;
                continue;
            }
            let mut ids: Vec<i64> = Vec::with_capacity(rows.len());
            let mut numbers = Vec::with_capacity(rows.len());
            for row in &rows {
                ids.push(row.get(0));
                numbers.push(serde_json::from_str::<Payload>(row.get(1))?.n);
            }
            self.ledger.run_all(numbers.into_iter()).await;
            self.client.execute(&complete, &[&ids]).await?;
        }
        Ok(())
    }
}

/// Rings the bell with each notification.
async fn listen(url: &str, bell: Arc<Notify>) -> Result<()> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(_) = message {
                bell.notify_waiters();
            }
        }
    });
    client.batch_execute("listen job").await?;
    // Listens as long as the process lives.
    std::mem::forget(client);
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn main() -> Result<()> {
    adapter::run::<Raw>()
}
