//! graphile_worker in Rust with a local queue and batched completion, as its guides recommend for throughput. Beside producers it waits for a moment
//! after a fetch that was not full: else it fetches a few jobs at a time, and does a fifth as many or less.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use adapter::{Config, Ledger, Payload, Peer, Result};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RefetchDelayConfig, TaskHandler, Worker,
    WorkerContext, WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinHandle;

const CONCURRENCY: usize = 24;
const LOCAL_QUEUE: usize = 500;
const LOCAL_QUEUES: usize = 2;
const COMPLETE_DELAY: Duration = Duration::from_millis(1);
const REFETCH_DELAY: Duration = Duration::from_millis(60);

#[derive(Clone, Serialize, Deserialize)]
struct Noop(Payload);

#[derive(Clone)]
struct Shared(Arc<Ledger>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, ctx: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(shared) = ctx.get_ext::<Shared>() {
            shared.0.run(self.0.n).await;
        }
        Ok::<(), String>(())
    }
}

struct Graphile {
    pool: PgPool,
    utils: WorkerUtils,
    concurrency: usize,
    /// Whether producers and the worker are at it together.
    steady: bool,
}

struct Running {
    worker: Arc<Worker>,
    task: JoinHandle<Result<()>>,
}

impl Peer for Graphile {
    type Worker = Running;

    async fn set_up(config: &Config) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .min_connections(config.enqueuers())
            .max_connections(config.enqueuers() + 10)
            .test_before_acquire(false)
            .connect(&config.url)
            .await?;
        adapter::open(config.enqueuers(), || pool.acquire()).await?;
        let utils = WorkerUtils::new(pool.clone(), "graphile_worker");
        utils.migrate().await?;
        let steady = config.scenario == "steady";
        Ok(Self {
            pool,
            utils,
            concurrency: config.at_once().unwrap_or(CONCURRENCY),
            steady,
        })
    }

    fn settings(&self) -> String {
        format!(
            "concurrency {}, {LOCAL_QUEUES} local queues of {LOCAL_QUEUE}, completions batched for {} ms; beside producers a refetch delay of {} ms",
            self.concurrency,
            COMPLETE_DELAY.as_millis(),
            REFETCH_DELAY.as_millis()
        )
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        let spec = JobSpec::default();
        let jobs: Vec<(Noop, &JobSpec)> = jobs.map(|n| (noop(n), &spec)).collect();
        self.utils.add_jobs(&jobs).await?;
        Ok(())
    }

    async fn single(&self, n: u64) -> Result<()> {
        self.utils.add_job(noop(n), JobSpec::default()).await?;
        Ok(())
    }

    async fn start(&self, ledger: Arc<Ledger>) -> Result<Running> {
        let mut queue = LocalQueueConfig::default()
            .with_size(LOCAL_QUEUE)
            .with_queue_count(LOCAL_QUEUES);
        if self.steady {
            let delay = RefetchDelayConfig::default()
                .with_duration(REFETCH_DELAY)
                .with_threshold(LOCAL_QUEUE - 1);
            queue = queue.with_refetch_delay(delay);
        }
        let worker = WorkerOptions::default()
            .pg_pool(self.pool.clone())
            .schema("graphile_worker")
            .concurrency(self.concurrency)
            .local_queue(queue)
            .complete_job_batch_delay(COMPLETE_DELAY)
            .listen_os_shutdown_signals(false)
            .add_extension(Shared(ledger))
            .define_job::<Noop>()
            .init()
            .await?;
        let worker = Arc::new(worker);
        let running = worker.clone();
        let task = tokio::spawn(async move { Ok(running.run().await?) });
        Ok(Running { worker, task })
    }

    async fn stop(&self, running: Running) -> Result<()> {
        running.worker.request_shutdown();
        running.task.await?
    }

    fn unfinished(&self) -> &'static str {
        "select count(*) from graphile_worker._private_jobs"
    }
}

fn noop(n: u64) -> Noop {
    Noop(Payload::of(n))
}

fn main() -> Result<()> {
    adapter::run::<Graphile>()
}
