//! A bit of everything: 100 queues, all priorities, 10 kB payloads, 10 ms handlers, delayed jobs, and jobs that fail once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rowlock::{Backoff, Client, Ctx, NewJob, Outcome, Queue, RawJob, Worker};

use super::Session;
use super::ledger::Ledger;
use super::meter::Meter;
use super::report::Line;
use super::stage::{KIND, SCHEMA, Stage, job_of, noise, number, payload};

const JOBS_MAX: u64 = 20_000;
const QUEUES: u64 = 100;
const PAYLOAD_BYTES: usize = 10_000;
const HANDLER: Duration = Duration::from_millis(10);
const AT_ONCE: usize = 1000;
const BATCH: u64 = 100;
/// One in so many is delayed, by this much; one in so many fails the first time.
const DELAYED: u64 = 10;
const DELAY: Duration = Duration::from_secs(2);
const FAILING: u64 = 20;
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// After the last job was enqueued nothing waits for longer, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(300);

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
    let delayed_us = enqueue(stage, &tally, jobs).await?;
    let until = Instant::now() + PATIENCE;
    while tally.done.load(Relaxed) < jobs {
        anyhow::ensure!(
            Instant::now() < until,
            "only {} of {jobs} jobs are done {PATIENCE:?} after the last was enqueued",
            tally.done.load(Relaxed)
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    worker.drained().await;
    let figures = meter.cost(stage, jobs, stage.answered()?).await?;
    drop(bar);
    let stopped = worker.shutdown().await;
    stage.check(&tally.ledger, jobs, stopped, history).await?;
    tally.check(jobs, &delayed_us)?;
    let case = "100 queues, 9 priorities, delays, failures, 10 kB, 10 ms";
    session.report.add(Line::new("mixed", case, jobs, figures));
    Ok(())
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

    fn attempt(&self, n: u64, ctx: &Ctx) -> Outcome {
        if ctx.queue() != queue(n) || i32::from(ctx.priority()) != priority(n) {
            self.astray.fetch_add(1, Relaxed);
        }
        if fails(n) && ctx.failures() == 0 {
            self.failed.fetch_add(1, Relaxed);
            return Outcome::retry("the first time it fails");
        }
        self.ledger.ran(n);
        self.done.fetch_add(1, Relaxed);
        Outcome::Done(None)
    }

    /// Each failure happened once, nobody started before its time, and everybody was where they belong. The ledger has the rest.
    fn check(&self, jobs: u64, delayed_us: &[(u64, u64)]) -> anyhow::Result<()> {
        let wanted = (0..jobs).filter(|n| fails(*n)).count() as u64;
        let failed = self.failed.load(Relaxed);
        let astray = self.astray.load(Relaxed);
        let delay_us = u64::try_from(DELAY.as_micros())?;
        let early = |(n, enqueued): &&(u64, u64)| {
            self.ledger
                .started_us(*n)
                .is_some_and(|at| at < enqueued + delay_us)
        };
        let early = delayed_us.iter().filter(early).count();
        anyhow::ensure!(
            failed == wanted && astray == 0 && early == 0,
            "{failed} attempts failed instead of {wanted}, {astray} ran where they do not belong, {early} before their time"
        );
        Ok(())
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
            tokio::time::sleep(HANDLER).await;
            tally.attempt(number(&job.payload), &ctx)
        }
    };
    let worker = Worker::builder(client)
        .queue(Queue::matching("bench-*"))
        .concurrency(AT_ONCE)
        .handle_kind(KIND, handle);
    Ok(worker.build()?)
}

/// Enqueues all jobs, and tells of the delayed ones when that was.
async fn enqueue(stage: &Stage, tally: &Tally, jobs: u64) -> anyhow::Result<Vec<(u64, u64)>> {
    let padding = noise(PAYLOAD_BYTES);
    let mut delayed_us = Vec::new();
    let mut n = 0;
    while n < jobs {
        let end = jobs.min(n + BATCH);
        let now = tally.ledger.now_us();
        delayed_us.extend((n..end).filter(|n| delayed(*n)).map(|n| (n, now)));
        let batch = (n..end).map(|n| job(n, &padding));
        stage.client.enqueue_all(batch).await?;
        n = end;
    }
    Ok(delayed_us)
}
