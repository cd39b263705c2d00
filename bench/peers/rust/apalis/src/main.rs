//! apalis-postgres with LISTEN, large batches and tasks not locked one by one, as its examples have it. It keeps finished jobs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use adapter::{Ledger, Payload, Peer, Result};
use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const QUEUE: &str = "bench";
const BATCH: usize = 500;
const POLL: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Noop(Payload);

struct Apalis {
    pool: PgPool,
    /// Workers started so far, for their names.
    started: AtomicU64,
}

struct Running {
    thread: JoinHandle<Result<()>>,
    stop: oneshot::Sender<()>,
}

impl Peer for Apalis {
    type Worker = Running;

    async fn set_up(config: &adapter::Config) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .min_connections(config.enqueuers())
            .max_connections(config.enqueuers() + 10)
            .test_before_acquire(false)
            .connect(&config.url)
            .await?;
        adapter::open(config.enqueuers(), || pool.acquire()).await?;
        PostgresStorage::setup(&pool).await?;
        Ok(Self {
            pool,
            started: AtomicU64::new(0),
        })
    }

    fn settings(&self) -> String {
        format!(
            "batch_size {BATCH}, lock_tasks off, pubsub and poll every {} ms, parallelize; finished jobs are kept",
            POLL.as_millis()
        )
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        let tasks = jobs
            .map(|n| Ok(TaskBuilder::new(serde_json::to_vec(&Payload::of(n))?).build()))
            .collect::<Result<Vec<_>>>()?;
        let mut connection = self.pool.acquire().await?;
        apalis_postgres::queries::push_tasks(&mut *connection, QUEUE, tasks).await?;
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Running> {
        let config = Config::default()
            .queue(QUEUE)
            .batch_size(BATCH)
            .lock_tasks(false);
        let backend = PostgresStorage::<Noop>::new(&self.pool)
            .with_config(config)
            .with_pubsub()
            .poll_with_interval(POLL);
        let name = format!("bench-{}", self.started.fetch_add(1, Relaxed));
        let worker = WorkerBuilder::new(name)
            .backend(backend)
            .data(ledger)
            .parallelize(tokio::spawn)
            .build(noop);
        // Its future cannot be sent, so it gets a thread; its jobs run where all others do.
        let (stop, stopped) = oneshot::channel();
        let runtime = Handle::current();
        let thread = tokio::task::spawn_blocking(move || {
            runtime.block_on(async move {
                tokio::select! {
                    ended = worker.run() => ended.map_err(|e| anyhow::anyhow!("worker: {e}")),
                    _ = stopped => Ok(()),
                }
            })
        });
        Ok(Running { thread, stop })
    }

    async fn stop(&self, running: Running) -> Result<()> {
        let _ = running.stop.send(());
        running.thread.await?
    }

    fn unfinished(&self) -> &'static str {
        "select count(*) from apalis.jobs where status <> 'Done'"
    }
}

async fn noop(job: Noop, ledger: Data<Arc<Ledger>>) -> Result<(), BoxDynError> {
    ledger.run(job.0.n).await;
    Ok(())
}

fn main() -> Result<()> {
    adapter::run::<Apalis>()
}
