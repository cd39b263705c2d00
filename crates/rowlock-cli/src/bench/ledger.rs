//! The ledger: which jobs ran, how often, and when.
//!
//! It is written in the handlers of what is measured, so an entry costs one atomic operation on memory that is there already: a bit for each job,
//! and a time for those who want to know.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// One entry for each job.
pub(super) struct Ledger {
    /// How many there are; the space may be for more.
    jobs: AtomicU64,
    /// A bit for each job that ran.
    ran: Vec<AtomicU64>,
    /// How many runs there were of jobs that had run already.
    again: AtomicU64,
    /// How many runs there were of jobs that nobody enqueued.
    strays: AtomicU64,
    /// Microseconds from the beginning to the start of the handler, plus one; 0: not yet. Empty if nobody wants to know.
    started_us: Vec<AtomicU64>,
    began: Instant,
}

impl Ledger {
    /// For so many jobs, numbered from 0.
    pub(super) fn new(jobs: u64) -> Self {
        Self {
            jobs: AtomicU64::new(jobs),
            ran: zeros(jobs.div_ceil(64)),
            again: AtomicU64::new(0),
            strays: AtomicU64::new(0),
            started_us: Vec::new(),
            began: Instant::now(),
        }
    }

    /// As [`new`](Self::new), with the times.
    pub(super) fn timed(jobs: u64) -> Self {
        Self {
            started_us: zeros(jobs),
            ..Self::new(jobs)
        }
    }

    pub(super) fn ran(&self, n: u64) {
        if n >= self.jobs.load(Relaxed) {
            self.strays.fetch_add(1, Relaxed);
            return;
        }
        let (place, bit) = place(n);
        if self.ran[place].fetch_or(bit, Relaxed) & bit != 0 {
            self.again.fetch_add(1, Relaxed);
        }
        if let Some(started) = usize::try_from(n).ok().and_then(|n| self.started_us.get(n)) {
            started.store(self.us_at(Instant::now()) + 1, Relaxed);
        }
    }

    /// Microseconds from the opening of the ledger to a moment.
    pub(super) fn us_at(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.began);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn now_us(&self) -> u64 {
        self.us_at(Instant::now())
    }

    /// When the handler of a job started; `None` if it has not.
    pub(super) fn started_us(&self, n: u64) -> Option<u64> {
        let n = usize::try_from(n).ok()?;
        self.started_us.get(n)?.load(Relaxed).checked_sub(1)
    }

    /// Fewer were enqueued than were planned: only the first `jobs`.
    pub(super) fn limit(&self, jobs: u64) {
        self.jobs.fetch_min(jobs, Relaxed);
    }

    /// How many jobs ran.
    pub(super) fn count(&self) -> u64 {
        self.ran
            .iter()
            .map(|word| u64::from(word.load(Relaxed).count_ones()))
            .sum()
    }

    /// Adds what another process wrote down: its words, and its runs that were too many.
    pub(super) fn add(&self, words: &[u64], again: u64, strays: u64) -> anyhow::Result<()> {
        anyhow::ensure!(
            words.len() == self.ran.len(),
            "a worker process reports {} words, not {}",
            words.len(),
            self.ran.len()
        );
        for (mine, theirs) in self.ran.iter().zip(words) {
            let both = mine.fetch_or(*theirs, Relaxed) & theirs;
            self.again.fetch_add(both.count_ones().into(), Relaxed);
        }
        self.again.fetch_add(again, Relaxed);
        self.strays.fetch_add(strays, Relaxed);
        Ok(())
    }

    /// What [`add`](Self::add) takes.
    pub(super) fn parts(&self) -> (Vec<u64>, u64, u64) {
        let words = self.ran.iter().map(|word| word.load(Relaxed)).collect();
        (words, self.again.load(Relaxed), self.strays.load(Relaxed))
    }

    /// Fails unless every job ran exactly once, and no other.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let (jobs, ran) = (self.jobs.load(Relaxed), self.count());
        let missing = jobs.saturating_sub(ran);
        let (again, strays) = (self.again.load(Relaxed), self.strays.load(Relaxed));
        anyhow::ensure!(
            ran == jobs && again == 0 && strays == 0,
            "not exactly once: of {jobs} jobs {missing} did not run, {again} runs were of jobs that had run already, {strays} of \
             jobs that nobody enqueued"
        );
        Ok(())
    }
}

fn zeros(n: u64) -> Vec<AtomicU64> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

fn place(n: u64) -> (usize, u64) {
    // The caller has checked that the job has an entry, so its place is an index.
    ((n / 64) as usize, 1 << (n % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(ledger: &Ledger) -> String {
        ledger.check().unwrap_err().to_string()
    }

    #[test]
    fn each_exactly_once_is_right() {
        let ledger = Ledger::timed(130);
        (0..130).for_each(|n| ledger.ran(n));
        ledger.check().unwrap();
        assert_eq!(ledger.count(), 130);
        assert!(ledger.started_us(129).is_some());
        assert!(ledger.started_us(130).is_none());
        Ledger::new(0).check().unwrap();
    }

    #[test]
    fn a_job_that_did_not_run_is_noticed() {
        let ledger = Ledger::new(130);
        (0..129).for_each(|n| ledger.ran(n));
        assert!(error(&ledger).contains("of 130 jobs 1 did not run, 0 runs"));
    }

    #[test]
    fn a_job_that_ran_twice_is_noticed() {
        let ledger = Ledger::new(3);
        [0, 1, 1, 2].into_iter().for_each(|n| ledger.ran(n));
        assert!(error(&ledger).contains("0 did not run, 1 runs were of jobs that had run already"));
    }

    #[test]
    fn a_job_of_nobody_is_noticed() {
        let ledger = Ledger::new(2);
        [0, 1, 2].into_iter().for_each(|n| ledger.ran(n));
        assert!(error(&ledger).contains("1 of jobs that nobody enqueued"));
    }

    #[test]
    fn fewer_jobs_than_planned() {
        let ledger = Ledger::new(100);
        (0..50).for_each(|n| ledger.ran(n));
        ledger.limit(50);
        ledger.check().unwrap();
        ledger.ran(50);
        assert!(error(&ledger).contains("1 of jobs that nobody enqueued"));
        let late = Ledger::new(100);
        (0..51).for_each(|n| late.ran(n));
        late.limit(50);
        assert!(late.check().is_err());
    }

    #[test]
    fn two_processes_that_ran_the_same_job_are_noticed() {
        let (all, a, b) = (Ledger::new(100), Ledger::new(100), Ledger::new(100));
        (0..60).for_each(|n| a.ran(n));
        (59..100).for_each(|n| b.ran(n));
        for one in [&a, &b] {
            let (words, again, strays) = one.parts();
            all.add(&words, again, strays).unwrap();
        }
        assert!(
            error(&all).contains("0 did not run, 1 runs"),
            "{}",
            error(&all)
        );
        assert!(all.add(&[0; 9], 0, 0).is_err(), "another number of jobs");
    }

    #[test]
    fn two_processes_that_shared_the_jobs_are_right() {
        let (all, a, b) = (Ledger::new(100), Ledger::new(100), Ledger::new(100));
        (0..100).for_each(|n| if n % 3 == 0 { a.ran(n) } else { b.ran(n) });
        for one in [&a, &b] {
            let (words, again, strays) = one.parts();
            all.add(&words, again, strays).unwrap();
        }
        all.check().unwrap();
    }
}
