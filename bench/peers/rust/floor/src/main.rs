//! The machine's floor: what the rows of Rowlock's table and its indexes cost when nobody looks for them, thinks about them or
//! runs anything. COPY in; a HOT update by `ctid` (asynchronous commit) and a durable DELETE by `ctid`, in batches of 500 on 4
//! connections. The places of the rows are read before the clock starts. Single enqueues are plain INSERTs of the same
//! row without NOTIFY, one connection for each producer.

use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adapter::{Config, Ledger, Peer, Result};
use anyhow::ensure;
use futures_util::SinkExt;
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

const BATCH: usize = 500;
const CONNECTIONS: usize = 4;

const COPY: &str = "copy rowlock.job (queue, kind, payload) from stdin";
const INSERT: &str =
    "insert into rowlock.job (queue, kind, payload) values ('bench', 'noop', $1::text::jsonb)";
const PLACES: &str = "select ctid::text, (payload ->> 'n')::bigint from rowlock.job";
const CLAIM: &str = "update rowlock.job set lease_until = now() + interval '30 s', claimed_at = now(), token = $2, \
     lease_by = 1, attempt = attempt + 1 where ctid = any ($1::text[]::tid[]) returning ctid::text";
const COMPLETE: &str = "delete from rowlock.job where ctid = any ($1::text[]::tid[])";

type Places = Vec<(String, u64)>;

struct Floor {
    url: String,
    /// For whoever needs one for a moment.
    idle: Mutex<Vec<Producer>>,
    /// Where the rows are.
    places: Mutex<Places>,
}

struct Producer {
    client: Client,
    insert: Statement,
}

impl Floor {
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

impl Peer for Floor {
    type Worker = JoinSet<Result<()>>;

    const BULK_CHUNK: u64 = 0;

    async fn set_up(config: &Config) -> Result<Self> {
        rowlock::Client::connect_and_migrate(&config.url).await?;
        let floor = Self {
            url: config.url.clone(),
            idle: Mutex::new(Vec::new()),
            places: Mutex::new(Vec::new()),
        };
        for _ in 0..config.producers {
            let producer = floor.producer().await?;
            lock(&floor.idle).insert(0, producer);
        }
        Ok(floor)
    }

    fn settings(&self) -> String {
        format!("batches of {BATCH}, {CONNECTIONS} connections")
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        let producer = self.producer().await?;
        let mut sink = pin!(producer.client.copy_in::<_, bytes::Bytes>(COPY).await?);
        let numbers: Vec<u64> = jobs.collect();
        for chunk in numbers.chunks(1000) {
            let lines: String = chunk
                .iter()
                .map(|n| format!("bench\tnoop\t{}\n", adapter::payload(*n)))
                .collect();
            sink.send(bytes::Bytes::from(lines)).await?;
        }
        sink.finish().await?;
        lock(&self.idle).push(producer);
        Ok(())
    }

    async fn single(&self, n: u64) -> Result<()> {
        let producer = self.producer().await?;
        let payload = adapter::payload(n);
        producer
            .client
            .execute(&producer.insert, &[&payload])
            .await?;
        lock(&self.idle).push(producer);
        Ok(())
    }

    async fn before_drain(&self) -> Result<()> {
        let client = adapter::connect(&self.url).await?;
        let mut places = Vec::new();
        for row in client.query(PLACES, &[]).await? {
            places.push((row.get(0), u64::try_from(row.get::<_, i64>(1))?));
        }
        *lock(&self.places) = places;
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Self::Worker> {
        let places = Arc::new(std::mem::take(&mut *lock(&self.places)));
        let next = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (url, ledger) = (self.url.clone(), ledger.clone());
            let (places, next) = (places.clone(), next.clone());
            tasks.spawn(async move { take_turns(&url, &ledger, &places, &next).await });
        }
        Ok(tasks)
    }

    async fn stop(&self, mut worker: Self::Worker) -> Result<()> {
        while let Some(done) = worker.join_next().await {
            done??;
        }
        Ok(())
    }

    fn unfinished(&self) -> &'static str {
        "select count(*) from rowlock.job"
    }
}

/// One connection: a batch claimed, then the same batch deleted, until none is left.
async fn take_turns(url: &str, ledger: &Ledger, places: &Places, next: &AtomicUsize) -> Result<()> {
    let client = adapter::connect(url).await?;
    let (claim, complete) = (
        client.prepare(CLAIM).await?,
        client.prepare(COMPLETE).await?,
    );
    loop {
        let first = next.fetch_add(BATCH, Relaxed);
        if first >= places.len() {
            return Ok(());
        }
        let batch = &places[first..places.len().min(first + BATCH)];
        let tids: Vec<&str> = batch.iter().map(|(tid, _)| tid.as_str()).collect();
        // A claim need not be durable; both settings travel with their statement.
        let parameters: [&(dyn ToSql + Sync); 2] = [&tids, &7_i64];
        let (_, claimed) = tokio::try_join!(
            biased;
            client.batch_execute("set synchronous_commit = off"),
            client.query(&claim, &parameters),
        )?;
        ensure!(claimed.len() == batch.len(), "a row was not where it was");
        for (_, n) in batch {
            ledger.run(*n).await;
        }
        let tids: Vec<&str> = claimed.iter().map(|row| row.get(0)).collect();
        let parameters: [&(dyn ToSql + Sync); 1] = [&tids];
        let (_, deleted) = tokio::try_join!(
            biased;
            client.batch_execute("set synchronous_commit = on"),
            client.execute(&complete, &parameters),
        )?;
        ensure!(deleted == tids.len() as u64, "a row was not deleted");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn main() -> Result<()> {
    adapter::run::<Floor>()
}
