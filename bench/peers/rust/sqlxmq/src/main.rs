//! sqlxmq: each job completes by itself; many spawns share a transaction where they come together.

use std::ops::Range;
use std::sync::Arc;

use adapter::{Config, Ledger, Payload, Peer, Result};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use sqlxmq::{CurrentJob, JobBuilder, JobRunnerHandle, JobRunnerOptions};

const MIGRATIONS: &[&str] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));
const CONNECTIONS: u32 = 20;
const CONCURRENCY: (usize, usize) = (50, 100);

struct Sqlxmq {
    pool: PgPool,
    /// At least and at most so many jobs at once.
    concurrency: (usize, usize),
}

impl Peer for Sqlxmq {
    type Worker = JobRunnerHandle;

    async fn set_up(config: &Config) -> Result<Self> {
        let sql = adapter::connect(&config.url).await?;
        for migration in MIGRATIONS {
            sql.batch_execute(migration).await?;
        }
        let pool = PgPoolOptions::new()
            .min_connections(config.enqueuers())
            .max_connections(config.enqueuers() + CONNECTIONS)
            .test_before_acquire(false)
            .connect(&config.url)
            .await?;
        adapter::open(config.enqueuers(), || pool.acquire()).await?;
        let concurrency = config.at_once().map(|n| (n / 2, n));
        Ok(Self {
            pool,
            concurrency: concurrency.unwrap_or(CONCURRENCY),
        })
    }

    fn settings(&self) -> String {
        let (least, most) = self.concurrency;
        format!("concurrency {least} to {most}, pool {CONNECTIONS}")
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        for n in jobs {
            JobBuilder::new("noop")
                .set_json(&Payload::of(n))?
                .spawn(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<JobRunnerHandle> {
        let mut options = JobRunnerOptions::new(&self.pool, move |mut job: CurrentJob| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                if let Ok(Some(payload)) = job.json::<Payload>() {
                    ledger.run(payload.n).await;
                }
                if let Err(error) = job.complete().await {
                    eprintln!("cannot complete: {error}");
                }
            });
        });
        options.set_concurrency(self.concurrency.0, self.concurrency.1);
        Ok(options.run().await?)
    }

    async fn stop(&self, mut worker: JobRunnerHandle) -> Result<()> {
        worker.stop().await;
        Ok(())
    }

    fn unfinished(&self) -> &'static str {
        "select count(*) from mq_msgs where id <> uuid_nil()"
    }
}

fn main() -> Result<()> {
    adapter::run::<Sqlxmq>()
}
