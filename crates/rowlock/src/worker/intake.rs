//! What a claim or a full scan brought: jobs into the slots, positions into the cursors.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use tokio_postgres::Row;

use super::attempt::{Attempt, Origin, column};
use super::core::{Core, lock};
use super::lane::Lane;
use crate::db::Micros;

/// The rows of one statement, sorted out but not decoded: that takes a while, and the next statement need not wait for it.
pub(super) struct Answer {
    token: i64,
    /// Just before the statement was sent.
    began: Instant,
    parts: Vec<Part>,
}

/// What there was of one queue.
struct Part {
    lane: Arc<Lane>,
    jobs: Vec<Row>,
    parked: i32,
    more: bool,
    clock: Micros,
    /// How far it looked, where the jobs do not show it.
    passed: Option<(Vec<Micros>, Vec<i64>)>,
}

/// By which way jobs came in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    /// By a claim; `rewinds`: how often cursors had been set back before it was sent.
    Claimed { rewinds: u64 },
    /// By a full scan; `full`: it had no room for more.
    Swept { full: bool },
}

impl Answer {
    pub(super) fn new(core: &Core, rows: Vec<Row>, token: i64, began: Instant) -> Self {
        let (mut parts, mut jobs) = (Vec::new(), Vec::with_capacity(rows.len()));
        for row in rows {
            if row.get::<_, Option<i64>>(column::ID).is_some() {
                jobs.push(row);
                continue;
            }
            // The row that ends a queue. One without a clock says that nobody looked.
            let jobs = std::mem::take(&mut jobs);
            let (Some(number), Some(clock)) = (
                core.lane_of(row.get(column::QUEUE)),
                row.get::<_, Option<Micros>>(column::CLOCK),
            ) else {
                continue;
            };
            let at = row.get::<_, Option<Vec<Micros>>>(column::CURSOR_AT);
            let id = row.get::<_, Option<Vec<i64>>>(column::CURSOR_ID);
            parts.push(Part {
                lane: core.lane(number),
                jobs,
                parked: row.get::<_, Option<i32>>(column::PARKED).unwrap_or(0),
                more: row.get::<_, Option<bool>>(column::MORE).unwrap_or(false),
                clock,
                passed: at.zip(id),
            });
        }
        Self {
            token,
            began,
            parts,
        }
    }

    pub(super) fn jobs(&self) -> usize {
        self.parts.iter().map(|p| p.jobs.len()).sum()
    }

    /// How many of them have lost a worker before.
    pub(super) fn suspects(&self) -> usize {
        let crashed = |job: &&Row| job.get::<_, i16>(column::CRASHES) > 0;
        let jobs = self.parts.iter().flat_map(|p| &p.jobs);
        jobs.filter(crashed).count()
    }

    /// The queues that brought at least so many.
    pub(super) fn queues_with(&self, jobs: usize) -> Vec<String> {
        let many = self.parts.iter().filter(|p| p.jobs.len() >= jobs);
        many.map(|p| p.lane.queue.to_string()).collect()
    }

    pub(super) fn parked(&self) -> i32 {
        self.parts.iter().map(|p| p.parked).sum()
    }

    /// Whether it stopped for its own bound.
    pub(super) fn more(&self) -> bool {
        self.parts.iter().any(|p| p.more)
    }
}

impl Core {
    /// Moves the cursors, and counts the jobs as waiting. From here on, more may be asked for; but first of all
    /// [`take_in`](Self::take_in) is due.
    pub(super) fn note(&self, answer: &Answer, how: Taken) {
        for part in &answer.parts {
            let position = |job: &Row| {
                let at = job.get::<_, Micros>(column::RUN_AT);
                (job.get::<_, i16>(column::PRIORITY), at, job.get(column::ID))
            };
            let mut cursor = lock(&part.lane.cursor);
            match how {
                // A cursor that was set back while the claim was under way stays where it is: the claim may not have seen what that
                // was for.
                Taken::Claimed { rewinds } if rewinds == self.rewinds.load(Relaxed) => {
                    for (priority, at, id) in part.jobs.iter().map(position) {
                        cursor.claimed(priority, at, id);
                    }
                    if let Some((at, id)) = &part.passed {
                        cursor.passed(at, id);
                    }
                    if part.jobs.is_empty() && part.parked == 0 && !part.more {
                        cursor.at_the_end();
                    }
                }
                Taken::Swept { full: true } => {
                    for (priority, at, id) in part.jobs.iter().map(position) {
                        cursor.rewound(priority, at, id);
                    }
                }
                Taken::Claimed { .. } | Taken::Swept { full: false } => {}
            }
        }
        if let Taken::Claimed { .. } = how {
            let mut slots = lock(&self.slots);
            for part in &answer.parts {
                slots.expect(part.lane.number, part.jobs.len());
            }
        }
    }

    /// Decodes the jobs and puts them into the slots.
    pub(super) fn take_in(&self, answer: Answer, how: Taken) {
        for part in answer.parts {
            let meters = &part.lane.meters;
            if part.parked > 0 {
                meters
                    .parked
                    .increment(u64::try_from(part.parked).unwrap_or(0));
            }
            let origin = Origin {
                lane: part.lane.clone(),
                token: answer.token,
                claimed: answer.began,
                clock: part.clock,
            };
            let mut attempts = Vec::with_capacity(part.jobs.len());
            for row in &part.jobs {
                let Some(handler) = self.registry.get(row.get(column::KIND)) else {
                    // Cannot be: the claim asked for the kinds that there are handlers for. Its lease runs out.
                    tracing::error!(
                        id = row.get::<_, i64>(column::ID),
                        "claimed a job that there is no handler for"
                    );
                    continue;
                };
                let attempt = Attempt::new(row, &origin, handler.clone());
                meters.wait.record(attempt.waited.as_secs_f64());
                attempts.push(Arc::new(attempt));
            }
            // The update returned them in the order of their places on disk.
            attempts.sort_by_key(|a| (-a.priority, a.run_at, a.id));
            if !attempts.is_empty() {
                meters.claimed.increment(attempts.len() as u64);
                self.hold(&attempts);
            }
            let mut slots = lock(&self.slots);
            match how {
                Taken::Claimed { .. } => slots.add(part.lane.number, attempts),
                Taken::Swept { .. } => {
                    slots.add_first(part.lane.number, attempts.into_iter().rev());
                }
            }
        }
    }
}
