//! The workers of this process: the one that works, and those that a reload has relieved and that finish what they run.

use anyhow::Context;
use rowlock::{Client, Stopped, Worker, WorkerHandle};
use tokio::task::JoinSet;

use super::handler::{self, Processes};
use crate::settings::Settings;

pub(super) struct Crew {
    processes: Processes,
    working: WorkerHandle,
    /// Those that were relieved, each with the task that waits for its end.
    leaving: Vec<WorkerHandle>,
    ends: JoinSet<Stopped>,
    /// What those that have ended did.
    done: Stopped,
}

impl Crew {
    /// Starts the first worker.
    pub(super) async fn start(settings: &Settings, client: &Client) -> anyhow::Result<Self> {
        let processes = Processes::default();
        let working = start(settings, client, &processes).await?;
        Ok(Self {
            processes,
            working,
            leaving: Vec::new(),
            ends: JoinSet::new(),
            done: Stopped::default(),
        })
    }

    /// The one that works.
    pub(super) fn working(&self) -> &WorkerHandle {
        &self.working
    }

    /// Starts a worker with new settings, then lets the old one finish what it runs. If the new one cannot start, the old one goes on.
    pub(super) async fn relieve(
        &mut self,
        settings: &Settings,
        client: &Client,
    ) -> anyhow::Result<()> {
        let new = start(settings, client, &self.processes).await?;
        let old = std::mem::replace(&mut self.working, new);
        let leaving = old.clone();
        self.ends.spawn(async move { leaving.shutdown().await });
        self.leaving.push(old);
        // Those that have ended meanwhile need not be remembered.
        while let Some(ended) = self.ends.try_join_next() {
            self.count(ended.ok());
        }
        Ok(())
    }

    /// Lets all finish what they run.
    pub(super) async fn shutdown(&mut self) -> Stopped {
        let stopped = self.working.shutdown().await;
        self.end(stopped).await
    }

    /// Gives back what runs.
    pub(super) async fn shutdown_now(&mut self) -> Stopped {
        let leaving = self.leaving.clone();
        let all = leaving
            .iter()
            .chain([&self.working])
            .map(WorkerHandle::shutdown_now);
        futures_util::future::join_all(all).await;
        let stopped = self.working.stopped().await;
        self.end(stopped).await
    }

    async fn end(&mut self, last: Stopped) -> Stopped {
        while let Some(ended) = self.ends.join_next().await {
            self.count(ended.ok());
        }
        self.processes.end().await;
        self.count(Some(last));
        self.done
    }

    fn count(&mut self, ended: Option<Stopped>) {
        let Some(ended) = ended else { return };
        self.done.handled += ended.handled;
        self.done.given_back += ended.given_back;
        self.done.interrupted += ended.interrupted;
        self.done.unsettled += ended.unsettled;
    }
}

async fn start(
    settings: &Settings,
    client: &Client,
    processes: &Processes,
) -> anyhow::Result<WorkerHandle> {
    let worker = build(settings, client, processes)?;
    client.check().await?;
    store_queues(settings, client).await?;
    Ok(worker.start().await?)
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
