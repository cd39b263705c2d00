//! The machine's floor: what the rows of Rowlock's table and its indexes cost when nobody looks for them, thinks about them or
//! runs anything. Binary COPY in; a HOT update by `ctid` (asynchronous commit) and a durable DELETE by `ctid`, in batches of 500 on 4
//! connections, whose statements are prepared and the places of the rows read before the clock starts. Single enqueues are plain
//! INSERTs of the same row without NOTIFY, one connection for each producer.

mod rows;
mod tid;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adapter::{Config, Ledger, Peer, Result};
use anyhow::ensure;
use tid::Tid;
use tokio::task::JoinSet;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

const BATCH: usize = 500;
const CONNECTIONS: usize = 4;

const INSERT: &str =
    "insert into rowlock.job (queue, kind, payload) values ('bench', 'noop', $1::text::jsonb)";
const PLACES: &str = "select ctid, (payload ->> 'n')::bigint from rowlock.job";
// Only the scan by place is left, whatever the statistics say.
const FORCED: &str = "set enable_seqscan = off; set enable_indexscan = off; set enable_bitmapscan = off; \
     set plan_cache_mode = force_generic_plan; set jit = off";
// A claim need not be durable, so its commit does not wait for the disk. The sub-select is evaluated once.
const CLAIM: &str = "update rowlock.job set lease_until = now() + interval '30 s', claimed_at = now(), token = $2, \
     lease_by = 1, attempt = attempt + 1 \
     where ctid = any ($1) and (select set_config('synchronous_commit', 'off', true)) = 'off' returning ctid";
const COMPLETE: &str = "delete from rowlock.job where ctid = any ($1)";
const TOKEN: i64 = 7;

struct Floor {
    url: String,
    /// For whoever needs one for a moment.
    idle: Mutex<Vec<Producer>>,
    /// What the next drain works with.
    hands: Mutex<Vec<Hand>>,
    rows: Mutex<Rows>,
}

struct Producer {
    client: Client,
    insert: Statement,
}

/// Where the rows are, and the numbers of their jobs.
#[derive(Default)]
struct Rows {
    places: Vec<Tid>,
    numbers: Vec<u64>,
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
            idle: Mutex::default(),
            hands: Mutex::default(),
            rows: Mutex::default(),
        };
        let mut open = Vec::new();
        for _ in 0..config.enqueuers() {
            open.push(floor.producer().await?);
        }
        lock(&floor.idle).append(&mut open);
        Ok(floor)
    }

    fn settings(&self) -> String {
        format!("batches of {BATCH}, {CONNECTIONS} connections, binary COPY")
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        let producer = self.producer().await?;
        rows::copy(&producer.client, jobs).await?;
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
        let mut hands = Vec::new();
        for _ in 0..CONNECTIONS {
            hands.push(Hand::new(&self.url).await?);
        }
        *lock(&self.hands) = hands;
        let client = adapter::connect(&self.url).await?;
        let mut rows = Rows::default();
        for row in client.query(PLACES, &[]).await? {
            rows.places.push(row.get(0));
            rows.numbers.push(u64::try_from(row.get::<_, i64>(1))?);
        }
        *lock(&self.rows) = rows;
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Self::Worker> {
        let rows = Arc::new(std::mem::take(&mut *lock(&self.rows)));
        let hands = std::mem::take(&mut *lock(&self.hands));
        let next = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for hand in hands {
            let (ledger, rows, next) = (ledger.clone(), rows.clone(), next.clone());
            tasks.spawn(async move { hand.take_turns(&ledger, &rows, &next).await });
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

/// A connection with its statements.
struct Hand {
    client: Client,
    claim: Statement,
    complete: Statement,
}

impl Hand {
    async fn new(url: &str) -> Result<Self> {
        let client = adapter::connect(url).await?;
        client.batch_execute(FORCED).await?;
        let claim = client
            .prepare_typed(CLAIM, &[Type::TID_ARRAY, Type::INT8])
            .await?;
        let complete = client.prepare_typed(COMPLETE, &[Type::TID_ARRAY]).await?;
        Ok(Self {
            client,
            claim,
            complete,
        })
    }

    /// A batch claimed, then the same batch deleted, until none is left.
    async fn take_turns(&self, ledger: &Ledger, rows: &Rows, next: &AtomicUsize) -> Result<()> {
        loop {
            let first = next.fetch_add(BATCH, Relaxed);
            if first >= rows.places.len() {
                return Ok(());
            }
            let batch = first..rows.places.len().min(first + BATCH);
            let held = self.claim(&rows.places[batch.clone()]).await?;
            for n in &rows.numbers[batch] {
                ledger.run(*n).await;
            }
            let deleted = self.client.execute(&self.complete, &[&held]).await?;
            ensure!(deleted == held.len() as u64, "a row was not deleted");
        }
    }

    /// Answers where the rows are now.
    async fn claim(&self, places: &[Tid]) -> Result<Vec<Tid>> {
        let rows = self.client.query(&self.claim, &[&places, &TOKEN]).await?;
        ensure!(rows.len() == places.len(), "a row was not where it was");
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn main() -> Result<()> {
    adapter::run::<Floor>()
}
