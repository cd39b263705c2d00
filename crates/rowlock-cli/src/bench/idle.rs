//! What workers cost that have nothing to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Session;
use super::cpu;
use super::figures::Figures;
use super::ledger::Ledger;
use super::report::Line;
use super::watch;
use crate::say;

/// Until they have connected, looked around and come to rest.
const SETTLE: Duration = Duration::from_secs(15);

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let (stage, options) = (session.stage, session.options);
    let count = usize::from(options.workers);
    stage.clear(false).await?;
    stage.has_room_for(count, "--workers").await?;
    let ledger = Arc::new(Ledger::new(0));
    let mut workers = Vec::new();
    for _ in 0..count {
        workers.push(stage.worker(&ledger)?.start().await?);
    }
    let bar = watch::time("coming to rest", SETTLE);
    tokio::time::sleep(SETTLE).await;
    drop(bar);

    let bar = watch::time("nothing to do", options.duration);
    let (began, postgres, client) = (Instant::now(), stage.postgres_cpu_us(), cpu::client_us());
    tokio::time::sleep(options.duration).await;
    let used = stage.postgres_cpu_us().zip(postgres);
    let client = cpu::client_us() - client;
    let seconds = began.elapsed().as_secs_f64();
    drop(bar);
    for worker in workers {
        let stopped = worker.shutdown().await;
        stage.check(&ledger, 0, stopped, false).await?;
    }

    let percent = |us: u64| us as f64 / 1e6 / seconds * 100.0;
    let mut figures = Figures::from([
        ("seconds", seconds),
        ("client_cpu_percent", percent(client)),
    ]);
    if let Some((end, begin)) = used {
        figures.insert("postgres_cpu_percent", percent(end.saturating_sub(begin)));
    }
    let case = say::count(count as u64, "idle worker");
    session.report.add(Line::new("idle", case, 0, figures));
    Ok(())
}
