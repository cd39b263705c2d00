//! The ledger: which jobs ran, how often, and when.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// One entry for each job.
pub(super) struct Ledger {
    runs: Vec<AtomicU8>,
    /// Microseconds from the beginning to the start of the handler, plus one; 0: not yet.
    started_us: Vec<AtomicU64>,
    began: Instant,
}

impl Ledger {
    pub(super) fn new(jobs: u64) -> Self {
        let jobs = usize::try_from(jobs).unwrap_or(usize::MAX);
        Self {
            runs: (0..jobs).map(|_| AtomicU8::new(0)).collect(),
            started_us: (0..jobs).map(|_| AtomicU64::new(0)).collect(),
            began: Instant::now(),
        }
    }

    pub(super) fn ran(&self, n: u64) {
        let Some(n) = usize::try_from(n).ok().filter(|n| *n < self.runs.len()) else {
            return;
        };
        self.runs[n].fetch_add(1, Relaxed);
        self.started_us[n].store(self.now_us() + 1, Relaxed);
    }

    /// Microseconds since the ledger was opened.
    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// When the handler of a job started; `None` if it has not.
    pub(super) fn started_us(&self, n: u64) -> Option<u64> {
        let n = usize::try_from(n).ok()?;
        self.started_us.get(n)?.load(Relaxed).checked_sub(1)
    }

    /// Fails unless the first `jobs` ran exactly once each.
    pub(super) fn check(&self, jobs: u64) -> anyhow::Result<()> {
        let jobs = usize::try_from(jobs).unwrap_or(usize::MAX);
        let missing = self.runs[..jobs]
            .iter()
            .filter(|r| r.load(Relaxed) == 0)
            .count();
        let twice = self.runs[..jobs]
            .iter()
            .filter(|r| r.load(Relaxed) > 1)
            .count();
        anyhow::ensure!(
            missing == 0 && twice == 0,
            "of {jobs} jobs {missing} did not run and {twice} ran more than once"
        );
        Ok(())
    }
}
