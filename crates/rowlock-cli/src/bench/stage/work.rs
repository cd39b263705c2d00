//! Jobs put in for later, and a worker that works them off.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use rowlock::{Client, Worker, WorkerBuilder};

use super::super::figures::Figures;
use super::super::ledger::Ledger;
use super::super::meter::Meter;
use super::super::{patience, watch};
use super::{KIND, QUEUE, SCHEMA, Stage, number};

impl Stage {
    /// Puts so many jobs in by COPY, for later: the queue is paused, so that workers can be started before the time is taken.
    pub(in crate::bench) async fn load(&self, jobs: u64) -> anyhow::Result<()> {
        self.pause().await?;
        self.client.bulk((0..jobs).map(|n| self.job(n))).await?;
        self.checkpoint().await;
        Ok(())
    }

    pub(in crate::bench) async fn pause(&self) -> anyhow::Result<()> {
        let sql = format!("select {SCHEMA}.pause('{QUEUE}')");
        Ok(self.sql.batch_execute(&sql).await?)
    }

    /// Lets what was loaded be worked off.
    pub(in crate::bench) async fn resume(&self) -> anyhow::Result<()> {
        let sql = format!("select {SCHEMA}.resume('{QUEUE}')");
        Ok(self.sql.batch_execute(&sql).await?)
    }

    /// A worker with default settings, without a handler. It has a client of its own, as a worker process would.
    pub(in crate::bench) fn builder(&self) -> anyhow::Result<WorkerBuilder> {
        let client = Client::builder()
            .schema(SCHEMA)
            .lazy(self.server.info.clone())?;
        Ok(Worker::builder(client).queue(QUEUE))
    }

    /// A worker with default settings that writes each job into the ledger.
    pub(in crate::bench) fn worker(&self, ledger: &Arc<Ledger>) -> anyhow::Result<Worker> {
        Ok(counting(self.builder()?, ledger).build()?)
    }

    /// Works off what is there, as one worker does, and checks it.
    pub(in crate::bench) async fn work_off(
        &self,
        jobs: u64,
        history: bool,
    ) -> anyhow::Result<Figures> {
        self.work_off_again(jobs, history, 0).await
    }

    /// As [`work_off`](Self::work_off), after the same was done so many times before.
    pub(in crate::bench) async fn work_off_again(
        &self,
        jobs: u64,
        history: bool,
        before: u64,
    ) -> anyhow::Result<Figures> {
        let ledger = Arc::new(Ledger::new(jobs));
        let worker = self.worker(&ledger)?.start().await?;
        let _bar = watch::bar("working off", jobs, {
            let worker = worker.clone();
            move || worker.handled()
        });
        let meter = Meter::read(self).await?;
        self.resume().await?;
        patience::drained(&worker).await?;
        let figures = meter.cost(self, jobs, self.answered()?).await?;
        let stopped = worker.shutdown().await;
        self.check(&ledger, jobs * (before + 1), stopped, history)
            .await?;
        Ok(figures)
    }

    /// When the last acknowledgement was answered.
    pub(in crate::bench) fn answered(&self) -> anyhow::Result<Instant> {
        self.signals
            .last_answer()
            .context("no acknowledgement was answered")
    }
}

/// With a handler that writes each job into the ledger and does nothing else.
pub(in crate::bench) fn counting(worker: WorkerBuilder, ledger: &Arc<Ledger>) -> WorkerBuilder {
    let ledger = ledger.clone();
    worker.handle_kind(KIND, move |job: rowlock::RawJob, _| {
        ledger.ran(number(&job.payload));
        async {}
    })
}
