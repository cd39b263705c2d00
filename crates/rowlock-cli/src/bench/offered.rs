//! Jobs offered at a constant rate, whatever becomes of them: an enqueue that takes long does not hold back the next, so that a slow moment is
//! measured by every job that falls into it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::cpu;
use super::figures::Figures;
use super::ledger::Ledger;
use super::meter::Meter;
use super::report::Window;
use super::stage::Stage;
use super::waits::{Until, Waits};

/// How often jobs are offered, all that have come due since in one enqueue.
const TICK: Duration = Duration::from_millis(5);
/// Into how many stretches the time is divided.
const WINDOWS: u32 = 10;

/// What came of it.
pub(super) struct Offered {
    pub(super) jobs: u64,
    pub(super) figures: Figures,
    pub(super) windows: Vec<Window>,
}

/// CPU of Postgres at a moment.
type Reading = (Instant, Option<u64>);

/// Offers jobs to one worker with default settings, and checks that each ran exactly once.
pub(super) async fn offer(
    stage: &Stage,
    rate: u64,
    duration: Duration,
    history: bool,
) -> anyhow::Result<Offered> {
    let jobs = ((rate as f64 * duration.as_secs_f64()) as u64).max(1);
    let ledger = Arc::new(Ledger::timed(jobs));
    let worker = stage.worker(&ledger)?.start().await?;
    let _bar = super::watch::bar("at a constant rate", jobs, {
        let worker = worker.clone();
        move || worker.handled()
    });
    let meter = Meter::read(stage).await?;
    let readings = tokio::spawn(read_cpu(stage.backend(), duration / WINDOWS));
    let produced = produce(stage, &ledger, jobs, rate).await?;
    let readings = readings.await?;
    worker.drained().await;
    let mut figures = meter.cost(stage, jobs, stage.answered()?).await?;
    let stopped = worker.shutdown().await;
    stage.check(&ledger, jobs, stopped, history).await?;

    let wait = |n: u64| {
        let enqueued = produced.enqueued_us[usize::try_from(n).ok()?];
        Some(ledger.started_us(n)?.saturating_sub(enqueued))
    };
    let waits: Waits = (0..jobs).filter_map(wait).collect();
    figures.extend(waits.figures(Until::Start));
    figures.insert("offered_per_second", rate as f64);
    figures.insert("late_max_ms", produced.late_max.as_secs_f64() * 1000.0);
    Ok(Offered {
        jobs,
        figures,
        windows: windows(jobs, duration, &readings, wait),
    })
}

struct Produced {
    /// When each job was handed over.
    enqueued_us: Vec<u64>,
    /// How late the producer itself was at most.
    late_max: Duration,
}

async fn produce(stage: &Stage, ledger: &Ledger, jobs: u64, rate: u64) -> anyhow::Result<Produced> {
    let mut produced = Produced {
        enqueued_us: Vec::with_capacity(usize::try_from(jobs)?),
        late_max: Duration::ZERO,
    };
    let mut under_way = JoinSet::new();
    let began = tokio::time::Instant::now();
    let due_at = |n: u64| Duration::from_secs_f64(n as f64 / rate as f64);
    let mut next_tick = Duration::ZERO;
    let mut n = 0;
    while n < jobs {
        next_tick = (next_tick + TICK).max(due_at(n));
        tokio::time::sleep_until(began + next_tick).await;
        let now = began.elapsed();
        produced.late_max = produced.late_max.max(now.saturating_sub(next_tick));
        let due = ((now.as_secs_f64() * rate as f64) as u64).clamp(n + 1, jobs);
        let batch: Vec<_> = (n..due).map(|n| stage.job(n)).collect();
        let client = stage.client.clone();
        produced
            .enqueued_us
            .resize(usize::try_from(due)?, ledger.now_us());
        under_way.spawn(async move { client.enqueue_all(batch).await.map(drop) });
        while let Some(done) = under_way.try_join_next() {
            done??;
        }
        n = due;
    }
    while let Some(done) = under_way.join_next().await {
        done??;
    }
    Ok(produced)
}

/// Reads the CPU of Postgres at the beginning and at the end of each stretch.
async fn read_cpu(backend: Option<i32>, every: Duration) -> Vec<Reading> {
    let mut readings = Vec::new();
    let mut tick = tokio::time::interval(every.max(Duration::from_millis(1)));
    for _ in 0..=WINDOWS {
        tick.tick().await;
        // It looks through all processes, which takes a moment.
        let reading = tokio::task::spawn_blocking(move || backend.and_then(cpu::postgres_us));
        readings.push((Instant::now(), reading.await.ok().flatten()));
    }
    readings
}

/// The jobs that were offered in each stretch, and what Postgres used meanwhile.
fn windows(
    jobs: u64,
    duration: Duration,
    readings: &[Reading],
    wait: impl Fn(u64) -> Option<u64>,
) -> Vec<Window> {
    let count = u64::from(WINDOWS);
    let window = |n: u64| {
        let (from, to) = (jobs * n / count, jobs * (n + 1) / count);
        let waits: Waits = (from..to).filter_map(&wait).collect();
        let mut figures = waits.figures(Until::Start);
        let at = |n: u64| readings.get(usize::try_from(n).ok()?);
        if let Some(((_, Some(begin)), (_, Some(end)))) = at(n).zip(at(n + 1)) {
            let each = end.saturating_sub(*begin) as f64 / (to - from).max(1) as f64;
            figures.insert("postgres_cpu_us", each);
        }
        Window {
            from_s: duration.as_secs_f64() * n as f64 / count as f64,
            to_s: duration.as_secs_f64() * (n + 1) as f64 / count as f64,
            figures,
        }
    };
    (0..count).map(window).collect()
}
