//! Dead letters: redrive and discard by filter. They are listed like all jobs, by [`Client::jobs`].

use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use jiff::{Timestamp, ToSpan};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::filter::{check_error, check_order, check_paths, paths_json};
use super::rounds::{self, OnProgress, Tally, check_limit, check_rate};
use super::{row, words};
use crate::client::Client;
use crate::db::{Micros, RawJson};
use crate::error::{Invalid, Result};
use crate::job::JobId;
use crate::validate;

const REDRIVE: &str = "select redriven, duplicates, next from rowlock.redrive(max_jobs => $1, next => $2, queue => $3, kind => $4, \
                       reason => $5, error => $6, tag => $7, payload => $8, metadata => $9, died_after => $10, died_before => $11, ids => $12, \
                       rate => $13, start_at => $14)";
const DISCARD: &str = "select discarded, next from rowlock.discard(max_jobs => $1, next => $2, queue => $3, kind => $4, reason => $5, \
                       error => $6, tag => $7, payload => $8, metadata => $9, died_after => $10, died_before => $11, ids => $12)";

words! {
    /// Why a job is dead.
    pub enum DeadReason ("reason", "is no reason to die") {
        /// It is out of attempts.
        Failed = "failed",
        /// Its workers died or lost their connections under it too often.
        Poison = "poison",
        /// Its handler said that it must not be tried again.
        Refused = "refused",
    }
}

/// Which of the dead: those that fit all of it. An empty filter is all of them.
///
/// ```
/// use rowlock::manage::DeadFilter;
///
/// let filter = DeadFilter::new().queue("mail").error("connection refused");
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "a filter does nothing until it is given to Client::redrive or Client::discard"]
pub struct DeadFilter {
    queue: Option<String>,
    kind: Option<String>,
    reason: Option<DeadReason>,
    error: Option<String>,
    tag: Option<String>,
    payload: Map<String, Value>,
    metadata: Map<String, Value>,
    died_after: Option<Timestamp>,
    died_before: Option<Timestamp>,
    ids: Option<Vec<i64>>,
    /// Said in so many words, so that nothing is discarded by an oversight.
    all: bool,
}

impl DeadFilter {
    /// A filter to be narrowed.
    pub fn new() -> Self {
        Self::default()
    }

    /// All of the dead, and that on purpose: [`Client::discard`] refuses a filter that merely was not narrowed.
    pub fn all() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    /// Those of this queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Those of this kind.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Those that are dead for this reason.
    pub fn reason(mut self, reason: DeadReason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Those with this text in one of their errors, in upper or lower case.
    pub fn error(mut self, text: impl Into<String>) -> Self {
        self.error = Some(text.into());
        self
    }

    /// Those that carry this tag.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Those whose payload has this value at this path: names joined by dots, such as `user.id`. A text also fits a number or a
    /// truth value that is written so.
    pub fn payload(mut self, path: impl Into<String>, value: impl Into<Value>) -> Self {
        self.payload.insert(path.into(), value.into());
        self
    }

    /// As [`payload`](Self::payload), in the metadata.
    pub fn metadata(mut self, path: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.insert(path.into(), value.into());
        self
    }

    /// Those that died at this time or later.
    pub fn died_after(mut self, at: Timestamp) -> Self {
        self.died_after = Some(at);
        self
    }

    /// Those that died before this time.
    pub fn died_before(mut self, at: Timestamp) -> Self {
        self.died_before = Some(at);
        self
    }

    /// Those with one of these ids: at most 10,000.
    pub fn ids(mut self, ids: impl IntoIterator<Item = JobId>) -> Self {
        self.ids = Some(ids.into_iter().map(|id| id.0).collect());
        self
    }

    fn check(&self) -> Result<(), Invalid> {
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
        if let Some(ids) = self.ids.as_ref().filter(|ids| ids.len() > 10_000) {
            let rule = "entries are too many for one call: at most 10000";
            return Err(Invalid::new("ids", ids.len(), rule));
        }
        let (after, before) = (self.died_after, self.died_before);
        check_order("died_after", after, "died_before", before)
    }

    /// Whether it leaves out any job.
    fn is_narrow(&self) -> bool {
        *self
            != Self {
                all: self.all,
                ..Self::default()
            }
    }
}

/// What a redrive did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Redriven {
    /// How many jobs are live again.
    pub redriven: u64,
    /// How many stay dead because their unique key is taken by a live job.
    pub duplicates: u64,
}

impl Tally for Redriven {
    fn add(&mut self, r: &Row) -> u64 {
        let (redriven, duplicates) = (row::count(r, "redriven"), row::count(r, "duplicates"));
        self.redriven += redriven;
        self.duplicates += duplicates;
        redriven + duplicates
    }
}

/// What a discard did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Discarded {
    /// How many dead jobs are gone.
    pub discarded: u64,
}

impl Tally for Discarded {
    fn add(&mut self, r: &Row) -> u64 {
        let discarded = row::count(r, "discarded");
        self.discarded += discarded;
        discarded
    }
}

/// A redrive, which happens when this is awaited.
#[must_use = "nothing is redriven until this is awaited"]
pub struct Redrive<'a> {
    client: &'a Client,
    filter: DeadFilter,
    rate: Option<f64>,
    start_at: Option<Timestamp>,
    limit: Option<u64>,
    on_progress: Option<OnProgress<'a, Redriven>>,
}

impl<'a> Redrive<'a> {
    /// Spreads the jobs out: so many per second become due. Without it, all are due at once.
    pub fn rate(mut self, jobs_per_second: f64) -> Self {
        self.rate = Some(jobs_per_second);
        self
    }

    /// When the first of them is due; now, by default.
    pub fn start_at(mut self, at: Timestamp) -> Self {
        self.start_at = Some(at);
        self
    }

    /// Takes at most so many jobs, those that died first: to try a few before all.
    pub fn limit(mut self, jobs: u64) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// Is told after each round what has been done so far.
    pub fn on_progress(mut self, tell: impl FnMut(&Redriven) + Send + 'a) -> Self {
        self.on_progress = Some(Box::new(tell));
        self
    }
}

impl<'a> IntoFuture for Redrive<'a> {
    type Output = Result<Redriven>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            self.filter.check()?;
            check_rate(self.rate)?;
            check_limit(self.limit)?;
            if let Some(at) = self.start_at {
                validate::run_at("start_at", at)?;
            }
            let filter = &self.filter;
            let died_before = dead_by_now(self.client, filter).await?;
            let (payload, metadata) = (json(&filter.payload), json(&filter.metadata));
            rounds::run(
                self.client,
                "redrive dead jobs",
                REDRIVE,
                &[
                    (&filter.queue, Type::TEXT),
                    (&filter.kind, Type::TEXT),
                    (&filter.reason.map(DeadReason::as_str), Type::TEXT),
                    (&filter.error, Type::TEXT),
                    (&filter.tag, Type::TEXT),
                    (&payload.as_deref().map(RawJson), Type::JSONB),
                    (&metadata.as_deref().map(RawJson), Type::JSONB),
                    (
                        &filter.died_after.map(Micros::from_timestamp),
                        Type::TIMESTAMPTZ,
                    ),
                    (&died_before, Type::TIMESTAMPTZ),
                    (&filter.ids, Type::INT8_ARRAY),
                    (&self.rate, Type::FLOAT8),
                    (
                        &self.start_at.map(Micros::from_timestamp),
                        Type::TIMESTAMPTZ,
                    ),
                ],
                self.limit,
                self.on_progress,
            )
            .await
        })
    }
}

/// A discard, which happens when this is awaited.
#[must_use = "nothing is discarded until this is awaited"]
pub struct Discard<'a> {
    client: &'a Client,
    filter: DeadFilter,
    limit: Option<u64>,
    on_progress: Option<OnProgress<'a, Discarded>>,
}

impl<'a> Discard<'a> {
    /// Takes at most so many jobs, those that died first.
    pub fn limit(mut self, jobs: u64) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// Is told after each round what has been done so far.
    pub fn on_progress(mut self, tell: impl FnMut(&Discarded) + Send + 'a) -> Self {
        self.on_progress = Some(Box::new(tell));
        self
    }
}

impl<'a> IntoFuture for Discard<'a> {
    type Output = Result<Discarded>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let filter = &self.filter;
            if !filter.all && !filter.is_narrow() {
                let rule = "would discard every dead job: if that is meant, say DeadFilter::all()";
                return Err(Invalid::new("filter", "", rule).into());
            }
            filter.check()?;
            check_limit(self.limit)?;
            let died_before = dead_by_now(self.client, filter).await?;
            let (payload, metadata) = (json(&filter.payload), json(&filter.metadata));
            rounds::run(
                self.client,
                "discard dead jobs",
                DISCARD,
                &[
                    (&filter.queue, Type::TEXT),
                    (&filter.kind, Type::TEXT),
                    (&filter.reason.map(DeadReason::as_str), Type::TEXT),
                    (&filter.error, Type::TEXT),
                    (&filter.tag, Type::TEXT),
                    (&payload.as_deref().map(RawJson), Type::JSONB),
                    (&metadata.as_deref().map(RawJson), Type::JSONB),
                    (
                        &filter.died_after.map(Micros::from_timestamp),
                        Type::TIMESTAMPTZ,
                    ),
                    (&died_before, Type::TIMESTAMPTZ),
                    (&filter.ids, Type::INT8_ARRAY),
                ],
                self.limit,
                self.on_progress,
            )
            .await
        })
    }
}

/// What is wanted of a document; null if that is nothing.
fn json(paths: &Map<String, Value>) -> Option<String> {
    (!paths.is_empty()).then(|| paths_json(paths))
}

/// The end of the time of death that a loop looks at: what dies while it goes on is left for the next one. A job that is redriven
/// and dies at once would otherwise keep it going for ever.
async fn dead_by_now(client: &Client, filter: &DeadFilter) -> Result<Option<Micros>> {
    if filter.ids.is_some() {
        return Ok(filter.died_before.map(Micros::from_timestamp));
    }
    let now = client.clock().await? + 1.microsecond();
    let end = filter.died_before.map_or(now, |before| before.min(now));
    // A beginning that lies ahead finds nothing, which is no reason to be refused.
    let end = match filter.died_after {
        Some(after) if after >= end => after + 1.microsecond(),
        _ => end,
    };
    Ok(Some(Micros::from_timestamp(end)))
}

impl Client {
    /// Puts dead jobs back to work, with no failure counted: those that fit the filter and are dead by now.
    ///
    /// ```no_run
    /// # use rowlock::manage::DeadFilter;
    /// # async fn f(client: rowlock::Client) -> rowlock::Result<()> {
    /// let did = client
    ///     .redrive(DeadFilter::new().queue("mail").error("connection refused"))
    ///     .rate(50.0)
    ///     .on_progress(|so_far| println!("{} jobs", so_far.redriven))
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn redrive(&self, filter: DeadFilter) -> Redrive<'_> {
        Redrive {
            client: self,
            filter,
            rate: None,
            start_at: None,
            limit: None,
            on_progress: None,
        }
    }

    /// Deletes dead jobs for good: those that fit the filter and are dead by now. To keep a copy, see
    /// [`archive_to`](Self::archive_to).
    pub fn discard(&self, filter: DeadFilter) -> Discard<'_> {
        Discard {
            client: self,
            filter,
            limit: None,
            on_progress: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_leaves_nothing_out_is_not_narrow() {
        assert!(!DeadFilter::new().is_narrow());
        assert!(!DeadFilter::all().is_narrow());
        assert!(DeadFilter::new().reason(DeadReason::Failed).is_narrow());
        assert!(DeadFilter::all().ids([JobId(7)]).is_narrow());
        assert!(DeadFilter::new().tag("vip").is_narrow());
        assert!(DeadFilter::new().payload("user.id", 7).is_narrow());
    }
}
