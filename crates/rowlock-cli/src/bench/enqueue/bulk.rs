//! Many at once: in batches of 100, and all by COPY.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use futures_util::future::try_join_all;

use super::super::Session;
use super::super::figures::Figures;
use super::super::meter::Meter;
use super::super::report::Line;
use super::super::stage::{KIND, QUEUE, SCHEMA, Stage};
use super::super::watch;
use super::{BOTH, By, OF_PLAIN, each_runs_once, numbers_of_producers, producers};

const BATCH: u64 = 100;

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let at_once = numbers_of_producers(session, &[1, 4]);
    for at_once in &at_once {
        for by in session.in_turn(&BOTH) {
            batches(session, by, *at_once).await?;
        }
    }
    for at_once in &at_once {
        by_copy(session, *at_once).await?;
    }
    Ok(())
}

async fn batches(session: &mut Session<'_>, by: By, at_once: usize) -> anyhow::Result<()> {
    let (stage, jobs, history) = (session.stage, session.options.jobs, session.options.history);
    stage.clear(history).await?;
    let figures = match by {
        By::Plain => plain_batches(stage, jobs, at_once).await?,
        By::Ours => our_batches(stage, jobs, at_once).await?,
    };
    each_runs_once(stage, jobs, history).await?;
    let plain = format!("plain INSERT of 100 rows, {}", producers(at_once));
    session.report.add(match by {
        By::Plain => Line::new("enqueue", plain, jobs, figures),
        By::Ours => {
            let case = format!("batches of 100, {}", producers(at_once));
            Line::new("enqueue", case, jobs, figures).against(plain, OF_PLAIN)
        }
    });
    Ok(())
}

async fn by_copy(session: &mut Session<'_>, at_once: usize) -> anyhow::Result<()> {
    let (stage, jobs, history) = (session.stage, session.options.jobs, session.options.history);
    stage.clear(history).await?;
    let figures = copies(stage, jobs, at_once).await?;
    each_runs_once(stage, jobs, history).await?;
    let case = format!("by COPY, {}", producers(at_once));
    session
        .report
        .add(Line::new("enqueue", case, jobs, figures));
    Ok(())
}

/// Each producer copies its share.
async fn copies(stage: &Stage, jobs: u64, at_once: usize) -> anyhow::Result<Figures> {
    let _bar = watch::spinner("by COPY");
    let meter = Meter::read(stage).await?;
    let share = |n: usize| jobs * n as u64 / at_once as u64;
    let tasks = (0..at_once).map(|n| {
        let (client, padding) = (stage.client.clone(), stage.padding().to_owned());
        let numbers = share(n)..share(n + 1);
        tokio::spawn(async move {
            let all = numbers.map(move |n| super::job(n, &padding));
            client.bulk(all).await
        })
    });
    for copied in try_join_all(tasks).await? {
        copied?;
    }
    meter.cost(stage, jobs, Instant::now()).await
}

/// The next batch of some that are handed out to producers.
fn next_batch(next: &AtomicU64, jobs: u64) -> Option<Range<u64>> {
    let n = next.fetch_add(BATCH, Relaxed);
    (n < jobs).then(|| n..jobs.min(n + BATCH))
}

async fn our_batches(stage: &Stage, jobs: u64, at_once: usize) -> anyhow::Result<Figures> {
    let next = Arc::new(AtomicU64::new(0));
    let _bar = bar("in batches of 100", jobs, &next);
    let meter = Meter::read(stage).await?;
    let tasks = (0..at_once).map(|_| {
        let (client, padding, next) = (
            stage.client.clone(),
            stage.padding().to_owned(),
            next.clone(),
        );
        tokio::spawn(async move {
            while let Some(batch) = next_batch(&next, jobs) {
                let batch = batch.map(|n| super::job(n, &padding));
                client.enqueue_all(batch).await?;
            }
            Ok::<_, rowlock::Error>(())
        })
    });
    for done in try_join_all(tasks).await? {
        done?;
    }
    meter.cost(stage, jobs, Instant::now()).await
}

async fn plain_batches(stage: &Stage, jobs: u64, at_once: usize) -> anyhow::Result<Figures> {
    let next = Arc::new(AtomicU64::new(0));
    let connections = stage.others(at_once).await?;
    let _bar = bar("plain INSERTs of 100 rows", jobs, &next);
    let meter = Meter::read(stage).await?;
    let tasks = connections.into_iter().map(|connection| {
        let (padding, next) = (stage.padding().to_owned(), next.clone());
        tokio::spawn(async move {
            let sql = format!(
                "insert into {SCHEMA}.job (queue, kind, payload) select '{QUEUE}', '{KIND}', p::jsonb from unnest($1::text[]) p returning id"
            );
            let statement = connection.prepare(&sql).await?;
            while let Some(batch) = next_batch(&next, jobs) {
                let payloads: Vec<String> = batch.map(|n| super::payload(n, &padding)).collect();
                connection.query(&statement, &[&payloads]).await?;
            }
            Ok::<_, tokio_postgres::Error>(connection)
        })
    });
    let done: Result<Vec<_>, _> = try_join_all(tasks).await?.into_iter().collect();
    let open = done?;
    let figures = meter.cost(stage, jobs, Instant::now()).await;
    // The server's processes must still be there when it is looked at what they used.
    drop(open);
    figures
}

fn bar(doing: &'static str, jobs: u64, next: &Arc<AtomicU64>) -> watch::Watch {
    let next = next.clone();
    watch::bar(doing, jobs, move || next.load(Relaxed))
}
