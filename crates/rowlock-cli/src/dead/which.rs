//! Which of the dead, on the command line.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use rowlock::manage::{DeadFilter, DeadReason, JobFilter, JobState};
use serde_json::Value;

use crate::exit::mistake;
use crate::jobs::filter::{path_value, reason_parser};
use crate::{say, times};

/// Dead jobs that fit all of it.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Which dead jobs")]
pub(super) struct Which {
    /// Of this queue.
    #[arg(long, short, value_name = "NAME")]
    pub(super) queue: Option<String>,

    /// Of this kind.
    #[arg(long, short, value_name = "NAME")]
    kind: Option<String>,

    /// Dead for this reason: failed (out of attempts), poison (killed its workers), refused (its handler said so).
    #[arg(long, value_name = "REASON", value_parser = reason_parser())]
    reason: Option<DeadReason>,

    /// With this text in one of their errors, in upper or lower case.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,

    /// With this tag.
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,

    /// With this value in the payload, such as user.id=7; may be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = path_value)]
    payload: Vec<(String, Value)>,

    /// With this value in the metadata; may be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = path_value)]
    metadata: Vec<(String, Value)>,

    /// Dead for longer than this, such as 2h or 3d.
    #[arg(long, value_name = "TIME", value_parser = times::span)]
    older_than: Option<Duration>,

    /// Dead for less than this.
    #[arg(long, value_name = "TIME", value_parser = times::span)]
    newer_than: Option<Duration>,
}

impl Which {
    pub(super) fn is_empty(&self) -> bool {
        self.is_at_most_a_queue() && self.queue.is_none()
    }

    /// Whether nothing but a queue was named, so that the queue's own count says how many there are.
    pub(super) fn is_at_most_a_queue(&self) -> bool {
        self.kind.is_none()
            && self.reason.is_none()
            && self.error.is_none()
            && self.tag.is_none()
            && self.payload.is_empty()
            && self.metadata.is_empty()
            && self.older_than.is_none()
            && self.newer_than.is_none()
    }

    /// The stretch of time of death.
    fn died(&self, now: Timestamp) -> anyhow::Result<(Option<Timestamp>, Option<Timestamp>)> {
        if let (Some(older), Some(newer)) = (self.older_than, self.newer_than) {
            if older >= newer {
                return Err(mistake(format!(
                    "nothing is dead both for longer than {} and for less than {}: --newer-than must be the longer of the two",
                    say::duration(older),
                    say::duration(newer)
                )));
            }
        }
        let at = |ago: Option<Duration>| ago.map(|ago| times::before(now, ago)).transpose();
        Ok((at(self.newer_than)?, at(self.older_than)?))
    }

    /// To list with.
    pub(super) fn to_job_filter(&self, now: Timestamp) -> anyhow::Result<JobFilter> {
        let mut filter = JobFilter::new().state(JobState::Dead);
        if let Some(queue) = &self.queue {
            filter = filter.queue(queue);
        }
        if let Some(kind) = &self.kind {
            filter = filter.kind(kind);
        }
        if let Some(reason) = self.reason {
            filter = filter.reason(reason);
        }
        if let Some(error) = &self.error {
            filter = filter.error(error);
        }
        if let Some(tag) = &self.tag {
            filter = filter.tag(tag);
        }
        for (path, value) in &self.payload {
            filter = filter.payload(path, value.clone());
        }
        for (path, value) in &self.metadata {
            filter = filter.metadata(path, value.clone());
        }
        let (after, before) = self.died(now)?;
        if let Some(after) = after {
            filter = filter.ended_after(after);
        }
        if let Some(before) = before {
            filter = filter.ended_before(before);
        }
        Ok(filter)
    }

    /// To redrive or discard with.
    pub(super) fn to_dead_filter(&self, now: Timestamp) -> anyhow::Result<DeadFilter> {
        let mut filter = DeadFilter::all();
        if let Some(queue) = &self.queue {
            filter = filter.queue(queue);
        }
        if let Some(kind) = &self.kind {
            filter = filter.kind(kind);
        }
        if let Some(reason) = self.reason {
            filter = filter.reason(reason);
        }
        if let Some(error) = &self.error {
            filter = filter.error(error);
        }
        if let Some(tag) = &self.tag {
            filter = filter.tag(tag);
        }
        for (path, value) in &self.payload {
            filter = filter.payload(path, value.clone());
        }
        for (path, value) in &self.metadata {
            filter = filter.metadata(path, value.clone());
        }
        let (after, before) = self.died(now)?;
        if let Some(after) = after {
            filter = filter.died_after(after);
        }
        if let Some(before) = before {
            filter = filter.died_before(before);
        }
        Ok(filter)
    }
}
