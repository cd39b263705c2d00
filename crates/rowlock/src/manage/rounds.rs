//! The loop under everything that changes many jobs by a filter: call after call, each a transaction of its own and of bounded
//! work, until the database says that there is nothing more.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::row;
use crate::client::Client;
use crate::db::{Param, RawJson};
use crate::error::{Invalid, Result};

/// Jobs in one call.
const ROUND_JOBS: u64 = 1000;

/// Told after each round what has been done so far.
pub(super) type OnProgress<'a, T> = Box<dyn FnMut(&T) + Send + 'a>;

/// What the rounds add up to.
pub(super) trait Tally: Default + Send {
    /// Adds what one call answered; returns how many jobs that call took in hand.
    fn add(&mut self, row: &Row) -> u64;
}

/// Runs a statement that takes `max_jobs` as `$1` and `next` as `$2`, and answers with a row that has a `next`, until that is
/// null or `limit` jobs have been taken in hand. `params` are the parameters from `$3` on.
pub(super) async fn run<T: Tally>(
    client: &Client,
    doing: &str,
    sql: &str,
    params: &[Param<'_>],
    limit: Option<u64>,
    mut on_progress: Option<OnProgress<'_, T>>,
) -> Result<T> {
    let mut total = T::default();
    let mut left = limit.unwrap_or(u64::MAX);
    let mut next: Option<String> = None;
    loop {
        let max_jobs = left.min(ROUND_JOBS) as i32;
        let from = next.as_deref().map(RawJson);
        let mut all: Vec<Param<'_>> = vec![(&max_jobs, Type::INT4), (&from, Type::JSONB)];
        all.extend(params.iter().cloned());
        let rows = client.rows(doing, sql, &all).await?;
        left = left.saturating_sub(total.add(&rows[0]));
        if let Some(tell) = &mut on_progress {
            tell(&total);
        }
        next = row::raw(&rows[0], "next")?.map(|next| next.get().to_owned());
        if next.is_none() || left == 0 {
            return Ok(total);
        }
    }
}

pub(super) fn check_limit(limit: Option<u64>) -> Result<(), Invalid> {
    if limit == Some(0) {
        let rule = "is out of range: leave it out, or take at least 1 job";
        return Err(Invalid::new("limit", 0, rule));
    }
    Ok(())
}

pub(super) fn check_rate(rate: Option<f64>) -> Result<(), Invalid> {
    match rate {
        Some(rate) if !(0.001..=1_000_000.0).contains(&rate) => Err(Invalid::new(
            "rate",
            rate,
            "is out of range: it must be from 0.001 to 1000000 jobs per second, or left out for all at once",
        )),
        _ => Ok(()),
    }
}
