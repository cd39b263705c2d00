//! What the harness says by environment variables.

use std::str::FromStr;

use anyhow::{Context, Result};

#[derive(Debug, Clone)]
pub struct Config {
    /// `bulk`, `single`, `drain`, `steady` or `latency`.
    pub scenario: String,
    pub url: String,
    /// Jobs in each measured phase.
    pub jobs: u64,
    /// Who enqueue one job, or one small batch, after the other.
    pub producers: u64,
    /// Who load in bulk.
    pub loaders: u64,
    /// Jobs at once.
    pub workers: usize,
    /// How often a drain is repeated in the same tables.
    pub rounds: u64,
    /// Keep finished jobs, where that can be chosen.
    pub history: bool,
    /// How long each handler takes.
    pub handler_ms: u64,
    /// How large payloads are, about; 0: the number alone.
    pub payload_bytes: usize,
    /// Single enqueues while all slots of a worker are taken.
    pub busy: bool,
    /// A client for each producer, where one client would put the jobs of several into one statement.
    pub apart: bool,
    /// A choice between several ways of the same peer, such as `default`.
    pub variant: String,
}

impl Config {
    pub(crate) fn read() -> Result<Self> {
        Ok(Self {
            scenario: std::env::args()
                .nth(1)
                .context("usage: ADAPTER SCENARIO, with DATABASE_URL and JOBS set")?,
            url: std::env::var("DATABASE_URL").context("DATABASE_URL is not set")?,
            jobs: number("JOBS", 10_000)?,
            producers: number("PRODUCERS", 4)?,
            loaders: number("LOADERS", 4)?,
            workers: number("WORKERS", 100)?,
            rounds: number("ROUNDS", 1)?,
            history: number("HISTORY", 0)? != 0,
            handler_ms: number("HANDLER_MS", 0)?,
            payload_bytes: number("PAYLOAD_BYTES", 0)?,
            busy: number("BUSY", 0)? != 0,
            apart: number("APART", 0)? != 0,
            variant: std::env::var("VARIANT").unwrap_or_default(),
        })
    }

    /// How many handlers are to be at work at once, where a scenario says so.
    pub fn at_once(&self) -> Option<usize> {
        (self.handler_ms > 0).then_some(self.workers)
    }

    /// How many enqueue at the same time at most. A pool has so many connections open before anything is measured.
    pub fn enqueuers(&self) -> u32 {
        u32::try_from(self.producers.max(self.loaders)).unwrap_or(u32::MAX)
    }
}

fn number<T: FromStr>(name: &str, default: T) -> Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{name}={text} is not a number")),
        Err(_) => Ok(default),
    }
}
