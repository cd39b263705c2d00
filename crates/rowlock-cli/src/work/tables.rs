//! Tables that are queues: each worked by a task of its own, until it is told to stop or, to drain them, until nothing is left.
//!
//! Promises: a table that cannot be worked any more is said in the log and tried again, and stops nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use futures_util::future::{join_all, try_join_all};
use rowlock::{Client, TableQueue, TableStats, WorkerHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::handler::{self, Processes};
use crate::settings::Settings;

/// After so long a table that could not be worked is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// What became of the rows, by the name of the table.
pub(super) type Counts = BTreeMap<String, TableStats>;

/// The tables of a configuration, once they have been held against the database.
pub(super) struct Opened {
    queues: Vec<TableQueue>,
    now: CancellationToken,
}

/// Looks each table up. What does not fit is said with its section.
pub(super) async fn open(
    settings: &Settings,
    client: &Client,
    processes: &Processes,
) -> anyhow::Result<Opened> {
    let now = CancellationToken::new();
    let open = settings.tables.iter().map(|table| {
        let now = now.clone();
        async move {
            let name = crate::settings::key_text(&table.name);
            let doing = || format!("[table.{name}] cannot be used");
            let builder = handler::for_table(table, client.schema().as_str(), processes)
                .with_context(doing)?
                .grace(settings.worker.grace)
                .stop_now(now);
            builder.build(client).await.with_context(doing)
        }
    });
    let queues = try_join_all(open).await?;
    Ok(Opened { queues, now })
}

/// Tables that are being worked. Cheap to clone.
#[derive(Clone)]
pub(super) struct Tables(Arc<Inner>);

struct Inner {
    queues: Vec<TableQueue>,
    /// Begin no more rows.
    stop: CancellationToken,
    /// Drop the handlers that run.
    now: CancellationToken,
    tasks: TaskTracker,
    counts: Mutex<Counts>,
}

impl Tables {
    fn new(opened: Opened) -> Self {
        let inner = Inner {
            queues: opened.queues,
            stop: CancellationToken::new(),
            now: opened.now,
            tasks: TaskTracker::new(),
            counts: Mutex::default(),
        };
        Self(Arc::new(inner))
    }

    /// Works them until they are told to stop.
    pub(super) fn work(opened: Opened) -> Self {
        let tables = Self::new(opened);
        for queue in &tables.0.queues {
            tracing::info!(table = queue.name(), "working a table");
            let (tables, queue) = (tables.clone(), queue.clone());
            tables
                .0
                .tasks
                .clone()
                .spawn(async move { tables.work_one(&queue).await });
        }
        tables
    }

    /// Works them, and the worker's queues, until nothing is left in any of them; says so by the token.
    pub(super) fn drain(
        opened: Opened,
        worker: Option<WorkerHandle>,
        told: tokio::sync::watch::Sender<Option<Result<(), Arc<rowlock::Error>>>>,
    ) -> Self {
        let tables = Self::new(opened);
        let all = tables.clone();
        tables.0.tasks.spawn(async move {
            let drained = all.drain_with(worker.as_ref()).await;
            told.send_replace(Some(drained.map_err(Arc::new)));
        });
        tables
    }

    /// Ends when nothing was left in the tables after nothing was left in the queues: jobs may make rows, and rows jobs.
    async fn drain_with(&self, worker: Option<&WorkerHandle>) -> rowlock::Result<()> {
        loop {
            let jobs = async {
                if let Some(worker) = worker {
                    worker.drained().await;
                }
            };
            let (rows, ()) = tokio::join!(self.drain_once(), jobs);
            rows?;
            if self.0.stop.is_cancelled() || !self.drain_once().await? {
                return Ok(());
            }
        }
    }

    /// Works each table until nothing is left there; whether there was anything.
    async fn drain_once(&self) -> rowlock::Result<bool> {
        let drains = self.0.queues.iter().map(|queue| async {
            let stats = queue.drain_until(&self.0.stop).await?;
            self.count(queue, stats);
            Ok(stats.batches + stats.batches_lost > 0)
        });
        // All are waited for: an error in one table is no reason to drop the rows of another.
        let ended: rowlock::Result<Vec<bool>> = join_all(drains).await.into_iter().collect();
        Ok(ended?.into_iter().any(|found| found))
    }

    async fn work_one(&self, queue: &TableQueue) {
        let table = queue.name();
        while !self.0.stop.is_cancelled() {
            match queue.run(&self.0.stop).await {
                Ok(stats) => self.count(queue, stats),
                Err(error) => {
                    tracing::error!(table, %error, again_after = ?TRY_AGAIN_AFTER, "a table cannot be worked");
                    tokio::select! {
                        () = tokio::time::sleep(TRY_AGAIN_AFTER) => {}
                        () = self.0.stop.cancelled() => {}
                    }
                }
            }
        }
        let stats = self.counts().get(table).copied().unwrap_or_default();
        tracing::info!(table, ?stats, "stopped working a table");
    }

    /// Lets what runs end, within the grace.
    pub(super) async fn shutdown(&self) -> Counts {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
        self.counts()
    }

    /// Drops what runs. What is done is kept, the other rows are free again.
    pub(super) async fn shutdown_now(&self) -> Counts {
        self.0.now.cancel();
        self.shutdown().await
    }

    fn count(&self, queue: &TableQueue, stats: TableStats) {
        let mut counts = self.0.counts.lock().unwrap_or_else(PoisonError::into_inner);
        add(counts.entry(queue.name().to_owned()).or_default(), stats);
    }

    fn counts(&self) -> Counts {
        let counts = self.0.counts.lock();
        counts.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Adds up what became of rows.
pub(super) fn add(total: &mut TableStats, more: TableStats) {
    total.done += more.done;
    total.failed += more.failed;
    total.parked += more.parked;
    total.snoozed += more.snoozed;
    total.batches += more.batches;
    total.batches_lost += more.batches_lost;
}
