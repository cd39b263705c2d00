//! Rowlock with its default settings, by the library. Without history (retention 0) unless `HISTORY=1`. With `APART=1` each
//! producer has a client of its own, as so many processes would: one client puts enqueues that come together into one statement.

use std::ops::Range;
use std::sync::Arc;

use adapter::{Config, Ledger, Payload, Peer, Result};
use anyhow::{Context, ensure};
use rowlock::{Client, Job, NewJob, State, Worker, WorkerHandle};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

const QUEUE: &str = "bench";
const HISTORY: &str =
    "select count(*), count(distinct payload) from rowlock.finished where outcome = 'done'";

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "noop", queue = "bench")]
struct Noop(Payload);

struct Rowlock {
    client: Client,
    /// One for each producer, if they are to be apart.
    apart: Vec<Client>,
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
        open(&client, config.enqueuers()).await?;
        let retention = if config.history { "1 day" } else { "0" };
        let sql = adapter::connect(&config.url).await?;
        sql.batch_execute(&format!(
            "select rowlock.set_queue('{QUEUE}', '{{\"retention\": \"{retention}\"}}')"
        ))
        .await?;
        let mut apart = Vec::new();
        if config.apart {
            for _ in 0..config.producers {
                apart.push(Client::connect(&config.url).await?);
            }
        }
        Ok(Self {
            client,
            apart,
            url: config.url.clone(),
            history: config.history,
            concurrency: config.at_once(),
        })
    }

    fn settings(&self) -> String {
        let worker = match self.concurrency {
            Some(n) => format!("concurrency {n}"),
            None => "defaults".into(),
        };
        let history = if self.history { "kept" } else { "off" };
        let apart = match self.apart.is_empty() {
            true => "",
            false => ", a client for each producer",
        };
        format!("{worker}, history {history}{apart}")
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        self.client.bulk(jobs.map(job)).await?;
        Ok(())
    }

    async fn batch(&self, jobs: Range<u64>) -> Result<()> {
        self.client.enqueue_many(jobs.map(noop)).await?;
        Ok(())
    }

    async fn single(&self, n: u64) -> Result<()> {
        self.client.enqueue(noop(n)).await?;
        Ok(())
    }

    async fn single_of(&self, producer: u64, n: u64) -> Result<()> {
        if self.apart.is_empty() {
            return self.single(n).await;
        }
        let own = self.apart.get(usize::try_from(producer)?);
        let client = own.context("a producer has no client")?;
        client.enqueue(noop(n)).await?;
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<WorkerHandle> {
        // A client of its own, as a worker process would have.
        let client = Client::connect(&self.url).await?;
        let mut worker = Worker::builder(client).queue(QUEUE);
        if let Some(n) = self.concurrency {
            worker = worker.concurrency(n);
        }
        let worker = worker.state(ledger).handle(run);
        Ok(worker.build()?.start().await?)
    }

    async fn stop(&self, worker: WorkerHandle) -> Result<()> {
        worker.shutdown().await;
        Ok(())
    }

    fn unfinished(&self) -> &'static str {
        "select count(*) from rowlock.job"
    }

    async fn verify(&self, sql: &tokio_postgres::Client, jobs: u64) -> Result<()> {
        if !self.history {
            return Ok(());
        }
        let row = sql.query_one(HISTORY, &[]).await?;
        let (entries, distinct): (i64, i64) = (row.get(0), row.get(1));
        ensure!(
            entries == distinct && u64::try_from(entries)? == jobs,
            "of {jobs} jobs {distinct} are in the history, in {entries} entries"
        );
        Ok(())
    }
}

async fn run(Noop(payload): Noop, State(ledger): State<Arc<Ledger>>) {
    ledger.run(payload.n).await;
}

fn noop(n: u64) -> Noop {
    Noop(Payload::of(n))
}

fn job(n: u64) -> NewJob {
    NewJob::of(&noop(n)).unwrap_or_else(|e| unreachable!("a small object is fine: {e}"))
}

/// Opens so many of a client's connections, as far as it has them: a check takes one for as long as it lasts.
async fn open(client: &Client, connections: u32) -> Result<()> {
    let mut checks = JoinSet::new();
    for _ in 0..connections {
        let client = client.clone();
        checks.spawn(async move { client.check().await });
    }
    while let Some(done) = checks.join_next().await {
        done??;
    }
    Ok(())
}

fn main() -> Result<()> {
    adapter::run::<Rowlock>()
}
