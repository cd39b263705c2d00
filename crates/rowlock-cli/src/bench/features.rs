//! What each optional feature costs: the whole life of a job with it, in by four producers and out by one worker, against one without.
//!
//! Batches are large, so that few commits wait for the disk: how long those take would say more than the feature. CPU of Postgres and write-ahead log for each job
//! are compared too, and do not depend on that. A first run without features is in none of the figures: it is measured cold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::try_join_all;
use rowlock::{Backoff, BoxError, Ctx, Item, Job, NewJob, Order, Outcome, RawJob, WorkerBuilder};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::Session;
use super::figures::Figures;
use super::ledger::Ledger;
use super::meter::Meter;
use super::patience;
use super::report::{Line, Ratio};
use super::stage::{KIND, SCHEMA, Stage, counting, number};

const JOBS_MAX: u64 = 40_000;
/// Where each job takes a transaction of its own.
const SLOW_JOBS_MAX: u64 = 10_000;
const PRODUCERS: usize = 4;
const BATCH: u64 = 500;
/// Queues that are served in strict order.
const QUEUES: [&str; 3] = ["bench-a", "bench-b", "bench-c"];
/// Connections of handlers that finish jobs in transactions of their own.
const CONNECTIONS: usize = 8;
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A feature: how it changes the jobs, and how they are handled.
#[derive(Clone, Copy)]
struct Feature {
    name: &'static str,
    history: bool,
    /// How often each job is enqueued; all but the first are duplicates.
    times: u64,
    job: fn(NewJob, u64) -> NewJob,
    handler: Handler,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handler {
    Plain,
    Typed,
    Batch,
    Result,
    Progress,
    Once,
    InTx,
    Blocking,
    /// Several queues, in strict order.
    Strict,
}

/// The job as a Rust type.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "noop")]
struct Noop {
    n: u64,
}

const OF_PLAIN: &[Ratio] = &[
    Ratio::new("of_plain", "per_second"),
    Ratio::new("postgres_cpu_of_plain", "postgres_cpu_us"),
    Ratio::new("wal_of_plain", "wal_bytes"),
];

const fn option(name: &'static str, job: fn(NewJob, u64) -> NewJob) -> Feature {
    Feature {
        name,
        history: false,
        times: 1,
        job,
        handler: Handler::Plain,
    }
}

const fn handled(name: &'static str, handler: Handler) -> Feature {
    Feature {
        name,
        history: false,
        times: 1,
        job: |job, _| job,
        handler,
    }
}

const fn with_history(feature: Feature) -> Feature {
    Feature {
        history: true,
        ..feature
    }
}

const fn twice(feature: Feature) -> Feature {
    Feature {
        times: 2,
        ..feature
    }
}

const PLAIN: Feature = handled("plain", Handler::Plain);

const ALL: [Feature; 20] = [
    PLAIN,
    with_history(handled("history", Handler::Plain)),
    with_history(handled("history and a result", Handler::Result)),
    option("priority, 9 of them", |job, n| {
        job.priority((n % 9) as i32 - 4)
    }),
    option("delay, over before it is worked off", |job, _| {
        job.delay(Duration::from_millis(1))
    }),
    option("unique key", unique),
    twice(option("unique key, each enqueued twice", unique)),
    option("3 tags", |job, _| job.tag("a").tag("bill").tag("eu-west")),
    option("metadata", |job, n| job.metadata("request", n)),
    option("expiry", |job, _| {
        job.expires_in(Duration::from_secs(86_400))
    }),
    option("timeout", |job, _| job.timeout(Duration::from_secs(60))),
    option("backoff and attempts of its own", |job, _| {
        job.backoff(Backoff::fixed(Duration::from_secs(1)))
            .max_attempts(3)
    }),
    option("trace", |job, _| job.trace(TRACE)),
    handled("a typed handler", Handler::Typed),
    handled("a batch handler, 100", Handler::Batch),
    handled("a blocking handler", Handler::Blocking),
    Feature {
        job: |job, n| job.queue(QUEUES[(n % 3) as usize]),
        ..handled("3 queues in strict order", Handler::Strict)
    },
    handled("progress, once for each job", Handler::Progress),
    handled("once, for each job", Handler::Once),
    handled("completed in the handler's transaction", Handler::InTx),
];

fn unique(job: NewJob, n: u64) -> NewJob {
    job.unique(format!("key-{n}"))
}

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let (stage, jobs) = (session.stage, session.options.jobs);
    measure(stage, PLAIN.jobs(jobs), &PLAIN).await?;
    for feature in session.in_turn(&ALL) {
        let jobs = feature.jobs(jobs);
        let figures = measure(stage, jobs, &feature).await?;
        let line = Line::new("features", feature.name, jobs, figures);
        session.report.add(line.against(PLAIN.name, OF_PLAIN));
    }
    Ok(())
}

/// From the first enqueue to the last completion, one after the other.
async fn measure(stage: &Stage, jobs: u64, feature: &Feature) -> anyhow::Result<Figures> {
    stage.clear(feature.history).await?;
    if feature.handler == Handler::Strict {
        make_queues(stage).await?;
    }
    let ledger = Arc::new(Ledger::new(jobs));
    let worker = feature.worker(stage, &ledger).await?.build()?;
    let meter = Meter::read(stage).await?;
    for time in 0..feature.times {
        enqueue(stage, jobs, feature, time > 0).await?;
    }
    let worker = worker.start().await?;
    let bar = super::watch::bar(feature.name, jobs, {
        let worker = worker.clone();
        move || worker.handled()
    });
    patience::drained(&worker).await?;
    drop(bar);
    let figures = meter.cost(stage, jobs, stage.answered()?).await?;
    let stopped = worker.shutdown().await;
    stage.check(&ledger, jobs, stopped, feature.history).await?;
    Ok(figures)
}

async fn make_queues(stage: &Stage) -> anyhow::Result<()> {
    for queue in QUEUES {
        let sql = format!("select {SCHEMA}.set_queue('{queue}', '{{\"retention\": \"0\"}}')");
        stage.sql.batch_execute(&sql).await?;
    }
    Ok(())
}

/// Enqueues all jobs. Fails unless all of them are new, or all were there already.
async fn enqueue(stage: &Stage, jobs: u64, feature: &Feature, again: bool) -> anyhow::Result<()> {
    let next = AtomicU64::new(0);
    let produce = async || {
        loop {
            let n = next.fetch_add(BATCH, Relaxed);
            if n >= jobs {
                return anyhow::Ok(());
            }
            let batch = (n..jobs.min(n + BATCH)).map(|n| (feature.job)(stage.job(n), n));
            let answers = stage.client.enqueue_all(batch).await?;
            anyhow::ensure!(
                answers.iter().all(|answer| answer.duplicate == again),
                "jobs were taken for duplicates, or duplicates for jobs"
            );
        }
    };
    try_join_all((0..PRODUCERS).map(|_| produce())).await?;
    Ok(())
}

impl Feature {
    /// How many jobs are measured, of so many that were asked for.
    fn jobs(&self, asked: u64) -> u64 {
        asked.min(match self.handler {
            Handler::Progress | Handler::Once | Handler::InTx => SLOW_JOBS_MAX,
            _ => JOBS_MAX,
        })
    }

    async fn worker(&self, stage: &Stage, ledger: &Arc<Ledger>) -> anyhow::Result<WorkerBuilder> {
        let worker = stage.builder()?;
        let kept = ledger.clone();
        Ok(match self.handler {
            Handler::Plain => counting(worker, ledger),
            Handler::Typed => worker.handle(move |job: Noop| {
                kept.ran(job.n);
                async {}
            }),
            Handler::Batch => worker.handle_batch(100, move |items: Vec<Item<Noop>>| {
                items.iter().for_each(|item| kept.ran(item.job.n));
                async {}
            }),
            Handler::Result => worker.handle_kind(KIND, move |job: RawJob, _| {
                let n = number(&job.payload);
                kept.ran(n);
                async move { Outcome::done(&n) }
            }),
            Handler::Blocking => worker.handle_blocking(move |job: Noop| {
                kept.ran(job.n);
            }),
            Handler::Strict => {
                let all = QUEUES.into_iter().fold(worker, WorkerBuilder::queue);
                counting(all.order(Order::Strict), ledger)
            }
            Handler::Progress => worker.handle_kind(KIND, move |job: RawJob, ctx: Ctx| {
                let n = number(&job.payload);
                kept.ran(n);
                async move { ctx.progress(&n).await }
            }),
            Handler::Once => worker.handle_kind(KIND, move |job: RawJob, ctx: Ctx| {
                once(kept.clone(), job, ctx)
            }),
            Handler::InTx => {
                let connections = stage.others(CONNECTIONS).await?;
                let connections: Connections = connections.into_iter().map(Mutex::new).collect();
                worker.handle_kind(KIND, move |job: RawJob, ctx: Ctx| {
                    in_tx(kept.clone(), connections.clone(), job, ctx)
                })
            }
        })
    }
}

type Connections = Arc<[Mutex<tokio_postgres::Client>]>;

async fn once(ledger: Arc<Ledger>, job: RawJob, ctx: Ctx) -> rowlock::Result<()> {
    let n = number(&job.payload);
    let effect = || async {
        ledger.ran(n);
        Ok::<_, BoxError>(n)
    };
    ctx.once("effect", effect).await.map(drop)
}

async fn in_tx(
    ledger: Arc<Ledger>,
    connections: Connections,
    job: RawJob,
    ctx: Ctx,
) -> Result<(), BoxError> {
    let n = number(&job.payload);
    ledger.ran(n);
    let mut connection = connections[(n % CONNECTIONS as u64) as usize].lock().await;
    let mut tx = connection.transaction().await?;
    ctx.complete_in_tx(&mut tx).await?;
    Ok(tx.commit().await?)
}
