//! What the database says at one moment. Every question is bounded, however full the queues are.

use jiff::Timestamp;
use rowlock::Client;
use rowlock::manage::{JobFilter, JobInfo, JobState, QueueStats};
use serde::Serialize;

/// Running jobs and failures that are listed.
const JOBS_MAX: u32 = 50;

/// The queues at one moment; also what `rowlock top --once --json` prints.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Snapshot {
    /// By the database's clock.
    pub(super) at: Timestamp,
    pub(super) queues: Vec<QueueStats>,
    pub(super) workers: Workers,
    /// Running jobs, in the order of claiming; at most 50.
    pub(super) running: Vec<JobInfo>,
    /// Jobs that failed, the latest first: dead, or waiting for their next attempt; at most 50.
    pub(super) failures: Vec<JobInfo>,
}

/// How many workers live, and how busy they are.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Workers {
    pub(super) alive: u64,
    pub(super) lost: u64,
    pub(super) running: i64,
    pub(super) concurrency: i64,
}

impl Snapshot {
    pub(super) async fn take(client: &Client) -> rowlock::Result<Self> {
        let only = |state| JobFilter::new().state(state).limit(JOBS_MAX);
        let (at, queues, running, dead, waiting, workers) = tokio::try_join!(
            client.clock(),
            client.stats(),
            jobs(client, only(JobState::Running)),
            jobs(client, only(JobState::Dead)),
            jobs(client, only(JobState::Scheduled)),
            client.workers(),
        )?;
        let failed = waiting.into_iter().filter(|job| job.failures > 0);
        let mut failures: Vec<JobInfo> = dead.into_iter().chain(failed).collect();
        failures.sort_by_key(|job| std::cmp::Reverse(failed_at(job)));
        failures.truncate(JOBS_MAX as usize);
        let mut sum = Workers::default();
        for w in &workers {
            if w.alive {
                sum.alive += 1;
                sum.running += i64::from(w.running);
                sum.concurrency += i64::from(w.concurrency);
            } else if w.state != "stopped" {
                sum.lost += 1;
            }
        }
        Ok(Self {
            at,
            queues,
            workers: sum,
            running,
            failures,
        })
    }

    /// Jobs per second, of all queues, over the last minute.
    pub(super) fn rate(&self) -> f64 {
        self.queues.iter().map(|q| q.finished_minute).sum::<u64>() as f64 / 60.0
    }
}

async fn jobs(client: &Client, filter: JobFilter) -> rowlock::Result<Vec<JobInfo>> {
    Ok(client.jobs(&filter).await?.jobs)
}

/// When a job last failed.
pub(super) fn failed_at(job: &JobInfo) -> Timestamp {
    let error = job.last_error().map(|e| e.at);
    error.or(job.ended_at).unwrap_or(job.created_at)
}
