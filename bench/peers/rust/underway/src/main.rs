//! underway: one task per transaction, which the worker holds while it runs. It keeps finished tasks.

use std::ops::Range;
use std::sync::Arc;

use adapter::{Config, Ledger, Payload, Peer, Result};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres, Transaction};
use tokio::task::JoinHandle;
use underway::task::Result as TaskResult;
use underway::{Queue, Task, Worker};

const CONCURRENCY: usize = 16;

struct Noop {
    /// None in a producer.
    ledger: Option<Arc<Ledger>>,
}

impl Task for Noop {
    type Input = Payload;
    type Output = ();

    async fn execute(&self, _: Transaction<'_, Postgres>, input: Payload) -> TaskResult<()> {
        if let Some(ledger) = &self.ledger {
            ledger.run(input.n).await;
        }
        Ok(())
    }
}

struct Underway {
    pool: PgPool,
    queue: Arc<Queue<Noop>>,
    producer: Noop,
}

struct Running {
    worker: Arc<Worker<Noop>>,
    task: JoinHandle<Result<()>>,
}

impl Peer for Underway {
    type Worker = Running;

    async fn set_up(config: &Config) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .min_connections(config.enqueuers())
            .max_connections(config.enqueuers() + u32::try_from(CONCURRENCY)? * 2 + 4)
            .test_before_acquire(false)
            .connect(&config.url)
            .await?;
        adapter::open(config.enqueuers(), || pool.acquire()).await?;
        underway::run_migrations(&pool).await?;
        let queue = Queue::builder()
            .name("bench")
            .pool(pool.clone())
            .build()
            .await?;
        Ok(Self {
            pool,
            queue: Arc::new(queue),
            producer: Noop { ledger: None },
        })
    }

    fn settings(&self) -> String {
        format!("concurrency {CONCURRENCY}; finished tasks are kept")
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        let inputs: Vec<Payload> = jobs.map(Payload::of).collect();
        self.queue
            .enqueue_multi(&self.pool, &self.producer, &inputs)
            .await?;
        Ok(())
    }

    async fn single(&self, n: u64) -> Result<()> {
        self.queue
            .enqueue(&self.pool, &self.producer, &Payload::of(n))
            .await?;
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Running> {
        let task = Noop {
            ledger: Some(ledger),
        };
        let mut worker = Worker::new(self.queue.clone(), task);
        worker.set_concurrency_limit(CONCURRENCY);
        let worker = Arc::new(worker);
        let running = worker.clone();
        let task = tokio::spawn(async move { Ok(running.run().await?) });
        Ok(Running { worker, task })
    }

    async fn stop(&self, running: Running) -> Result<()> {
        running.worker.shutdown();
        running.task.await?
    }

    fn unfinished(&self) -> &'static str {
        "select count(*) from underway.task where state <> 'succeeded'"
    }
}

fn main() -> Result<()> {
    adapter::run::<Underway>()
}
