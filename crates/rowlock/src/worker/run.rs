//! The life of an attempt: started, handled, timed, judged, answered.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use smallvec::{SmallVec, smallvec};
use tracing::Instrument;

use super::ack::{Ack, Verdict};
use super::attempt::{Attempt, CancelReason};
use super::core::{Core, lock};
use super::ctx::with_trace;
use super::outcome::Outcome;
use super::registry::Call;
use super::slots::Chunk;

/// Those that a handler is called for at once: mostly one.
type Jobs = Chunk<Arc<Attempt>>;

/// After so many jobs without a pause a slot lets others have the thread.
const JOBS_BETWEEN_YIELDS: u32 = 32;

/// Starts as many slots as there are jobs waiting and slots free.
pub(super) fn fill_slots(core: &Arc<Core>) {
    loop {
        let Some((lane, jobs)) = lock(&core.slots).next() else {
            return;
        };
        let (slot, abandoned) = (core.clone(), core.abandoned.clone());
        core.running.spawn(async move {
            abandoned
                .run_until_cancelled(slot.run_slot(lane, jobs))
                .await
        });
    }
}

impl Core {
    /// One slot: runs jobs until none is waiting.
    async fn run_slot(self: Arc<Self>, mut lane: usize, mut jobs: Jobs) {
        let mut now = Instant::now();
        for n in 1_u32.. {
            // Also when the task is aborted in the middle of a handler, the slot must become free.
            let slot = FreeOnDrop {
                core: &self,
                lane,
                armed: true,
            };
            now = self.run_jobs(jobs, now).await;
            match slot.finish() {
                Some(next) => (lane, jobs) = next,
                None => return,
            }
            if n % JOBS_BETWEEN_YIELDS == 0 {
                tokio::task::yield_now().await;
                now = Instant::now();
            }
        }
    }

    /// Runs one job, or several that are handled together, and answers for each. Takes and returns the time: the end of one is the start
    /// of the next.
    async fn run_jobs(&self, mut jobs: Jobs, now: Instant) -> Instant {
        // Whoever lost the lease while it waited has no business starting.
        jobs.retain(|job| self.may_start(job, now));
        let mut unanswered = Unanswered { core: self, jobs };
        let jobs = &unanswered.jobs;
        let Some(first) = jobs.first() else {
            return now;
        };
        for job in jobs {
            job.start(now);
        }
        let running = self.meters.run(jobs.len());
        // The call too is made inside of the future, where a panic is caught.
        let outcomes: SmallVec<[Outcome; 1]> = match &first.origin.handler.call {
            Call::One(call) => {
                let job = first;
                let handled = async { call(job.clone()).await };
                let handled = with_trace(job.trace().map(Into::into), handled);
                let handled = guarded(handled, job.timeout(), std::slice::from_ref(job));
                let span = tracing::info_span!("job", id = job.id, kind = %job.origin.kind, queue = %job.queue(), attempt = job.number());
                match handled.instrument(span).await {
                    Ok(outcome) => smallvec![outcome],
                    Err(error) => smallvec![Outcome::Retry { error, after: None }],
                }
            }
            Call::Chunk(_, call) => {
                let timeout = jobs.iter().filter_map(|j| j.timeout()).min();
                let handled = async { call(jobs.to_vec()).await };
                let handled = guarded(handled, timeout, jobs);
                let span = tracing::info_span!("jobs", n = jobs.len(), kind = %first.origin.kind, queue = %first.queue());
                match handled.instrument(span).await {
                    Ok(outcomes) => outcomes.into(),
                    Err(error) => jobs
                        .iter()
                        .map(|_| Outcome::Retry {
                            error: error.clone(),
                            after: None,
                        })
                        .collect(),
                }
            }
        };
        drop(running);
        let now = Instant::now();
        for (job, outcome) in std::mem::take(&mut unanswered.jobs)
            .into_iter()
            .zip(outcomes)
        {
            self.answer(job, outcome, now);
        }
        now
    }

    fn may_start(&self, job: &Arc<Attempt>, now: Instant) -> bool {
        match job.cancel_reason() {
            // It waited for so long, with no way to the database, that somebody else may have it.
            None if job.lease_is_over(now) => {
                self.give_back(job);
                false
            }
            None => true,
            Some(CancelReason::LeaseLost) => {
                self.forget([job]);
                false
            }
            Some(CancelReason::Cancelled) => {
                self.answer(
                    job.clone(),
                    Outcome::Cancel("cancelled before it started".into()),
                    now,
                );
                false
            }
            Some(_) => {
                self.give_back(job);
                false
            }
        }
    }

    /// Gives a job back as if it had not been claimed.
    pub(super) fn give_back(&self, job: &Arc<Attempt>) -> bool {
        let first = job.first_to_answer();
        if first {
            let ran = job.ran();
            self.acks.push(Ack::new(job.clone(), Verdict::Release, ran));
        }
        first
    }

    /// Hands the outcome to the acknowledgements.
    fn answer(&self, job: Arc<Attempt>, outcome: Outcome, now: Instant) {
        if !job.first_to_answer() {
            return;
        }
        let meters = &job.origin.lane.meters;
        let ran = job.ran_until(now);
        if let Some(ran) = ran {
            meters.run.record(ran.as_secs_f64());
        }
        self.finished.fetch_add(1, Relaxed);
        let verdict = match (job.cancel_reason(), outcome) {
            // The database would refuse it anyway.
            (Some(CancelReason::LeaseLost), outcome) => {
                self.forget([&job]);
                meters.lost.increment(1);
                log_late(&job, &outcome);
                return;
            }
            // What a handler returns when the worker stops it is not a failure of the job.
            (Some(CancelReason::Shutdown), outcome @ Outcome::Retry { .. }) => {
                log_late(&job, &outcome);
                Verdict::Release
            }
            (Some(CancelReason::Cancelled), Outcome::Retry { error, .. }) => {
                Verdict::Outcome(Outcome::Cancel(error))
            }
            (_, outcome) => Verdict::Outcome(outcome),
        };
        if let Verdict::Outcome(outcome) = &verdict {
            meters.finished(outcome);
            log(&job, outcome);
        }
        self.acks.push(Ack::new(job, verdict, ran));
    }
}

/// An error that came too late.
fn log_late(job: &Attempt, outcome: &Outcome) {
    if let Outcome::Retry { error, .. } | Outcome::Dead(error) = outcome {
        tracing::debug!(id = job.id, kind = %job.origin.kind, queue = %job.queue(), attempt = job.number(), error, "the job had been given up: this is not stored");
    }
}

fn log(job: &Attempt, outcome: &Outcome) {
    match outcome {
        Outcome::Done(_) => tracing::trace!(id = job.id, kind = %job.origin.kind, "done"),
        Outcome::Retry { error, .. } | Outcome::Dead(error) => {
            tracing::warn!(id = job.id, kind = %job.origin.kind, queue = %job.queue(), attempt = job.number(), outcome = outcome.name(), error, "job failed");
        }
        Outcome::Cancel(reason) => {
            tracing::debug!(id = job.id, kind = %job.origin.kind, outcome = outcome.name(), reason);
        }
        Outcome::Snooze(_) => {
            tracing::debug!(id = job.id, kind = %job.origin.kind, outcome = outcome.name());
        }
    }
}

/// Runs a handler with its time limit, and turns a panic into text.
async fn guarded<T>(
    handled: impl Future<Output = T>,
    limit: Option<Duration>,
    jobs: &[Arc<Attempt>],
) -> Result<T, String> {
    let caught = AssertUnwindSafe(handled).catch_unwind();
    let result = match limit {
        None => caught.await,
        Some(limit) => match tokio::time::timeout(limit, caught).await {
            Ok(result) => result,
            Err(_) => {
                for job in jobs {
                    job.cancel(CancelReason::Timeout);
                }
                return Err(format!("timed out after {limit:?}"));
            }
        },
    };
    result.map_err(|panic| format!("panicked: {}", panic_text(&*panic)))
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a text")
}

/// Answers for jobs whose task ends in the middle: a handler may panic even while it is dropped. Otherwise they would be held, and
/// their leases renewed, for ever.
struct Unanswered<'a> {
    core: &'a Core,
    jobs: Jobs,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        for job in self.jobs.drain(..) {
            self.core.answer(
                job,
                Outcome::Retry {
                    error: "panicked while it was being stopped".into(),
                    after: None,
                },
                Instant::now(),
            );
        }
    }
}

/// Frees a slot, whatever happens to the task that holds it.
struct FreeOnDrop<'a> {
    core: &'a Arc<Core>,
    lane: usize,
    armed: bool,
}

impl FreeOnDrop<'_> {
    /// Frees the slot and takes the next job, in one step.
    fn finish(mut self) -> Option<(usize, Jobs)> {
        self.armed = false;
        let (next, waiting) = {
            let mut slots = lock(&self.core.slots);
            slots.finish(self.lane);
            (slots.next(), slots.waiting())
        };
        self.core.after_finish(waiting, next.is_none());
        next
    }
}

impl Drop for FreeOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            let waiting = {
                let mut slots = lock(&self.core.slots);
                slots.finish(self.lane);
                slots.waiting()
            };
            self.core.after_finish(waiting, true);
            // This task was to run those that wait. Where there is no runtime any more, nobody is.
            if tokio::runtime::Handle::try_current().is_ok() {
                fill_slots(self.core);
            }
        }
    }
}

impl Core {
    fn after_finish(&self, waiting: usize, idle: bool) {
        // With a slot idle there is room, however many wait: those are for queues at their limits.
        if idle || waiting <= self.low_water.load(Relaxed) {
            self.room.notify_one();
        }
        if idle {
            self.slot_freed.notify_one();
        }
    }
}
