//! River by its own Rust client. `VARIANT=default` has the settings of its quick start; else those of its benchmark: many
//! workers and the shortest fetch cooldown. River keeps finished jobs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use adapter::{Config, Ledger, Payload, Peer, Result};
use riverqueue::migrate::PostgresMigrator;
use riverqueue::{Client, Job, JobArgs, QueueConfig, RunHandle, WorkContext, WorkOutcome, Workers};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const WORKERS: usize = 10_000;
const COOLDOWN: Duration = Duration::from_millis(1);
const POLL: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Deserialize, JobArgs, Serialize)]
#[serde(transparent)]
#[river(kind = "noop")]
struct Noop {
    payload: Payload,
}

struct River {
    pool: PgPool,
    producer: Client,
    workers: usize,
    default: bool,
}

impl Peer for River {
    type Worker = RunHandle;

    const BULK_CHUNK: u64 = 2000;

    async fn set_up(config: &Config) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .min_connections(config.enqueuers())
            .max_connections(config.enqueuers() + 10)
            .test_before_acquire(false)
            .connect(&config.url)
            .await?;
        adapter::open(config.enqueuers(), || pool.acquire()).await?;
        PostgresMigrator::new(pool.clone()).migrate_up().await?;
        let default = config.variant == "default";
        let mut producer = Client::builder(pool.clone());
        if !default {
            // Insert notifications are held back for as long as the inserting client's cooldown.
            producer = producer.fetch_cooldown(COOLDOWN);
        }
        Ok(Self {
            pool,
            producer: producer.build()?,
            workers: config.at_once().unwrap_or(WORKERS),
            default,
        })
    }

    fn settings(&self) -> String {
        if self.default {
            return "quick start: 10 workers, fetch cooldown 100 ms".into();
        }
        format!(
            "{} workers, fetch cooldown {} ms, poll {} ms, insert_many (this client has no COPY and sends one INSERT for each \
             job); finished jobs are kept",
            self.workers,
            COOLDOWN.as_millis(),
            POLL.as_millis()
        )
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        self.producer.insert_many(jobs.map(noop)).await?;
        Ok(())
    }

    async fn single(&self, n: u64) -> Result<()> {
        self.producer.insert(noop(n)).await?;
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<RunHandle> {
        let mut workers = Workers::new();
        workers.add_fn(move |_: WorkContext, job: Job<Noop>| {
            let ledger = ledger.clone();
            async move {
                ledger.run(job.args.payload.n).await;
                anyhow::Ok(WorkOutcome::Complete)
            }
        })?;
        let client = Client::builder(self.pool.clone()).workers(workers);
        let client = match self.default {
            true => client.queue("default", QueueConfig::new(10)),
            false => client.fetch_cooldown(COOLDOWN).queue(
                "default",
                QueueConfig::new(self.workers).with_fetch_poll_interval(POLL),
            ),
        };
        Ok(client.build()?.start()?)
    }

    async fn stop(&self, mut worker: RunHandle) -> Result<()> {
        worker.stop().await?;
        Ok(())
    }

    fn unfinished(&self) -> &'static str {
        "select count(*) from river_job where state <> 'completed'"
    }
}

fn noop(n: u64) -> Noop {
    Noop {
        payload: Payload::of(n),
    }
}

fn main() -> Result<()> {
    adapter::run::<River>()
}
