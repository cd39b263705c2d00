//! What a claim or a full scan brought: jobs into the slots, positions into the cursors.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio_postgres::Row;

use super::answer::{Answer, Rest, column};
use super::attempt::{Attempt, Origin};
use super::bundle::Bundle;
use super::core::{Core, lock};
use crate::db::Micros;

/// By which way jobs came in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    /// By a claim; `rewinds`: how often cursors had been set back before it was sent.
    Claimed { rewinds: u64 },
    /// By a look at what has just become due, which says nothing of what was due before.
    Fresh,
    /// By a full scan; `full`: it had no room for more.
    Swept { full: bool },
}

impl Core {
    /// Moves the cursors, and counts the jobs as waiting. From here on, more may be asked for; but first of all
    /// [`take_in`](Self::take_in) is due.
    pub(super) fn note(&self, answer: &Answer, how: Taken) {
        for part in &answer.parts {
            let position = |job: &Row| {
                let priority = Rest::of(job).map_or(0, |rest| rest.priority);
                let at = job.get::<_, Micros>(column::RUN_AT);
                (priority, at, job.get(column::ID))
            };
            let mut cursor = lock(&part.lane.cursor);
            cursor.answered(part.clock);
            match how {
                // A cursor that was set back while the claim was under way stays where it is: the claim may not have seen what that
                // was for.
                Taken::Claimed { rewinds } if rewinds == self.rewinds.load(Relaxed) => {
                    for (priority, at, id) in part.jobs.iter().map(position) {
                        cursor.claimed(priority, at, id);
                    }
                    if let Some((at, id)) = part.end.passed() {
                        cursor.passed(at, id);
                    }
                    if part.end.caught_up || part.end.last().is_some_and(|last| cursor.is_at(last))
                    {
                        cursor.caught_up();
                    }
                }
                Taken::Swept { full: true } => {
                    for (priority, at, id) in part.jobs.iter().map(position) {
                        cursor.rewound(priority, at, id);
                    }
                    // In a flood claims are always under way, and would move it forward over the rest.
                    self.rewinds.fetch_add(1, Relaxed);
                }
                Taken::Claimed { .. } | Taken::Fresh | Taken::Swept { full: false } => {}
            }
        }
        if let Taken::Claimed { .. } | Taken::Fresh = how {
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
            meters.parked.increment(u64::from(part.end.parked));
            let Some(lease) = part.end.lease else {
                continue; // there are no jobs
            };
            let bundle = part.end.bundle;
            let bundle = bundle.then(|| Arc::new(Bundle::new(answer.token, part.jobs.len())));
            let mut origins: Vec<Arc<Origin>> = Vec::new();
            let mut attempts = Vec::with_capacity(part.jobs.len());
            for row in &part.jobs {
                let kind: &str = row.get(column::KIND);
                let known = origins.iter().rfind(|origin| *origin.kind == *kind);
                let origin = if let Some(origin) = known {
                    origin
                } else {
                    let Some(handler) = self.registry.get(kind) else {
                        // Cannot be: the claim asked for the kinds that there are handlers for. Its lease runs out.
                        tracing::error!(
                            id = row.get::<_, i64>(column::ID),
                            "claimed a job that there is no handler for"
                        );
                        continue;
                    };
                    origins.push(Arc::new(Origin {
                        lane: part.lane.clone(),
                        kind: handler.kind_text(kind),
                        handler: handler.clone(),
                        client: self.client.clone(),
                        token: answer.token,
                        claimed: answer.began,
                        clock: part.clock,
                        lease: lease.until.since(part.clock),
                        max_attempts: lease.max_attempts,
                        mark: lease.mark,
                        bundle: bundle.clone(),
                    }));
                    &origins[origins.len() - 1]
                };
                let attempt = Attempt::new(row, origin);
                meters.wait.record(attempt.waited().as_secs_f64());
                attempts.push(Arc::new(attempt));
            }
            // The update returned them in the order of their places on disk.
            attempts.sort_by_cached_key(|a| (-a.priority(), a.run_at, a.id));
            if !attempts.is_empty() {
                meters.claimed.increment(attempts.len() as u64);
                self.hold(&attempts);
            }
            let mut slots = lock(&self.slots);
            match how {
                Taken::Claimed { .. } | Taken::Fresh => slots.add(part.lane.number, attempts),
                Taken::Swept { .. } => {
                    slots.add_first(part.lane.number, attempts.into_iter().rev());
                }
            }
        }
    }
}
