//! The scenarios, the same for every peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{BATCH, Config, Ledger, Peer, connect, payload, protocol};

/// Numbers from here on are in no ledger, and still a signed one in JSON.
const BEYOND: u64 = u64::MAX / 4;
/// How many slots of a worker are kept busy at most.
const BLOCKERS: u64 = 1000;
/// How many jobs each producer enqueues before it is measured.
const WARM_UP: u64 = 2;

/// How several jobs are handed over.
#[derive(Clone, Copy)]
enum Call {
    Bulk,
    Batch,
}

struct Stage<P> {
    peer: Arc<P>,
    config: Config,
    /// For counting only.
    sql: tokio_postgres::Client,
}

pub(crate) async fn run<P: Peer>() -> Result<()> {
    let config = Config::read()?;
    payload::set_bytes(config.payload_bytes);
    let peer = Arc::new(P::set_up(&config).await?);
    let sql = connect(&config.url).await?;
    let stage = Stage { peer, config, sql };
    match stage.config.scenario.as_str() {
        "bulk" => stage.bulk(0).await,
        "single" => stage.single().await,
        "drain" => stage.drain().await,
        "steady" => stage.steady().await,
        "latency" => stage.latency().await,
        other => bail!("nobody knows a scenario {other:?}"),
    }
}

impl<P: Peer> Stage<P> {
    /// Loads one round's jobs.
    async fn bulk(&self, round: u64) -> Result<()> {
        let (jobs, loaders) = (self.config.jobs, self.config.loaders);
        let chunk = match P::BULK_CHUNK {
            0 => jobs.div_ceil(loaders),
            chunk => chunk,
        };
        protocol::ready("bulk").await?;
        let began = Instant::now();
        self.produce(Call::Bulk, round * jobs, jobs, chunk, loaders)
            .await?;
        let seconds = began.elapsed();
        let exact = self.stored(jobs).await?;
        self.report("bulk", jobs, seconds, exact, json!({}))
    }

    /// One job after the other, each durable before the next, by several producers.
    async fn single(&self) -> Result<()> {
        let jobs = self.config.jobs;
        let ledger = self.ledger(0, false);
        let worker = match self.config.busy {
            true => Some(self.busy_worker(&ledger).await?),
            false => None,
        };
        self.warm_up().await?;
        let before = self.count().await?;
        protocol::ready("single").await?;
        let began = Instant::now();
        self.singles(jobs).await?;
        let seconds = began.elapsed();
        let exact = self.stored(before + jobs).await?;
        self.report("single", jobs, seconds, exact, json!({}))?;
        if let Some(worker) = worker {
            ledger.unblock();
            self.peer.stop(worker).await?;
        }
        Ok(())
    }

    /// Each producer enqueues a few that do not count, all at the same time: then its connection is open and its statement known.
    async fn warm_up(&self) -> Result<()> {
        let mut tasks = JoinSet::new();
        for producer in 0..self.config.producers {
            let peer = self.peer.clone();
            let first = BEYOND + BLOCKERS + producer * WARM_UP;
            tasks.spawn(async move {
                for n in first..first + WARM_UP {
                    peer.single_of(producer, n).await?;
                }
                Ok(())
            });
        }
        all(tasks).await
    }

    async fn singles(&self, jobs: u64) -> Result<()> {
        let next = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for producer in 0..self.config.producers {
            let (peer, next) = (self.peer.clone(), next.clone());
            tasks.spawn(async move {
                loop {
                    let n = next.fetch_add(1, Relaxed);
                    if n >= jobs {
                        return Ok(());
                    }
                    peer.single_of(producer, n).await?;
                }
            });
        }
        all(tasks).await
    }

    /// A worker all of whose slots are taken by jobs that wait.
    async fn busy_worker(&self, ledger: &Arc<Ledger>) -> Result<P::Worker> {
        self.peer.bulk(BEYOND..BEYOND + BLOCKERS).await?;
        let worker = self.peer.start(ledger.clone()).await?;
        // Busy when for a while no more of them were started.
        let mut seen = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let blocked = ledger.blocked();
            if blocked > 0 && blocked == seen {
                break;
            }
            seen = blocked;
        }
        ensure!(
            seen < BLOCKERS,
            "{BLOCKERS} jobs do not keep this worker busy"
        );
        Ok(worker)
    }

    /// A backlog worked off by one worker; as many rounds as asked for, in the same tables.
    async fn drain(&self) -> Result<()> {
        let jobs = self.config.jobs;
        let ledger = self.ledger(jobs * self.config.rounds, false);
        for round in 0..self.config.rounds {
            self.bulk(round).await?;
            self.peer.before_drain().await?;
            protocol::ready("drain").await?;
            let began = Instant::now();
            let worker = self.peer.start(ledger.clone()).await?;
            let so_far = (round + 1) * jobs;
            let seconds = self.finished(&ledger, so_far).await? - began;
            let exact = ledger.exact(so_far);
            self.report("drain", jobs, seconds, exact, json!({}))?;
            self.peer.stop(worker).await?;
        }
        self.end(&ledger, jobs * self.config.rounds).await
    }

    /// Producers and a worker together, flat out.
    async fn steady(&self) -> Result<()> {
        let jobs = self.config.jobs.next_multiple_of(BATCH);
        let more = match self.config.handler_ms {
            0 => json!({}),
            ms => json!({"handlers_allow": sleeps_per_second(ms, self.config.workers).await?}),
        };
        let ledger = self.ledger(jobs, false);
        let worker = self.peer.start(ledger.clone()).await?;
        protocol::ready("steady").await?;
        let began = Instant::now();
        self.produce(Call::Batch, 0, jobs, BATCH, self.config.producers)
            .await?;
        let seconds = self.finished(&ledger, jobs).await? - began;
        self.report("steady", jobs, seconds, ledger.exact(jobs), more)?;
        self.peer.stop(worker).await?;
        self.end(&ledger, jobs).await
    }

    /// From before the enqueue to the start of the handler, on an idle queue.
    async fn latency(&self) -> Result<()> {
        let jobs = self.config.jobs;
        let ledger = self.ledger(jobs, true);
        let worker = self.peer.start(ledger.clone()).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        protocol::ready("latency").await?;
        let began = Instant::now();
        let mut waits = Vec::new();
        for n in 0..jobs {
            // Long enough for a worker to run dry and wait.
            tokio::time::sleep(Duration::from_millis(40 + n * 17 % 61)).await;
            let before = ledger.now_us();
            self.peer.single(n).await?;
            ledger.until(n + 1).await?;
            let started = ledger
                .started_us(n)
                .context("a job ran that did not start")?;
            waits.push(started.saturating_sub(before));
        }
        let seconds = began.elapsed();
        let exact = ledger.exact(jobs);
        self.report("latency", jobs, seconds, exact, json!({"waits_us": waits}))?;
        self.peer.stop(worker).await?;
        self.end(&ledger, jobs).await
    }

    /// Several producers enqueue the numbers from `first` on, `size` at a time.
    async fn produce(
        &self,
        call: Call,
        first: u64,
        jobs: u64,
        size: u64,
        producers: u64,
    ) -> Result<()> {
        let next = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..producers {
            let (peer, next) = (self.peer.clone(), next.clone());
            tasks.spawn(async move {
                loop {
                    let n = next.fetch_add(size, Relaxed);
                    if n >= jobs {
                        return Ok(());
                    }
                    let numbers = first + n..first + (n + size).min(jobs);
                    match call {
                        Call::Bulk => peer.bulk(numbers).await?,
                        Call::Batch => peer.batch(numbers).await?,
                    }
                }
            });
        }
        all(tasks).await
    }

    /// Waits until all have run and their completion is stored, and says when that was. A count may take long where many dead rows
    /// lie; what it sees was so when it began.
    async fn finished(&self, ledger: &Ledger, jobs: u64) -> Result<Instant> {
        ledger.until(jobs).await?;
        let ran = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let looked = Instant::now();
            let left = self.count().await?;
            if left == 0 {
                return Ok(looked);
            }
            ensure!(
                ran.elapsed() < Duration::from_secs(60),
                "all jobs ran, but {left} are not finished after a minute"
            );
        }
    }

    async fn stored(&self, jobs: u64) -> Result<bool> {
        let found = self.count().await?;
        ensure!(
            found == jobs,
            "{jobs} jobs were enqueued, but {found} are there"
        );
        Ok(true)
    }

    async fn count(&self) -> Result<u64> {
        self.peer.count(&self.sql).await
    }

    fn ledger(&self, jobs: u64, timed: bool) -> Arc<Ledger> {
        Arc::new(Ledger::new(jobs, timed, self.config.handler_ms))
    }

    /// A look after the worker has stopped: nothing may have run once more since, and nothing that is kept be missing.
    async fn end(&self, ledger: &Ledger, jobs: u64) -> Result<()> {
        ensure!(
            ledger.exact(jobs),
            "some of {jobs} jobs did not run exactly once"
        );
        self.peer.verify(&self.sql, jobs).await
    }

    fn report(
        &self,
        phase: &str,
        jobs: u64,
        took: Duration,
        exact: bool,
        more: Value,
    ) -> Result<()> {
        let mut value = json!({
            "phase": phase,
            "jobs": jobs,
            "seconds": took.as_secs_f64(),
            "exact": exact,
            "settings": self.peer.settings(),
        });
        if let (Some(value), Some(more)) = (value.as_object_mut(), more.as_object()) {
            value.extend(more.clone());
        }
        protocol::result(&value)
    }
}

/// Waits for all; fails as soon as one does.
async fn all(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// How many sleeps of this length are done in a second, so many at once, when there is nothing else to do: timers are coarse.
async fn sleeps_per_second(ms: u64, at_once: usize) -> Result<f64> {
    const EACH: u32 = 30;
    let mut tasks = JoinSet::new();
    for _ in 0..at_once {
        tasks.spawn(async move {
            let sleep = || tokio::time::sleep(Duration::from_millis(ms));
            // The first begins while others are still being made.
            sleep().await;
            let began = Instant::now();
            for _ in 0..EACH {
                sleep().await;
            }
            f64::from(EACH) / began.elapsed().as_secs_f64()
        });
    }
    let mut sum = 0.0;
    while let Some(rate) = tasks.join_next().await {
        sum += rate?;
    }
    Ok(sum)
}
