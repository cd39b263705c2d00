//! Which jobs ran, how often, and when.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::join_all;
use tokio::sync::{Notify, Semaphore};

pub struct Ledger {
    runs: Vec<AtomicU8>,
    /// Microseconds from the beginning to the start of the handler, plus one; empty unless somebody asks for them.
    started_us: Vec<AtomicU64>,
    began: Instant,
    count: AtomicU64,
    /// Who waits is told when the count gets here.
    target: AtomicU64,
    reached: Notify,
    handler: Duration,
    /// Jobs beyond the ledger keep a slot of the worker busy until this is closed.
    blockers: Semaphore,
    blocked: AtomicU64,
}

impl Ledger {
    pub(crate) fn new(jobs: u64, timed: bool, handler_ms: u64) -> Self {
        let jobs = usize::try_from(jobs).unwrap_or(usize::MAX);
        let times = if timed { jobs } else { 0 };
        Self {
            runs: (0..jobs).map(|_| AtomicU8::new(0)).collect(),
            started_us: (0..times).map(|_| AtomicU64::new(0)).collect(),
            began: Instant::now(),
            count: AtomicU64::new(0),
            target: AtomicU64::new(u64::MAX),
            reached: Notify::new(),
            handler: Duration::from_millis(handler_ms),
            blockers: Semaphore::new(0),
            blocked: AtomicU64::new(0),
        }
    }

    /// The handler of job `n`.
    pub async fn run(&self, n: u64) {
        let Some(runs) = usize::try_from(n).ok().and_then(|n| self.runs.get(n)) else {
            self.blocked.fetch_add(1, Relaxed);
            let _ = self.blockers.acquire().await;
            return;
        };
        if !self.started_us.is_empty() {
            self.started_us[n as usize].store(self.now_us() + 1, Relaxed);
        }
        if !self.handler.is_zero() {
            tokio::time::sleep(self.handler).await;
        }
        runs.fetch_add(1, Relaxed);
        if self.count.fetch_add(1, Relaxed) + 1 == self.target.load(Relaxed) {
            self.reached.notify_one();
        }
    }

    /// The handlers of a batch: one after the other where they do nothing, else all at once.
    pub async fn run_all(&self, jobs: impl Iterator<Item = u64>) {
        if self.handler.is_zero() {
            for n in jobs {
                self.run(n).await;
            }
        } else {
            join_all(jobs.map(|n| self.run(n))).await;
        }
    }

    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn started_us(&self, n: u64) -> Option<u64> {
        let n = usize::try_from(n).ok()?;
        self.started_us.get(n)?.load(Relaxed).checked_sub(1)
    }

    pub(crate) fn blocked(&self) -> u64 {
        self.blocked.load(Relaxed)
    }

    pub(crate) fn unblock(&self) {
        self.blockers.close();
    }

    /// Waits until so many have run; fails when nothing has moved for a minute.
    pub(crate) async fn until(&self, jobs: u64) -> Result<()> {
        self.target.store(jobs, Relaxed);
        let mut seen = 0;
        let mut still = Instant::now();
        loop {
            let count = self.count.load(Relaxed);
            if count >= jobs {
                return Ok(());
            }
            if count != seen {
                seen = count;
                still = Instant::now();
            }
            ensure!(
                still.elapsed() < Duration::from_secs(60),
                "after {count} of {jobs} jobs nothing ran for a minute"
            );
            // The timeout covers the moment between the look and the wait.
            let _ = tokio::time::timeout(Duration::from_millis(100), self.reached.notified()).await;
        }
    }

    /// Whether the first `jobs` ran exactly once each.
    pub(crate) fn exact(&self, jobs: u64) -> bool {
        let jobs = usize::try_from(jobs).unwrap_or(usize::MAX);
        self.runs[..jobs].iter().all(|r| r.load(Relaxed) == 1)
    }
}
