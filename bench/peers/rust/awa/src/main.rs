//! awa with its queue storage: one claimer, no deadline (which keeps claims on its cheap path), jobs by COPY, single ones too.
//! With more workers or claimers it does fewer jobs here.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use adapter::{Config, Ledger, Payload, Peer, Result};
use awa::model::insert::params_with;
use awa::{Client, InsertOpts, InsertParams, JobArgs, JobResult, QueueConfig, QueueStorage};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const QUEUE: &str = "bench";
const WORKERS: u32 = 128;
const POLL: Duration = Duration::from_millis(50);

#[derive(Serialize, Deserialize, JobArgs)]
struct Noop(Payload);

struct Awa {
    pool: PgPool,
    workers: u32,
    storage: QueueStorage,
}

impl Peer for Awa {
    type Worker = Client;

    async fn set_up(config: &Config) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .min_connections(config.enqueuers())
            .max_connections(config.enqueuers() + 20)
            .test_before_acquire(false)
            .connect(&config.url)
            .await?;
        adapter::open(config.enqueuers(), || pool.acquire()).await?;
        awa::migrations::run(&pool).await?;
        // Its storage is made ready by the first worker that starts; jobs enqueued before go elsewhere.
        let workers = config.at_once().map(u32::try_from).transpose()?;
        let workers = workers.unwrap_or(WORKERS);
        let first = Client::builder(pool.clone())
            .queue(QUEUE, queue(workers))
            .register::<Noop, _, _>(|_: Noop, _| async { Ok(JobResult::Completed) })
            .build()?;
        first.start().await?;
        first.shutdown(Duration::from_secs(10)).await;
        Ok(Self {
            pool,
            workers,
            storage: QueueStorage::new(Default::default())?,
        })
    }

    fn settings(&self) -> String {
        format!(
            "max_workers {}, poll {} ms, no deadline, COPY",
            self.workers,
            POLL.as_millis()
        )
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        let jobs = jobs
            .map(|n| Ok(params_with(&Noop(Payload::of(n)), options())?))
            .collect::<Result<Vec<InsertParams>>>()?;
        self.storage.enqueue_params_copy(&self.pool, &jobs).await?;
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Client> {
        let client = Client::builder(self.pool.clone())
            .queue(QUEUE, queue(self.workers))
            .register::<Noop, _, _>(move |job: Noop, _| {
                let ledger = ledger.clone();
                async move {
                    ledger.run(job.0.n).await;
                    Ok(JobResult::Completed)
                }
            })
            .build()?;
        client.start().await?;
        Ok(client)
    }

    async fn stop(&self, worker: Client) -> Result<()> {
        worker.shutdown(Duration::from_secs(10)).await;
        Ok(())
    }

    // What is left is spread over its segments; its own functions count it.
    fn unfinished(&self) -> &'static str {
        ""
    }

    async fn count(&self, _: &tokio_postgres::Client) -> Result<u64> {
        let counts = self.storage.queue_counts(&self.pool, QUEUE).await?;
        Ok(u64::try_from(counts.available + counts.running)?)
    }
}

fn queue(workers: u32) -> QueueConfig {
    QueueConfig {
        max_workers: workers,
        poll_interval: POLL,
        deadline_duration: Duration::ZERO,
        ..QueueConfig::default()
    }
}

fn options() -> InsertOpts {
    InsertOpts {
        queue: QUEUE.into(),
        ..Default::default()
    }
}

fn main() -> Result<()> {
    adapter::run::<Awa>()
}
