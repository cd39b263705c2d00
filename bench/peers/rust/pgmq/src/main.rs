//! pgmq from the SQL that its crate carries: messages read 100 at a time by 4 readers and deleted together, or archived with
//! `HISTORY=1`. An idle reader polls inside the server, every 10 ms.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use adapter::{Config, Ledger, Payload, Peer, Result};
use anyhow::ensure;
use pgmq::{Message, PGMQueueExt};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;

const QUEUE: &str = "bench";
const READERS: u32 = 4;
const BATCH: u16 = 100;
const LEASE_SECONDS: i32 = 60;
const POLL: Duration = Duration::from_millis(10);
const HISTORY: &str = "select count(*), count(distinct message) from pgmq.a_bench";

#[derive(Serialize, Deserialize)]
struct Job(Payload);

struct Pgmq {
    queue: PGMQueueExt,
    readers: u32,
    history: bool,
}

struct Readers {
    tasks: JoinSet<Result<()>>,
    stopping: Arc<AtomicBool>,
}

impl Peer for Pgmq {
    type Worker = Readers;

    async fn set_up(config: &Config) -> Result<Self> {
        let readers = match config.at_once() {
            Some(handlers) => u32::try_from(handlers.div_ceil(BATCH.into()))?,
            None => READERS,
        };
        let pool = PgPoolOptions::new()
            .min_connections(config.enqueuers())
            .max_connections(config.enqueuers() + readers + 1)
            .test_before_acquire(false)
            .connect(&config.url)
            .await?;
        adapter::open(config.enqueuers(), || pool.acquire()).await?;
        let queue = PGMQueueExt::new_with_pool(pool).await;
        queue.install_sql_from_embedded().await?;
        queue.create(QUEUE).await?;
        Ok(Self {
            queue,
            readers,
            history: config.history,
        })
    }

    fn settings(&self) -> String {
        let done = if self.history { "archive" } else { "delete" };
        format!(
            "read {BATCH} at a time, {} readers, {done} in batches, read_with_poll every {} ms",
            self.readers,
            POLL.as_millis()
        )
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        let jobs: Vec<Job> = jobs.map(job).collect();
        self.queue.send_batch(QUEUE, &jobs).await?;
        Ok(())
    }

    async fn single(&self, n: u64) -> Result<()> {
        self.queue.send(QUEUE, &job(n)).await?;
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Readers> {
        let stopping = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..self.readers {
            let reader = Reader {
                queue: self.queue.clone(),
                ledger: ledger.clone(),
                history: self.history,
                stopping: stopping.clone(),
            };
            tasks.spawn(reader.work());
        }
        Ok(Readers { tasks, stopping })
    }

    async fn stop(&self, mut readers: Readers) -> Result<()> {
        readers.stopping.store(true, Relaxed);
        while let Some(done) = readers.tasks.join_next().await {
            done??;
        }
        Ok(())
    }

    fn unfinished(&self) -> &'static str {
        "select count(*) from pgmq.q_bench"
    }

    async fn verify(&self, sql: &tokio_postgres::Client, jobs: u64) -> Result<()> {
        if !self.history {
            return Ok(());
        }
        let row = sql.query_one(HISTORY, &[]).await?;
        let (entries, distinct): (i64, i64) = (row.get(0), row.get(1));
        ensure!(
            entries == distinct && u64::try_from(entries)? == jobs,
            "of {jobs} jobs {distinct} are in the archive, in {entries} entries"
        );
        Ok(())
    }
}

struct Reader {
    queue: PGMQueueExt,
    ledger: Arc<Ledger>,
    history: bool,
    stopping: Arc<AtomicBool>,
}

impl Reader {
    async fn work(self) -> Result<()> {
        while !self.stopping.load(Relaxed) {
            let messages: Vec<Message<Job>> = self
                .queue
                .read_batch_with_poll(
                    QUEUE,
                    LEASE_SECONDS,
                    BATCH.into(),
                    Some(Duration::from_secs(1)),
                    Some(POLL),
                )
                .await?;
            if messages.is_empty() {
                continue;
            }
            self.ledger
                .run_all(messages.iter().map(|m| m.message.0.n))
                .await;
            let ids: Vec<i64> = messages.iter().map(|m| m.msg_id).collect();
            if self.history {
                self.queue.archive_batch(QUEUE, &ids).await?;
            } else {
                self.queue.delete_batch(QUEUE, &ids).await?;
            }
        }
        Ok(())
    }
}

fn job(n: u64) -> Job {
    Job(Payload::of(n))
}

fn main() -> Result<()> {
    adapter::run::<Pgmq>()
}
