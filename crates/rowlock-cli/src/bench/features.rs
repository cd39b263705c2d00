//! What each optional feature costs: the whole life of a job with it, in batches of 100 in and by one worker out, against one without.

use std::sync::Arc;
use std::time::Duration;

use rowlock::{Backoff, BoxError, Ctx, Item, Job, NewJob, Outcome, RawJob, WorkerBuilder};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::Session;
use super::figures::Figures;
use super::ledger::Ledger;
use super::meter::Meter;
use super::report::Line;
use super::stage::{KIND, Stage, counting, number};

/// Some features take a transaction for each job.
const JOBS_MAX: u64 = 10_000;
const BATCH: u64 = 100;
/// Connections of handlers that finish jobs in transactions of their own.
const CONNECTIONS: usize = 8;
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A feature: how it changes the jobs, and how they are handled.
#[derive(Clone, Copy)]
struct Feature {
    name: &'static str,
    history: bool,
    job: fn(NewJob, u64) -> NewJob,
    handler: Handler,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handler {
    Plain,
    Typed,
    Batch,
    Result,
    Once,
    InTx,
}

/// The job as a Rust type.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "noop")]
struct Noop {
    n: u64,
}

const fn option(name: &'static str, job: fn(NewJob, u64) -> NewJob) -> Feature {
    Feature {
        name,
        history: false,
        job,
        handler: Handler::Plain,
    }
}

const fn handled(name: &'static str, handler: Handler) -> Feature {
    Feature {
        name,
        history: false,
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

const PLAIN: Feature = handled("plain", Handler::Plain);

const FEATURES: [Feature; 14] = [
    with_history(handled("history", Handler::Plain)),
    with_history(handled("history and a result", Handler::Result)),
    option("priority, 9 of them", |job, n| {
        job.priority((n % 9) as i32 - 4)
    }),
    option("unique key", |job, n| job.unique(format!("key-{n}"))),
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
    handled("once, for each job", Handler::Once),
    handled("completed in the handler's transaction", Handler::InTx),
];

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let stage = session.stage;
    let jobs = session.options.jobs.min(JOBS_MAX);
    let mut plain = None;
    for feature in std::iter::once(&PLAIN).chain(&FEATURES) {
        stage.clear(feature.history).await?;
        let mut figures = measure(stage, jobs, feature).await?;
        let rate = figures.get("per_second").copied().unwrap_or(0.0);
        figures.insert("of_plain", rate / *plain.get_or_insert(rate));
        session
            .report
            .add(Line::new("features", feature.name, jobs, figures));
    }
    Ok(())
}

/// From the first enqueue to the last completion, one after the other.
async fn measure(stage: &Stage, jobs: u64, feature: &Feature) -> anyhow::Result<Figures> {
    let ledger = Arc::new(Ledger::new(jobs));
    let worker = feature.worker(stage, &ledger).await?.build()?;
    let meter = Meter::read(stage).await?;
    let mut n = 0;
    while n < jobs {
        let end = jobs.min(n + BATCH);
        let batch = (n..end).map(|n| (feature.job)(stage.job(n), n));
        stage.client.enqueue_all(batch).await?;
        n = end;
    }
    let worker = worker.start().await?;
    let bar = super::watch::bar(feature.name, jobs, {
        let worker = worker.clone();
        move || worker.handled()
    });
    worker.drained().await;
    drop(bar);
    let figures = meter.cost(stage, jobs, stage.answered()?).await?;
    let stopped = worker.shutdown().await;
    stage.check(&ledger, jobs, stopped, feature.history).await?;
    Ok(figures)
}

impl Feature {
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
