//! Jobs offered at a constant rate, whatever becomes of them. They come due in bunches, every 5 ms, and a wait counts from when a job was due: an
//! enqueue that takes long, a producer that is late and a queue that cannot keep up are measured by every job that falls into it.
//!
//! Before the time that counts jobs are offered at the same rate for a while (three seconds, or as long as that time if it is shorter): who is measured first would otherwise be
//! measured cold. Those jobs are checked as all others are, and are in none of the figures.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::cpu;
use super::figures::Figures;
use super::ledger::Ledger;
use super::meter::Meter;
use super::patience;
use super::report::Window;
use super::stage::Stage;
use super::waits::{Until, Waits};
use super::watch;
use crate::say;

/// How often jobs come due, all of them in one enqueue.
const TICK_US: u64 = 5_000;
const WARM_UP_MAX: Duration = Duration::from_secs(3);
/// Into how many stretches the time is divided.
const WINDOWS: u32 = 10;
/// Jobs in one enqueue at most, and enqueues under way: what comes due beyond that waits where it takes no memory.
const BATCH_MAX: u64 = 5_000;
const UNDER_WAY_MAX: usize = 200;
/// Who is handled so soon after the time is over was not late.
const GRACE: Duration = Duration::from_millis(100);
/// Below this share of it the rate was not kept.
const KEPT: f64 = 0.99;

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
    let plan = Plan::new(rate, duration);
    let ledger = Arc::new(Ledger::timed(plan.all()));
    let worker = stage.worker(&ledger)?.start().await?;
    let bar = watch::time("at a constant rate", plan.warm_up + duration);
    let began = Instant::now();
    let readings = tokio::spawn(read_cpu(stage.backend(), plan, began));
    let (late_max, meter) = tokio::try_join!(produce(stage, plan, began), async {
        tokio::time::sleep_until((began + plan.warm_up).into()).await;
        Meter::read(stage).await
    })?;
    let readings = readings.await?;
    patience::drained(&worker).await?;
    let mut figures = meter.cost(stage, plan.jobs, stage.answered()?).await?;
    let stopped = worker.shutdown().await;
    drop(bar);
    stage.check(&ledger, plan.all(), stopped, history).await?;

    let ran = Ran {
        plan,
        ledger: &ledger,
        began_us: ledger.us_at(began),
    };
    let kept = ran.kept();
    if kept < KEPT {
        complain(rate, kept);
    }
    figures.extend(ran.waits(plan.warm..plan.all()).figures(Until::Start));
    figures.insert("offered_per_second", rate as f64);
    figures.insert("of_offered", kept);
    figures.insert("late_max_ms", late_max.as_secs_f64() * 1000.0);
    Ok(Offered {
        jobs: plan.jobs,
        figures,
        windows: ran.windows(&readings),
    })
}

/// For those who watch. Where standard error is gone, there is nobody to tell.
fn complain(rate: u64, kept: f64) {
    let _ = writeln!(
        std::io::stderr(),
        "{} jobs a second were offered, but only {:.0} % of that were handled",
        say::number(rate),
        (kept * 100.0).floor()
    );
}

/// What is offered, and when.
#[derive(Debug, Clone, Copy)]
struct Plan {
    rate: u64,
    warm_up: Duration,
    duration: Duration,
    /// Jobs before the time that counts, and in it.
    warm: u64,
    jobs: u64,
}

impl Plan {
    fn new(rate: u64, duration: Duration) -> Self {
        let warm_up = duration.min(WARM_UP_MAX);
        let jobs_in = |time: Duration| (rate as f64 * time.as_secs_f64()) as u64;
        Self {
            rate,
            warm_up,
            duration,
            warm: jobs_in(warm_up),
            jobs: jobs_in(duration).max(1),
        }
    }

    fn all(self) -> u64 {
        self.warm + self.jobs
    }

    /// When the `n`-th job is due, in microseconds from the beginning.
    fn due_us(self, n: u64) -> u64 {
        let us = (n * 1_000_000).div_ceil(self.rate);
        us.next_multiple_of(TICK_US)
    }

    /// How many jobs have come due by then.
    fn due_by(self, us: u64) -> u64 {
        let tick = us / TICK_US * TICK_US;
        self.all().min(tick * self.rate / 1_000_000 + 1)
    }
}

/// Says whenever more jobs have come due, and how many there are now. On a thread of its own: timers of the runtime are up to a millisecond late.
fn clock(plan: Plan, began: Instant) -> mpsc::UnboundedReceiver<u64> {
    let (say, heard) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut due = 0;
        while due < plan.all() {
            let at = began + Duration::from_micros(plan.due_us(due));
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            due = plan.due_by(us).max(due);
            if say.send(due).is_err() {
                return;
            }
        }
    });
    heard
}

/// Hands each bunch over when it is due. Answers how late that was at most, in the time that counts.
async fn produce(stage: &Stage, plan: Plan, began: Instant) -> anyhow::Result<Duration> {
    let mut clock = clock(plan, began);
    let mut under_way = JoinSet::new();
    let mut late_max = Duration::ZERO;
    let mut n = 0;
    while let Some(mut due) = clock.recv().await {
        while let Ok(more) = clock.try_recv() {
            due = more;
        }
        while n < due {
            let end = due.min(n + BATCH_MAX);
            if n >= plan.warm {
                let since = Duration::from_micros(plan.due_us(n));
                late_max = late_max.max(began.elapsed().saturating_sub(since));
            }
            let batch: Vec<_> = (n..end).map(|n| stage.job(n)).collect();
            let client = stage.client.clone();
            under_way.spawn(async move { client.enqueue_all(batch).await.map(drop) });
            n = end;
            while let Some(done) = under_way.try_join_next() {
                done??;
            }
            if under_way.len() >= UNDER_WAY_MAX
                && let Some(done) = under_way.join_next().await
            {
                done??;
            }
        }
    }
    while let Some(done) = under_way.join_next().await {
        done??;
    }
    Ok(late_max)
}

/// Reads the CPU of Postgres at the beginning and at the end of each stretch.
async fn read_cpu(backend: Option<i32>, plan: Plan, began: Instant) -> Vec<Reading> {
    let mut readings = Vec::new();
    let every = (plan.duration / WINDOWS).max(Duration::from_millis(1));
    let mut tick = tokio::time::interval_at((began + plan.warm_up).into(), every);
    for _ in 0..=WINDOWS {
        tick.tick().await;
        let at = Instant::now();
        // It looks through all processes, which takes a moment.
        let reading = tokio::task::spawn_blocking(move || backend.and_then(cpu::postgres_us));
        readings.push((at, reading.await.ok().flatten()));
    }
    readings
}

/// What became of the jobs, when all are done.
struct Ran<'a> {
    plan: Plan,
    ledger: &'a Ledger,
    began_us: u64,
}

impl Ran<'_> {
    /// From when they were due to the start of their handlers.
    fn waits(&self, jobs: std::ops::Range<u64>) -> Waits {
        let wait = |n| {
            let due_us = self.began_us + self.plan.due_us(n);
            Some(self.ledger.started_us(n)?.saturating_sub(due_us))
        };
        jobs.filter_map(wait).collect()
    }

    /// The share of the offered rate at which jobs were handled in the time that counts. Some of them came due before it.
    fn kept(&self) -> f64 {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let from = self.began_us + us(self.plan.warm_up);
        let time = from..=from + us(self.plan.duration + GRACE);
        let handled = (0..self.plan.all())
            .filter_map(|n| self.ledger.started_us(n))
            .filter(|started| time.contains(started));
        (handled.count() as f64 / self.plan.jobs as f64).min(1.0)
    }

    /// The waits of the jobs that came due in each stretch, and what Postgres used meanwhile for each job that was handled meanwhile.
    fn windows(&self, readings: &[Reading]) -> Vec<Window> {
        let bounds: Vec<u64> = readings.iter().map(|r| self.ledger.us_at(r.0)).collect();
        let mut handled = vec![0u64; bounds.len() + 1];
        for started in (0..self.plan.all()).filter_map(|n| self.ledger.started_us(n)) {
            handled[bounds.partition_point(|bound| *bound <= started)] += 1;
        }
        let count = u64::from(WINDOWS);
        let each_s = self.plan.duration.as_secs_f64() / count as f64;
        let stretches = readings.windows(2).zip(&handled[1..]).zip(0..count);
        let window = |((readings, handled), n): ((&[Reading], &u64), u64)| {
            let from = |n: u64| self.plan.warm + self.plan.jobs * n / count;
            let mut figures = self.waits(from(n)..from(n + 1)).figures(Until::Start);
            if let ((_, Some(begin)), (_, Some(end)), 1..) = (readings[0], readings[1], *handled) {
                let each = end.saturating_sub(begin) as f64 / *handled as f64;
                figures.insert("postgres_cpu_us", each);
            }
            Window {
                from_s: each_s * n as f64,
                to_s: each_s * (n + 1) as f64,
                figures,
            }
        };
        stretches.map(window).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_due_in_bunches_and_none_is_left_out() {
        for rate in [1, 3, 199, 200, 2000, 1_000_000] {
            let plan = Plan::new(rate, Duration::from_millis(700));
            assert_eq!(plan.due_us(0), 0);
            let mut us = 0;
            let mut n = 0;
            while n < plan.all() {
                let due = plan.due_by(us);
                for bound in [n, due - 1] {
                    assert!(plan.due_us(bound) <= us, "{rate}: {bound} at {us}");
                }
                n = due;
                us = plan.due_us(n);
                assert!(
                    plan.due_by(us) > n || n == plan.all(),
                    "{rate}: {n} at {us}"
                );
                assert!(
                    plan.due_by(us.saturating_sub(1)) <= n,
                    "{rate}: {n} before {us}"
                );
            }
        }
    }

    #[test]
    fn the_time_before_the_time_that_counts_is_short() {
        let plan = Plan::new(2000, Duration::from_secs(10));
        assert_eq!((plan.warm, plan.jobs), (6_000, 20_000));
        let plan = Plan::new(400, Duration::from_millis(300));
        assert_eq!((plan.warm, plan.jobs), (120, 120));
        assert_eq!(Plan::new(1, Duration::from_millis(100)).jobs, 1);
    }

    #[test]
    fn cpu_is_divided_by_the_jobs_of_the_same_stretch() {
        let plan = Plan::new(1000, Duration::from_secs(1));
        let ledger = Ledger::timed(plan.all());
        let began = Instant::now();
        // All jobs are handled at once, and nothing goes on afterwards.
        (0..plan.all()).for_each(|n| ledger.ran(n));
        let at = |n: u32| began + Duration::from_secs(10) * n;
        let readings: Vec<Reading> = (0..=WINDOWS)
            .map(|n| (at(n), Some(4000 * u64::from(n))))
            .collect();
        let ran = Ran {
            plan,
            ledger: &ledger,
            began_us: ledger.us_at(began),
        };
        let windows = ran.windows(&readings);
        assert_eq!(windows.len(), 10);
        assert_eq!(windows[0].figures["postgres_cpu_us"], 2.0, "4000 for 2000");
        assert_eq!(windows[1].figures.get("postgres_cpu_us"), None);
        let at_once = Plan {
            warm_up: Duration::ZERO,
            ..plan
        };
        let twice = Plan {
            jobs: 4 * plan.jobs,
            ..at_once
        };
        let kept = |plan| Ran { plan, ..ran }.kept();
        assert_eq!((kept(at_once), kept(twice)), (1.0, 0.5));
    }
}
