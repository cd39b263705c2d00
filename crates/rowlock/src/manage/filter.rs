//! Which jobs: the filter of a search, and where it goes on. Pure.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::dead::DeadReason;
use super::jobs::JobState;
use crate::error::Invalid;
use crate::validate;

/// Most jobs in one answer.
const LIMIT_MAX: u32 = 1000;
/// Most paths in one filter.
const PATHS_MAX: usize = 20;

/// Which jobs to list: those that fit all of it. An empty filter is all jobs.
///
/// ```
/// use rowlock::manage::{JobFilter, JobState};
///
/// let filter = JobFilter::new()
///     .state(JobState::Dead)
///     .queue("mail")
///     .error("timeout")
///     .payload("user.id", 7)
///     .limit(20);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[must_use = "a filter does nothing until it is given to Client::jobs"]
pub struct JobFilter {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    states: Vec<JobState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<DeadReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    payload: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_after: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_before: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_after: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_before: Option<Timestamp>,
    #[serde(skip)]
    limit: Option<u32>,
    #[serde(skip)]
    next: Option<Next>,
}

impl JobFilter {
    /// All jobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Jobs in this state; called again, in this one too.
    pub fn state(mut self, state: JobState) -> Self {
        self.states.push(state);
        self
    }

    /// Jobs in any of these states.
    pub fn states(mut self, states: impl IntoIterator<Item = JobState>) -> Self {
        self.states.extend(states);
        self
    }

    /// Jobs of this queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Jobs of this kind.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Jobs that carry this tag.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Jobs that are dead for this reason.
    pub fn reason(mut self, reason: DeadReason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Jobs with this text in one of their errors, in upper or lower case.
    pub fn error(mut self, text: impl Into<String>) -> Self {
        self.error = Some(text.into());
        self
    }

    /// Jobs whose payload has this value at this path: names joined by dots, such as `user.id`. A text also fits a number or
    /// a truth value that is written so.
    pub fn payload(mut self, path: impl Into<String>, value: impl Into<Value>) -> Self {
        self.payload.insert(path.into(), value.into());
        self
    }

    /// As [`payload`](Self::payload), in the metadata.
    pub fn metadata(mut self, path: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.insert(path.into(), value.into());
        self
    }

    /// Jobs enqueued at this time or later.
    pub fn created_after(mut self, at: Timestamp) -> Self {
        self.created_after = Some(at);
        self
    }

    /// Jobs enqueued before this time.
    pub fn created_before(mut self, at: Timestamp) -> Self {
        self.created_before = Some(at);
        self
    }

    /// Jobs that finished or died at this time or later.
    pub fn ended_after(mut self, at: Timestamp) -> Self {
        self.ended_after = Some(at);
        self
    }

    /// Jobs that finished or died before this time.
    pub fn ended_before(mut self, at: Timestamp) -> Self {
        self.ended_before = Some(at);
        self
    }

    /// How many jobs to list at most: from 1 to 1000, 50 by default.
    pub fn limit(mut self, jobs: u32) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// Goes on where an earlier answer with the same filter stopped.
    pub fn after(mut self, next: Next) -> Self {
        self.next = Some(next);
        self
    }

    pub(super) fn jobs_max(&self) -> i32 {
        self.limit.unwrap_or(50).min(LIMIT_MAX) as i32
    }

    pub(super) fn next(&self) -> Option<&Next> {
        self.next.as_ref()
    }

    /// As `rowlock.find_jobs` takes it.
    pub(super) fn to_json(&self) -> String {
        // Plain types with text keys: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Refuses what the database would refuse.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        for (what, name) in [
            ("queue", &self.queue),
            ("kind", &self.kind),
            ("tag", &self.tag),
        ] {
            if let Some(name) = name {
                validate::name(what, name)?;
            }
        }
        if let Some(error) = &self.error {
            check_error(error)?;
        }
        check_paths("payload", &self.payload)?;
        check_paths("metadata", &self.metadata)?;
        let (after, before) = (self.created_after, self.created_before);
        check_order("created_after", after, "created_before", before)?;
        let (after, before) = (self.ended_after, self.ended_before);
        check_order("ended_after", after, "ended_before", before)?;
        if let Some(limit) = self.limit.filter(|n| !(1..=LIMIT_MAX).contains(n)) {
            let rule = "is out of range: it must be from 1 to 1000";
            return Err(Invalid::new("limit", limit, rule));
        }
        validate::no_nul("filter", &self.to_json())
    }
}

/// What is wanted of a document.
pub(super) fn check_paths(what: &'static str, paths: &Map<String, Value>) -> Result<(), Invalid> {
    if paths.contains_key("") {
        let rule = "is an empty path: name a field, such as user.id";
        return Err(Invalid::new(what, "", rule));
    }
    if paths.len() > PATHS_MAX {
        let rule = "paths are too many: at most 20";
        return Err(Invalid::new(what, paths.len(), rule));
    }
    validate::no_nul(what, &paths_json(paths))
}

/// What is wanted of a document, as the database takes it.
pub(super) fn paths_json(paths: &Map<String, Value>) -> String {
    // Plain types with text keys: this cannot fail.
    serde_json::to_string(paths).unwrap_or_default()
}

/// A text to look for among errors.
pub(super) fn check_error(text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        let rule = "is empty: leave it out, or give a text to look for";
        return Err(Invalid::new("error", text, rule));
    }
    if text.contains('\0') {
        let rule = "holds a NUL character, which Postgres cannot store";
        return Err(Invalid::new("error", text, rule));
    }
    Ok(())
}

/// A stretch of time must have a length.
pub(super) fn check_order(
    after_name: &'static str,
    after: Option<Timestamp>,
    before_name: &'static str,
    before: Option<Timestamp>,
) -> Result<(), Invalid> {
    match (after, before) {
        (Some(after), Some(before)) if after >= before => Err(Invalid::new(
            before_name,
            before,
            format!("does not come after {after_name}, {after}"),
        )),
        _ => Ok(()),
    }
}

/// Where a list goes on: opaque, and good only for the same filter. As text it can travel in an address or on a command line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Next(pub(super) Value);

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Next {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || Invalid::new("next", text, "is not what an earlier answer gave");
        let value: Value = serde_json::from_str(text).map_err(|_| wrong())?;
        if !value.is_object() || validate::no_nul("next", text).is_err() {
            return Err(wrong());
        }
        Ok(Self(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_filter_is_written_as_the_database_reads_it() {
        let filter = JobFilter::new()
            .state(JobState::Dead)
            .queue("mail")
            .reason(DeadReason::Poison)
            .payload("user.id", 7)
            .created_after("2030-01-01T00:00:00Z".parse().unwrap())
            .limit(3);
        filter.check().unwrap();
        assert_eq!(
            serde_json::to_value(&filter).unwrap(),
            json!({"states": ["dead"], "queue": "mail", "reason": "poison", "payload": {"user.id": 7},
                   "created_after": "2030-01-01T00:00:00Z"})
        );
        assert_eq!(JobFilter::new().to_json(), "{}");
    }

    #[test]
    fn bad_filters_are_refused_by_name() {
        let t: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let many = (0..21).fold(JobFilter::new(), |f, n| f.metadata(n.to_string(), n));
        for (bad, what) in [
            (JobFilter::new().queue(""), "queue"),
            (JobFilter::new().kind("x".repeat(201)), "kind"),
            (JobFilter::new().tag("a\nb"), "tag"),
            (JobFilter::new().error(""), "error"),
            (JobFilter::new().error("a\0b"), "error"),
            (JobFilter::new().payload("", 1), "payload"),
            (JobFilter::new().payload("a", "\0"), "payload"),
            (many, "metadata"),
            (
                JobFilter::new().created_after(t).created_before(t),
                "created_before",
            ),
            (
                JobFilter::new().ended_after(t).ended_before(t),
                "ended_before",
            ),
            (JobFilter::new().limit(0), "limit"),
            (JobFilter::new().limit(1001), "limit"),
        ] {
            assert_eq!(bad.check().unwrap_err().what, what);
        }
    }

    #[test]
    fn where_to_go_on_travels_as_text() {
        let next = Next(json!({"walk": "ids", "id": 7}));
        assert_eq!(next.to_string().parse::<Next>().unwrap(), next);
        for bad in ["", "7", "[1]", "{", "{\"a\":\"\\u0000\"}"] {
            assert_eq!(bad.parse::<Next>().unwrap_err().what, "next", "{bad}");
        }
    }
}
