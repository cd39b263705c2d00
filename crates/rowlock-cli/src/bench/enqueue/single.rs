//! One by one: each producer waits for its job to be durable before it enqueues the next. With nobody working, and with a worker that takes
//! the jobs as they come.

use std::sync::Arc;
use std::time::Instant;

use rowlock::WorkerHandle;

use super::super::Session;
use super::super::figures::Figures;
use super::super::ledger::Ledger;
use super::super::meter::Meter;
use super::super::patience;
use super::super::report::Line;
use super::super::stage::Stage;
use super::numbers::{Numbers, hand_out};
use super::{BOTH, By, OF_PLAIN, each_runs_once, plain_insert};

const JOBS_MAX: u64 = 40_000;

pub(super) async fn run(
    session: &mut Session<'_>,
    producers: usize,
    busy: bool,
) -> anyhow::Result<()> {
    let (stage, history) = (session.stage, session.options.history);
    let most = session.options.jobs.min(JOBS_MAX);
    let case = |by| {
        let what = match by {
            By::Plain => "plain INSERT",
            By::Ours => "one by one",
        };
        let with = if busy { ", a worker busy" } else { "" };
        format!("{what}, {}{with}", super::producers(producers))
    };
    for by in session.in_turn(&BOTH) {
        stage.clear(history).await?;
        let connections = match by {
            By::Plain => stage.others(producers).await?,
            By::Ours => Vec::new(),
        };
        let work = Work::start(stage, most, busy).await?;
        let (jobs, figures) = match by {
            By::Plain => {
                let producing = plain_inserts(stage, connections, most);
                work.measure(stage, history, producing).await?
            }
            By::Ours => {
                let producing = enqueues(stage, producers, most);
                work.measure(stage, history, producing).await?
            }
        };
        let line = Line::new("enqueue", case(by), jobs, figures);
        session.report.add(match by {
            By::Plain => line,
            By::Ours => line.against(case(By::Plain), OF_PLAIN),
        });
    }
    Ok(())
}

/// What happens to the jobs while they are enqueued.
struct Work {
    ledger: Arc<Ledger>,
    worker: Option<WorkerHandle>,
}

impl Work {
    async fn start(stage: &Stage, most: u64, busy: bool) -> anyhow::Result<Self> {
        let ledger = Arc::new(Ledger::new(most));
        let worker = match busy {
            true => Some(stage.worker(&ledger)?.start().await?),
            false => None,
        };
        Ok(Self { ledger, worker })
    }

    /// Measures until the last job is durably there, and checks what became of them. `producing` answers how many there are.
    async fn measure<K>(
        self,
        stage: &Stage,
        history: bool,
        producing: impl Future<Output = anyhow::Result<(u64, Vec<K>)>>,
    ) -> anyhow::Result<(u64, Figures)> {
        let meter = Meter::read(stage).await?;
        let (jobs, open) = producing.await?;
        let end = Instant::now();
        let Some(worker) = self.worker else {
            let figures = meter.cost(stage, jobs, end).await?;
            drop(open);
            each_runs_once(stage, jobs, history).await?;
            return Ok((jobs, figures));
        };
        // What it costs to work off what is left belongs to the jobs too; the rate is that of the enqueues.
        patience::drained(&worker).await?;
        let figures = meter.cost(stage, jobs, end).await?;
        let stopped = worker.shutdown().await;
        self.ledger.limit(jobs);
        stage.check(&self.ledger, jobs, stopped, history).await?;
        Ok((jobs, figures))
    }
}

async fn enqueues(stage: &Stage, producers: usize, most: u64) -> anyhow::Result<(u64, Vec<()>)> {
    let producer = |_| {
        let (client, padding) = (stage.client.clone(), stage.padding().to_owned());
        move |numbers: Arc<Numbers>| async move {
            while let Some(n) = numbers.next() {
                client.enqueue_new(super::job(n, &padding)).await?;
            }
            Ok(())
        }
    };
    hand_out("one by one", most, (0..producers).map(producer)).await
}

/// The same rows by plain INSERTs, one connection for each producer: what there is to compare with.
async fn plain_inserts(
    stage: &Stage,
    connections: Vec<tokio_postgres::Client>,
    most: u64,
) -> anyhow::Result<(u64, Vec<tokio_postgres::Client>)> {
    let producer = |connection: tokio_postgres::Client| {
        let padding = stage.padding().to_owned();
        move |numbers: Arc<Numbers>| async move {
            let statement = connection.prepare(&plain_insert()).await?;
            while let Some(n) = numbers.next() {
                let payload = super::payload(n, &padding);
                connection.query_one(&statement, &[&payload]).await?;
            }
            Ok(connection)
        }
    };
    hand_out("plain INSERTs", most, connections.into_iter().map(producer)).await
}
