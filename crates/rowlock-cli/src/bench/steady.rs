//! Producers and a worker together: flat out, at a constant rate, and with handlers that take 10 ms, 1,000 at a time, 20,000 jobs at least. What those handlers
//! allow is measured with bare sleeps; a queue that cannot keep up with them has a smaller share of that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rowlock::{Worker, WorkerBuilder};

use super::Session;
use super::figures::Figures;
use super::ledger::Ledger;
use super::meter::Meter;
use super::offered;
use super::patience;
use super::report::Line;
use super::stage::{KIND, Stage, counting, number};

/// Producers at once, each of which waits for its batch to be durable.
const PRODUCERS: usize = 4;
const BATCH: u64 = 100;
const HANDLER: Duration = Duration::from_millis(10);
const AT_ONCE: usize = 1000;
/// So many for each handler at once, else it would be measured how they begin and end.
const SLOW_JOBS_MIN: u64 = 20 * AT_ONCE as u64;

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let (stage, options) = (session.stage, session.options);
    let jobs = options.jobs.next_multiple_of(BATCH);

    stage.clear(options.history).await?;
    let flat = together(stage, jobs, options.history, counting).await?;
    session
        .report
        .add(Line::new("steady", "flat out", jobs, flat));

    stage.clear(options.history).await?;
    let offered = offered::offer(stage, options.rate, options.duration, options.history).await?;
    let case = format!("at {} a second", options.rate);
    let mut line = Line::new("steady", case, offered.jobs, offered.figures);
    line.windows = offered.windows;
    session.report.add(line);

    stage.clear(options.history).await?;
    let allowed = handlers_allow().await;
    let jobs = jobs.max(SLOW_JOBS_MIN);
    let mut slow = together(stage, jobs, options.history, sleeping).await?;
    let rate = slow.get("per_second").copied().unwrap_or(0.0);
    slow.insert("handlers_allow_per_second", allowed);
    slow.insert("of_possible", rate / allowed);
    let case = "10 ms handlers, 1,000 at a time";
    session.report.add(Line::new("steady", case, jobs, slow));
    Ok(())
}

/// Producers and one worker, from the first enqueue to the last durable completion.
async fn together(
    stage: &Stage,
    jobs: u64,
    history: bool,
    handle: impl Fn(WorkerBuilder, &Arc<Ledger>) -> WorkerBuilder,
) -> anyhow::Result<Figures> {
    let ledger = Arc::new(Ledger::new(jobs));
    let worker: Worker = handle(stage.builder()?, &ledger).build()?;
    let worker = worker.start().await?;
    let _bar = super::watch::bar("producing and working", jobs, {
        let worker = worker.clone();
        move || worker.handled()
    });
    let meter = Meter::read(stage).await?;
    let next = AtomicU64::new(0);
    let produce = async || {
        loop {
            let n = next.fetch_add(BATCH, Relaxed);
            if n >= jobs {
                return Ok::<_, rowlock::Error>(());
            }
            let batch = (n..n + BATCH).map(|n| stage.job(n));
            stage.client.enqueue_all(batch).await?;
        }
    };
    let all = (0..PRODUCERS).map(|_| produce());
    futures_util::future::try_join_all(all).await?;
    patience::drained(&worker).await?;
    let figures = meter.cost(stage, jobs, stage.answered()?).await?;
    let stopped = worker.shutdown().await;
    stage.check(&ledger, jobs, stopped, history).await?;
    Ok(figures)
}

/// A worker whose handlers sleep.
fn sleeping(worker: WorkerBuilder, ledger: &Arc<Ledger>) -> WorkerBuilder {
    let ledger = ledger.clone();
    let handle = move |job: rowlock::RawJob, _| {
        ledger.ran(number(&job.payload));
        tokio::time::sleep(HANDLER)
    };
    worker.concurrency(AT_ONCE).handle_kind(KIND, handle)
}

/// How many such sleeps this machine gets done in a second, as many at once: timers are coarse, and that is not the queue's doing.
async fn handlers_allow() -> f64 {
    const EACH: u32 = 30;
    let sleeper = |_| {
        tokio::spawn(async {
            // The first begins while others are still being made.
            tokio::time::sleep(HANDLER).await;
            let began = Instant::now();
            for _ in 0..EACH {
                tokio::time::sleep(HANDLER).await;
            }
            f64::from(EACH) / began.elapsed().as_secs_f64()
        })
    };
    let rates = futures_util::future::join_all((0..AT_ONCE).map(sleeper)).await;
    rates.into_iter().flatten().sum()
}
