//! Metrics: emitted at the seams, once each, through the `metrics` facade. Handles are kept, so that a job costs an addition and not
//! a look-up.
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `rowlock_claimed_total` | counter | queue |
//! | `rowlock_finished_total` | counter | queue, outcome |
//! | `rowlock_lost_total` | counter | queue: acknowledgements refused because the lease had gone to somebody else |
//! | `rowlock_parked_total` | counter | queue: poison, expired and cancelled jobs put away by a claim |
//! | `rowlock_wait_seconds` | histogram | queue: from due to claimed |
//! | `rowlock_run_seconds` | histogram | queue: in the handler |
//! | `rowlock_claim_seconds` | histogram | one claim statement |
//! | `rowlock_ack_seconds` | histogram | one flush of acknowledgements |
//! | `rowlock_ack_batch` | histogram | jobs in one flush |
//! | `rowlock_running` | gauge | jobs in handlers |

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::outcome::Outcome;

/// The meters of one queue.
pub(super) struct LaneMeters {
    pub(super) claimed: Counter,
    pub(super) lost: Counter,
    pub(super) parked: Counter,
    pub(super) wait: Histogram,
    pub(super) run: Histogram,
    done: Counter,
    failed: Counter,
    snoozed: Counter,
    cancelled: Counter,
    refused: Counter,
}

impl LaneMeters {
    pub(super) fn new(queue: &str) -> Self {
        let queue = queue.to_owned();
        let finished = |outcome: &'static str| counter!("rowlock_finished_total", "queue" => queue.clone(), "outcome" => outcome);
        Self {
            claimed: counter!("rowlock_claimed_total", "queue" => queue.clone()),
            lost: counter!("rowlock_lost_total", "queue" => queue.clone()),
            parked: counter!("rowlock_parked_total", "queue" => queue.clone()),
            wait: histogram!("rowlock_wait_seconds", "queue" => queue.clone()),
            run: histogram!("rowlock_run_seconds", "queue" => queue.clone()),
            done: finished("done"),
            failed: finished("failed"),
            snoozed: finished("snoozed"),
            cancelled: finished("cancelled"),
            refused: finished("refused"),
        }
    }

    pub(super) fn finished(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Done(_) => &self.done,
            Outcome::Retry { .. } => &self.failed,
            Outcome::Snooze(_) => &self.snoozed,
            Outcome::Cancel(_) => &self.cancelled,
            Outcome::Dead(_) => &self.refused,
        }
        .increment(1);
    }
}

/// The meters of a whole worker.
pub(super) struct WorkerMeters {
    pub(super) claim: Histogram,
    running: Gauge,
}

impl WorkerMeters {
    pub(super) fn new() -> Self {
        Self {
            claim: histogram!("rowlock_claim_seconds"),
            running: gauge!("rowlock_running"),
        }
    }
}

impl WorkerMeters {
    /// Counts jobs as running until what it returns is dropped, also by an abort.
    pub(super) fn run(&self, jobs: usize) -> Running {
        let running = self.running.clone();
        running.increment(jobs as f64);
        Running { running, jobs }
    }
}

/// Jobs that are in their handler. Added and taken away rather than set: a process may have several workers, and one gauge.
pub(super) struct Running {
    running: Gauge,
    jobs: usize,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.running.decrement(self.jobs as f64);
    }
}

/// The meters of the acknowledgements.
pub(super) struct AckMeters {
    pub(super) seconds: Histogram,
    pub(super) batch: Histogram,
}

impl AckMeters {
    pub(super) fn new() -> Self {
        Self {
            seconds: histogram!("rowlock_ack_seconds"),
            batch: histogram!("rowlock_ack_batch"),
        }
    }
}
