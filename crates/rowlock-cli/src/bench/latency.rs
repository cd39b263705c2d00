//! From before the enqueue to the start of the handler and to the durable completion, on an idle queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::Session;
use super::figures::Figures;
use super::ledger::Ledger;
use super::meter::Meter;
use super::report::Line;
use super::waits::{Until, Waits};
use super::watch;
use crate::say;

/// No idle queue takes so long, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let (stage, options) = (session.stage, session.options);
    let jobs = options.samples;
    stage.clear(options.history).await?;
    let ledger = Arc::new(Ledger::timed(jobs));
    let worker = stage.worker(&ledger)?.start().await?;
    let bar = watch::time("idle", options.idle);
    tokio::time::sleep(options.idle).await;
    drop(bar);

    let bar = watch::bar("one by one", jobs, {
        let worker = worker.clone();
        move || worker.handled()
    });
    let meter = Meter::read(stage).await?;
    let (mut starts, mut dones) = (Waits::new(), Waits::new());
    let mut first = None;
    for n in 0..jobs {
        if n > 0 {
            // Long enough for the worker to run dry and wait for the bell.
            tokio::time::sleep(Duration::from_millis(60 + n % 7 * 10)).await;
        }
        let flushes = stage.signals.flushes();
        let before = Instant::now();
        stage.client.enqueue_new(stage.job(n)).await?;
        let done = stage
            .signals
            .answer_after(flushes, PATIENCE)
            .await
            .with_context(|| format!("job {n} is not finished after {PATIENCE:?}"))?;
        let before = ledger.us_at(before);
        let started = ledger
            .started_us(n)
            .with_context(|| format!("job {n} was acknowledged without having run"))?;
        let (start, done) = (
            started.saturating_sub(before),
            ledger.us_at(done).saturating_sub(before),
        );
        first.get_or_insert((start, done));
        starts.add_us(start);
        dones.add_us(done);
    }
    drop(bar);
    let mut figures = meter.cost(stage, jobs, stage.answered()?).await?;
    // Most of the time it waits on purpose.
    figures.remove("per_second");
    let stopped = worker.shutdown().await;
    stage.check(&ledger, jobs, stopped, options.history).await?;

    figures.extend(starts.figures(Until::Start));
    figures.extend(dones.figures(Until::Done));
    if let Some((start, done)) = first {
        figures.extend(Figures::from([
            ("first_start_ms", start as f64 / 1000.0),
            ("first_done_ms", done as f64 / 1000.0),
        ]));
    }
    let case = if options.idle.is_zero() {
        "idle queue".to_owned()
    } else {
        let idle = i64::try_from(options.idle.as_millis()).unwrap_or(i64::MAX);
        format!("idle queue, after {}", say::ms(idle))
    };
    session
        .report
        .add(Line::new("latency", case, jobs, figures));
    Ok(())
}
