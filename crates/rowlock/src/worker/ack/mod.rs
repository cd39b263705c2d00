//! Acknowledgements: what handlers said, gathered and sent in one statement per queue and verb (two, if some of the jobs are known to be touched since
//! their claim; and once more, the longer way, if some turn out to be).
//!
//! The next flush starts when the last returns, so batches size themselves and an idle queue pays no delay. An acknowledgement is
//! kept until the database has answered it: a broken connection costs a repetition, and the fence makes that harmless. One bad item
//! never blocks the others.

mod call;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::Notify;

use self::call::Answer;
use super::attempt::Attempt;
use super::core::{Core, lock};
use super::outcome::Outcome;
use super::telemetry::AckMeters;
use crate::db::Link;

/// With so many unsent, no more jobs are claimed: they would only pile up.
pub(super) const UNSENT_MAX: usize = 5_000;
/// Most jobs in one statement.
const BATCH_MAX: usize = 1000;
/// A row that somebody has locked is tried again after this long.
const BUSY_AGAIN: Duration = Duration::from_millis(50);
/// After an error that is neither the connection's nor the data's.
const ERROR_AGAIN: Duration = Duration::from_secs(1);

/// What is to become of a claimed job.
pub(super) enum Verdict {
    Outcome(Outcome),
    /// Give it back as if it had not been claimed.
    Release,
}

/// An acknowledgement on its way.
pub(super) struct Ack {
    attempt: Arc<Attempt>,
    verdict: Verdict,
    ran: Option<Duration>,
}

impl Ack {
    pub(super) fn new(attempt: Arc<Attempt>, verdict: Verdict, ran: Option<Duration>) -> Self {
        Self {
            attempt,
            verdict,
            ran,
        }
    }

    fn verb(&self) -> Verb {
        match &self.verdict {
            // Only the database knows whether the handler's transaction committed: if it did, the job is gone and this is
            // answered with "lost"; if not, the attempt has failed.
            Verdict::Outcome(Outcome::Done(_)) if self.attempt.completed_in_tx.load(Relaxed) => {
                Verb::Fail
            }
            Verdict::Outcome(Outcome::Done(_)) => Verb::Complete,
            Verdict::Outcome(Outcome::Snooze(_)) => Verb::Snooze,
            Verdict::Outcome(_) => Verb::Fail,
            Verdict::Release => Verb::Release,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Verb {
    Complete,
    Fail,
    Snooze,
    Release,
}

/// Acknowledgements that wait to be sent.
#[derive(Default)]
pub(super) struct Acks {
    waiting: Mutex<Vec<Ack>>,
    pushed: Notify,
}

impl Acks {
    pub(super) fn push(&self, ack: Ack) {
        let first = {
            let mut waiting = lock(&self.waiting);
            waiting.push(ack);
            waiting.len() == 1
        };
        // The others find the bell already rung.
        if first {
            self.pushed.notify_one();
        }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.waiting).len()
    }

    fn take(&self) -> Vec<Ack> {
        std::mem::take(&mut *lock(&self.waiting))
    }

    fn put_back(&self, acks: Vec<Ack>) {
        if acks.is_empty() {
            return;
        }
        lock(&self.waiting).extend(acks);
        self.pushed.notify_one();
    }
}

/// Sends acknowledgements until the worker is stopped and none is left.
pub(super) async fn ack_loop(core: Arc<Core>, link: Arc<Link>) {
    let meters = AckMeters::new();
    loop {
        tokio::select! {
            () = core.acks.pushed.notified() => {}
            () = core.stopped.cancelled() => return,
        }
        let acks = core.acks.take();
        if acks.is_empty() {
            continue;
        }
        if acks.len() >= UNSENT_MAX {
            // Claims have waited for it, and perhaps no job runs any more that would tell them of room.
            core.room.notify_one();
        }
        let began = Instant::now();
        meters.batch.record(acks.len() as f64);
        let again = core.flush(&link, acks).await;
        meters.seconds.record(began.elapsed().as_secs_f64());
        // The rest waits for a moment beside the others, which must not wait with it.
        for (after, acks) in again {
            let core = core.clone();
            tokio::spawn(async move {
                core.pause(after).await;
                core.acks.put_back(acks);
            });
        }
    }
}

/// What must be sent again, and when.
type Again = Vec<(Duration, Vec<Ack>)>;

impl Core {
    /// Sends a batch, all its statements under way at once.
    async fn flush(&self, link: &Link, acks: Vec<Ack>) -> Again {
        let mut groups: Vec<((usize, Verb, bool), Vec<Ack>)> = Vec::new();
        for ack in acks {
            let verb = ack.verb();
            // One that was touched would have all others go the longer way with it.
            let touched = verb == Verb::Complete && ack.attempt.mark().is_none();
            let group = (ack.attempt.origin.lane.number, verb, touched);
            // Few, and mostly the same as the last.
            match groups.iter_mut().rfind(|(known, _)| *known == group) {
                Some((_, acks)) => acks.push(ack),
                None => groups.push((group, vec![ack])),
            }
        }
        let mut sends = Vec::new();
        for ((_, verb, _), mut acks) in groups {
            // In the order of the ids, so that no two statements can wait for each other in a circle. `complete` waits for nobody, and
            // is fastest claim by claim and in the order of the places on disk. Cached: a renewal may move a job meanwhile, and a sort whose keys
            // change may panic.
            acks.sort_by_cached_key(|Ack { attempt, .. }| match verb {
                Verb::Complete => (attempt.origin.token, attempt.place().0),
                _ => (0, attempt.id.unsigned_abs()),
            });
            while acks.len() > BATCH_MAX {
                let rest = acks.split_off(BATCH_MAX);
                sends.push(self.send(link, verb, std::mem::replace(&mut acks, rest)));
            }
            sends.push(self.send(link, verb, acks));
        }
        join_all(sends).await.into_iter().flatten().collect()
    }

    /// Sends one statement and deals with the answer.
    fn send<'a>(&'a self, link: &'a Link, verb: Verb, mut acks: Vec<Ack>) -> BoxFuture<'a, Again> {
        Box::pin(async move {
            match self.call(link, verb, &acks).await {
                Ok(answer) => self.settle(acks, verb, &answer),
                Err(e) if e.is_bad_data() && acks.len() > 1 => {
                    // One of them cannot be stored: halve until it stands alone.
                    let rest = acks.split_off(acks.len() / 2);
                    let mut again = self.send(link, verb, acks).await;
                    again.extend(self.send(link, verb, rest).await);
                    again
                }
                Err(e) if e.is_bad_data() => {
                    // The one that cannot be stored as it is becomes a failure that says why.
                    tracing::error!(id = acks[0].attempt.id, error = %e, ?verb, "an outcome cannot be stored");
                    if verb == Verb::Fail {
                        // Even that cannot be stored. Its lease will run out, or that of its bundle.
                        self.abandon(acks.iter().map(|a| &a.attempt));
                        return Vec::new();
                    }
                    acks[0].verdict = Verdict::Outcome(Outcome::Dead(format!(
                        "its outcome cannot be stored: {e}"
                    )));
                    vec![(Duration::ZERO, acks)]
                }
                Err(e) => {
                    let after = if e.is_retryable() {
                        Duration::from_millis(100)
                    } else {
                        ERROR_AGAIN
                    };
                    tracing::warn!(error = %e, jobs = acks.len(), "cannot acknowledge, will try again");
                    vec![(after, acks)]
                }
            }
        })
    }

    /// The database has answered: forget what is settled, keep what was busy.
    fn settle(&self, mut acks: Vec<Ack>, verb: Verb, answer: &Answer) -> Again {
        let mut busy = Vec::new();
        if !answer.busy.is_empty() {
            let (again, settled): (Vec<_>, Vec<_>) = acks
                .into_iter()
                .partition(|a| answer.busy.contains(&a.attempt.id));
            acks = settled;
            busy = again;
            busy.iter().for_each(|a| a.attempt.touched());
        }
        for ack in acks.iter().filter(|a| answer.lost.contains(&a.attempt.id)) {
            let a = &ack.attempt;
            if a.completed_in_tx.load(Relaxed) {
                tracing::trace!(id = a.id, "completed in the handler's transaction");
            } else {
                a.origin.lane.meters.lost.increment(1);
                tracing::warn!(id = a.id, kind = %a.origin.kind, queue = %a.queue(), attempt = a.number(), ?verb,
                    "the lease was lost: another attempt has the job, or this was acknowledged before a connection broke");
            }
        }
        self.forget(acks.iter().map(|a| &a.attempt));
        if busy.is_empty() {
            Vec::new()
        } else {
            vec![(BUSY_AGAIN, busy)]
        }
    }
}
