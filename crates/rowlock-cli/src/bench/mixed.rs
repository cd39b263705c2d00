//! A bit of everything: 100 queues, all priorities, 10 kB payloads, 10 ms handlers, delayed jobs, and jobs that fail once; producers and a worker together.
//!
//! The rate is that of all jobs until the last began that nothing held back, and the waits are of those: what is delayed or fails waits on purpose. CPU and
//! write-ahead log are of the whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::try_join_all;
use rowlock::{Backoff, Client, Ctx, NewJob, Outcome, Queue, RawJob, Worker};

use super::Session;
use super::figures::Figures;
use super::ledger::Ledger;
use super::meter::Meter;
use super::patience::{self, PATIENCE};
use super::report::Line;
use super::stage::{KIND, SCHEMA, Stage, job_of, noise, number, payload};
use super::waits::{Until, Waits};

const JOBS_MAX: u64 = 20_000;
const QUEUES: u64 = 100;
const PAYLOAD_BYTES: usize = 10_000;
const HANDLER: Duration = Duration::from_millis(10);
const AT_ONCE: usize = 1000;
/// Producers at once, each of which waits for its batch to be durable.
const PRODUCERS: usize = 4;
const BATCH: u64 = 100;
/// One in so many is delayed, by this much; one in so many fails the first time.
const DELAYED: u64 = 10;
const DELAY: Duration = Duration::from_secs(2);
const FAILING: u64 = 20;
const AGAIN_AFTER: Duration = Duration::from_millis(200);

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let (stage, history) = (session.stage, session.options.history);
    let jobs = session.options.jobs.min(JOBS_MAX);
    stage.clear(history).await?;
    make_queues(stage, history).await?;
    let tally = Arc::new(Tally::new(jobs));
    let worker = worker(stage, &tally)?.start().await?;
    let bar = super::watch::bar("a mix", jobs, {
        let tally = tally.clone();
        move || tally.done.load(Relaxed)
    });
    let meter = Meter::read(stage).await?;
    let enqueued = enqueue(stage, &tally, jobs).await?;
    all_done(&tally, jobs).await?;
    patience::drained(&worker).await?;
    let mut figures = meter.cost(stage, jobs, stage.answered()?).await?;
    drop(bar);
    let stopped = worker.shutdown().await;
    stage.check(&tally.ledger, jobs, stopped, history).await?;
    tally.check(jobs, &enqueued)?;
    figures.extend(tally.figures(jobs, &enqueued, tally.ledger.us_at(meter.at)));
    let case = "4 producers, 100 queues, 9 priorities, delays, failures, 10 kB, 10 ms";
    session.report.add(Line::new("mixed", case, jobs, figures));
    Ok(())
}

async fn all_done(tally: &Arc<Tally>, jobs: u64) -> anyhow::Result<()> {
    let done = async {
        while tally.done.load(Relaxed) < jobs {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    patience::while_it_goes_on(done, || tally.done.load(Relaxed), PATIENCE).await
}

/// What happened.
struct Tally {
    /// The successful runs.
    ledger: Ledger,
    done: AtomicU64,
    failed: AtomicU64,
    /// Runs in a queue or with a priority that the job was not enqueued with.
    astray: AtomicU64,
}

impl Tally {
    fn new(jobs: u64) -> Self {
        Self {
            ledger: Ledger::timed(jobs),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            astray: AtomicU64::new(0),
        }
    }

    /// What an attempt comes to; it is written down when it begins.
    fn attempt(&self, n: u64, ctx: &Ctx) -> Outcome {
        if ctx.queue() != queue(n) || i32::from(ctx.priority()) != priority(n) {
            self.astray.fetch_add(1, Relaxed);
        }
        if fails(n) && ctx.failures() == 0 {
            self.failed.fetch_add(1, Relaxed);
            return Outcome::retry("the first time it fails");
        }
        self.ledger.ran(n);
        Outcome::Done(None)
    }

    /// Each failure happened once, nobody started before its time, and everybody was where they belong. The ledger has the rest.
    fn check(&self, jobs: u64, enqueued: &Enqueued) -> anyhow::Result<()> {
        let wanted = (0..jobs).filter(|n| fails(*n)).count() as u64;
        let failed = self.failed.load(Relaxed);
        let astray = self.astray.load(Relaxed);
        let delay_us = u64::try_from(DELAY.as_micros())?;
        let early = |n: &u64| {
            let started = self.ledger.started_us(*n);
            started.is_some_and(|at| at < enqueued.us(*n) + delay_us)
        };
        let early = (0..jobs).filter(|n| delayed(*n)).filter(early).count();
        anyhow::ensure!(
            failed == wanted && astray == 0 && early == 0,
            "{failed} attempts failed instead of {wanted}, {astray} ran where they do not belong, {early} before their time"
        );
        Ok(())
    }

    /// The waits of the jobs that nothing held back, and the rate at which jobs were handled until the last of those began: what comes after it was
    /// waited for on purpose.
    fn figures(&self, jobs: u64, enqueued: &Enqueued, began_us: u64) -> Figures {
        let started = |n: u64| self.ledger.started_us(n);
        let prompt = || (0..jobs).filter(|n| !delayed(*n) && !fails(*n));
        let wait = |n| Some(started(n)?.saturating_sub(enqueued.us(n)));
        let waits: Waits = prompt().filter_map(wait).collect();
        let mut figures = waits.figures(Until::Start);
        let end_us = prompt().filter_map(started).max().unwrap_or(began_us);
        let handled = (0..jobs).filter_map(started).filter(|at| *at <= end_us);
        let seconds = end_us.saturating_sub(began_us) as f64 / 1e6;
        figures.insert("seconds", seconds);
        figures.insert("per_second", handled.count() as f64 / seconds.max(1e-9));
        figures
    }
}

fn queue(n: u64) -> String {
    format!("bench-{}", n % QUEUES)
}

fn priority(n: u64) -> i32 {
    (n / QUEUES % 9) as i32 - 4
}

fn fails(n: u64) -> bool {
    n % FAILING == 7
}

fn delayed(n: u64) -> bool {
    n % DELAYED == 3
}

fn job(n: u64, padding: &str) -> NewJob {
    let job = job_of(payload(n, padding))
        .queue(queue(n))
        .priority(priority(n));
    if delayed(n) { job.delay(DELAY) } else { job }
}

async fn make_queues(stage: &Stage, history: bool) -> anyhow::Result<()> {
    let backoff = serde_json::to_string(&Backoff::fixed(AGAIN_AFTER))?;
    let retention = if history { "1 day" } else { "0" };
    let sql = format!(
        "select {SCHEMA}.set_queue('bench-' || n, '{{\"retention\": \"{retention}\", \"backoff\": {backoff}}}') from generate_series(0, {}) n",
        QUEUES - 1
    );
    Ok(stage.sql.batch_execute(&sql).await?)
}

fn worker(stage: &Stage, tally: &Arc<Tally>) -> anyhow::Result<Worker> {
    let client = Client::builder()
        .schema(SCHEMA)
        .lazy(stage.client.conninfo().clone())?;
    let tally = tally.clone();
    let handle = move |job: RawJob, ctx: Ctx| {
        let tally = tally.clone();
        async move {
            let outcome = tally.attempt(number(&job.payload), &ctx);
            tokio::time::sleep(HANDLER).await;
            if matches!(outcome, Outcome::Done(_)) {
                tally.done.fetch_add(1, Relaxed);
            }
            outcome
        }
    };
    let worker = Worker::builder(client)
        .queue(Queue::matching("bench-*"))
        .concurrency(AT_ONCE)
        .handle_kind(KIND, handle);
    Ok(worker.build()?)
}

/// When each batch was handed over, by its number.
struct Enqueued(Vec<AtomicU64>);

impl Enqueued {
    fn us(&self, n: u64) -> u64 {
        let batch = usize::try_from(n / BATCH).ok();
        batch.map_or(0, |batch| self.0[batch].load(Relaxed))
    }
}

/// Enqueues all jobs, by several producers at once.
async fn enqueue(stage: &Stage, tally: &Tally, jobs: u64) -> anyhow::Result<Enqueued> {
    let padding = noise(PAYLOAD_BYTES);
    let enqueued = Enqueued(
        (0..jobs.div_ceil(BATCH))
            .map(|_| AtomicU64::new(0))
            .collect(),
    );
    let next = AtomicUsize::new(0);
    let produce = async || {
        loop {
            let batch = next.fetch_add(1, Relaxed);
            let Some(at) = enqueued.0.get(batch) else {
                return Ok::<_, rowlock::Error>(());
            };
            let n = batch as u64 * BATCH;
            let all: Vec<_> = (n..jobs.min(n + BATCH)).map(|n| job(n, &padding)).collect();
            at.store(tally.ledger.now_us(), Relaxed);
            stage.client.enqueue_all(all).await?;
        }
    };
    try_join_all((0..PRODUCERS).map(|_| produce())).await?;
    Ok(enqueued)
}
