//! Everything that works by one configuration: the library's worker for the jobs, if there are handlers, and the tables.

use std::sync::Arc;

use anyhow::Context;
use rowlock::{Client, Stopped, Worker, WorkerHandle};
use tokio::sync::watch;

use super::handler::{self, Processes};
use super::tables::{self, Counts, Tables};
use crate::settings::Settings;

/// Until when a team works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    Stopped,
    Drained,
}

/// What a team did.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    pub(super) jobs: Stopped,
    pub(super) tables: Counts,
}

impl Report {
    pub(super) fn add(&mut self, more: Report) {
        self.jobs.handled += more.jobs.handled;
        self.jobs.given_back += more.jobs.given_back;
        self.jobs.interrupted += more.jobs.interrupted;
        self.jobs.unsettled += more.jobs.unsettled;
        for (table, stats) in more.tables {
            tables::add(self.tables.entry(table).or_default(), stats);
        }
    }
}

/// A team that works. Cheap to clone.
#[derive(Clone)]
pub(super) struct Team {
    worker: Option<WorkerHandle>,
    tables: Tables,
    drained: watch::Receiver<Option<Result<(), Arc<rowlock::Error>>>>,
}

impl Team {
    /// Checks everything against the database, then starts.
    pub(super) async fn start(
        settings: &Settings,
        client: &Client,
        processes: &Processes,
        until: Until,
    ) -> anyhow::Result<Self> {
        let worker = (!settings.handlers.is_empty())
            .then(|| build(settings, client, processes))
            .transpose()?;
        client.check().await?;
        let opened = tables::open(settings, client, processes).await?;
        store_queues(settings, client).await?;
        let worker = match worker {
            Some(worker) => Some(worker.start().await?),
            None => None,
        };
        let (told, drained) = watch::channel(None);
        let tables = match until {
            Until::Stopped => Tables::work(opened),
            Until::Drained => Tables::drain(opened, worker.clone(), told),
        };
        Ok(Self {
            worker,
            tables,
            drained,
        })
    }

    /// Waits until nothing is left, if it was started for that. May be dropped and called again.
    pub(super) async fn drained(&self) -> Result<(), Arc<rowlock::Error>> {
        let mut drained = self.drained.clone();
        let ended = drained.wait_for(Option::is_some).await;
        match ended.ok().and_then(|ended| ended.clone()) {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Lets what runs end, within the grace.
    pub(super) async fn shutdown(&self) -> Report {
        let jobs = async {
            match &self.worker {
                Some(worker) => worker.shutdown().await,
                None => Stopped::default(),
            }
        };
        let (jobs, tables) = tokio::join!(jobs, self.tables.shutdown());
        Report { jobs, tables }
    }

    /// Gives back what runs.
    pub(super) async fn shutdown_now(&self) -> Report {
        let jobs = async {
            match &self.worker {
                Some(worker) => worker.shutdown_now().await,
                None => Stopped::default(),
            }
        };
        let (jobs, tables) = tokio::join!(jobs, self.tables.shutdown_now());
        Report { jobs, tables }
    }
}

fn build(settings: &Settings, client: &Client, processes: &Processes) -> anyhow::Result<Worker> {
    let worker = &settings.worker;
    let mut builder = Worker::builder(client.clone())
        .concurrency(worker.concurrency)
        .order(worker.order)
        .poll(worker.poll)
        .ahead(worker.ahead)
        .grace(worker.grace)
        .statement_timeout(worker.statement_timeout);
    if let Some(name) = &worker.name {
        builder = builder.name(name);
    }
    if let Some(lease) = worker.lease {
        builder = builder.lease(lease);
    }
    if worker.poll_only {
        builder = builder.poll_only();
    }
    if !worker.maintain {
        builder = builder.without_maintenance();
    }
    for queue in &settings.queues {
        builder = builder.queue(queue.queue());
    }
    Ok(handler::attach(builder, &settings.handlers, processes)?.build()?)
}

/// Writes the settings of queues that the configuration names. What it does not name stays as it is.
async fn store_queues(settings: &Settings, client: &Client) -> anyhow::Result<()> {
    for queue in settings.queues.iter().filter(|q| !q.stored.is_empty()) {
        let stored = serde_json::to_string(&queue.stored)?;
        client
            .query_text(
                "store the settings of a queue",
                "select rowlock.set_queue($1, $2::jsonb)::text",
                &[Some(&queue.name), Some(&stored)],
            )
            .await
            .with_context(|| format!("[queue.{:?}.stored] cannot be applied", queue.name))?;
    }
    Ok(())
}
