//! What a run counted, and where it shows.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use metrics::{Counter, counter};

use super::policy::{Known, Verdict};

/// What became of the rows of one [drain](super::TableQueue::drain) or [run](super::TableQueue::run).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Rows that were worked and marked.
    pub done: u64,
    /// Times that a row failed and will be tried again.
    pub failed: u64,
    /// Rows that are left alone from now on: they failed too often, crashed too often, or their handler gave them up.
    pub parked: u64,
    /// Times that a handler put its row off.
    pub snoozed: u64,
    /// Batches that were committed.
    pub batches: u64,
    /// Batches that came to nothing, and whose rows were free again at once: the connection was lost, or Postgres refused the commit.
    pub batches_lost: u64,
}

/// Counts for one run, and for the metrics:
///
/// | name | kind | labels |
/// |---|---|---|
/// | `rowlock_table_rows_total` | counter | table, outcome (done, failed, parked, snoozed) |
/// | `rowlock_table_batches_total` | counter | table, outcome (done, lost) |
pub(super) struct Counters {
    table: String,
    done: Count,
    failed: Count,
    parked: Count,
    snoozed: Count,
    batches: Count,
    lost: Count,
}

struct Count(AtomicU64, Counter);

impl Count {
    fn new(counter: Counter) -> Self {
        Self(AtomicU64::new(0), counter)
    }

    fn add(&self) {
        self.0.fetch_add(1, Relaxed);
        self.1.increment(1);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Counters {
    pub(super) fn new(table: &str) -> Self {
        let rows = |outcome: &'static str| {
            Count::new(
                counter!("rowlock_table_rows_total", "table" => table.to_owned(), "outcome" => outcome),
            )
        };
        let batches = |outcome: &'static str| {
            Count::new(
                counter!("rowlock_table_batches_total", "table" => table.to_owned(), "outcome" => outcome),
            )
        };
        Self {
            table: table.to_owned(),
            done: rows("done"),
            failed: rows("failed"),
            parked: rows("parked"),
            snoozed: rows("snoozed"),
            batches: batches("done"),
            lost: batches("lost"),
        }
    }

    pub(super) fn batch(&self) {
        self.batches.add();
    }

    pub(super) fn batch_lost(&self) {
        self.lost.add();
    }

    /// A row's verdict was committed. Says what somebody may have to look at, without the row's data.
    pub(super) fn row(&self, known: Known, key: &str, verdict: &Verdict) {
        let table = &*self.table;
        match verdict {
            Verdict::Done => {
                self.done.add();
                tracing::trace!(table, key, "done");
            }
            Verdict::Later { snoozed: true, .. } => {
                self.snoozed.add();
                tracing::debug!(table, key, "snoozed");
            }
            Verdict::Later {
                failures,
                delay,
                error,
                ..
            } => {
                self.failed.add();
                tracing::warn!(table, key, failures, ?delay, error, "row failed");
            }
            Verdict::Park {
                failures,
                crashes,
                error,
            } => {
                self.parked.add();
                let before = known.failures;
                tracing::error!(
                    table,
                    key,
                    failures,
                    before,
                    crashes,
                    error,
                    "row is parked"
                );
            }
        }
    }

    pub(super) fn stats(&self) -> TableStats {
        TableStats {
            done: self.done.get(),
            failed: self.failed.get(),
            parked: self.parked.get(),
            snoozed: self.snoozed.get(),
            batches: self.batches.get(),
            batches_lost: self.lost.get(),
        }
    }
}
