//! Rowlock with its default settings, by the library. Without history (retention 0) unless `HISTORY=1`.

use std::ops::Range;
use std::sync::Arc;

use adapter::{Config, Ledger, Peer, Result};
use rowlock::{Client, NewJob, RawJob, Worker, WorkerHandle};
use serde_json::value::RawValue;

const QUEUE: &str = "bench";
const KIND: &str = "noop";

struct Rowlock {
    client: Client,
    url: String,
    history: bool,
    /// Jobs at once, where a scenario asks for a number; else the default.
    concurrency: Option<usize>,
}

impl Peer for Rowlock {
    type Worker = WorkerHandle;

    // COPY takes any number in one call.
    const BULK_CHUNK: u64 = 0;

    async fn set_up(config: &Config) -> Result<Self> {
        let client = Client::connect_and_migrate(&config.url).await?;
        let retention = if config.history { "1 day" } else { "0" };
        let sql = adapter::connect(&config.url).await?;
        sql.batch_execute(&format!(
            "select rowlock.set_queue('{QUEUE}', '{{\"retention\": \"{retention}\"}}')"
        ))
        .await?;
        Ok(Self {
            client,
            url: config.url.clone(),
            history: config.history,
            concurrency: (config.handler_ms > 0).then_some(config.workers),
        })
    }

    fn settings(&self) -> String {
        let history = if self.history { "kept" } else { "off" };
        match self.concurrency {
            Some(n) => format!("concurrency {n}, history {history}"),
            None => format!("defaults, history {history}"),
        }
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        self.client.bulk(jobs.map(job)).await?;
        Ok(())
    }

    async fn batch(&self, jobs: Range<u64>) -> Result<()> {
        self.client.enqueue_all(jobs.map(job)).await?;
        Ok(())
    }

    async fn single(&self, n: u64) -> Result<()> {
        self.client.enqueue_new(job(n)).await?;
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<WorkerHandle> {
        // A client of its own, as a worker process would have.
        let client = Client::connect(&self.url).await?;
        let mut worker = Worker::builder(client).queue(QUEUE);
        if let Some(n) = self.concurrency {
            worker = worker.concurrency(n);
        }
        let worker = worker.handle_kind(KIND, move |job: RawJob, _| {
            let ledger = ledger.clone();
            async move { ledger.run(number(&job.payload)).await }
        });
        Ok(worker.build()?.start().await?)
    }

    async fn stop(&self, worker: WorkerHandle) -> Result<()> {
        worker.shutdown().await;
        Ok(())
    }

    fn unfinished(&self) -> &'static str {
        "select count(*) from rowlock.job"
    }
}

fn job(n: u64) -> NewJob {
    let payload = RawValue::from_string(adapter::payload(n)).unwrap_or_default();
    NewJob::new(KIND, &payload)
        .unwrap_or_else(|e| unreachable!("a small object is fine: {e}"))
        .queue(QUEUE)
}

/// The number in `{"n": NUMBER}`.
fn number(payload: &str) -> u64 {
    let digits = payload.split_once(':').map_or("", |(_, rest)| rest.trim());
    digits.trim_end_matches('}').parse().unwrap_or(u64::MAX)
}

fn main() -> Result<()> {
    adapter::run::<Rowlock>()
}
