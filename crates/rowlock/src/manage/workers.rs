//! Workers: who works, where, on what.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_postgres::Row;

use super::row;
use crate::client::Client;
use crate::error::Result;

/// A worker, as it last reported.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// Its id: each start of a worker has its own.
    pub id: i64,
    /// Its name; several may have the same.
    pub name: String,
    /// The machine that it runs on.
    pub host: String,
    /// Its process there.
    pub pid: i32,
    /// The version of Rowlock, or of whatever program it is.
    pub version: String,
    /// `running`, `draining` (it finishes what it has and takes no more) or `stopped`.
    pub state: String,
    /// Whether it has neither stopped nor missed its last few reports.
    pub alive: bool,
    /// How many jobs it was running.
    pub running: i32,
    /// How many it can run at once.
    pub concurrency: i32,
    /// The queues that it serves.
    pub queues: Vec<String>,
    /// The kinds that it knows; empty for all.
    pub kinds: Vec<String>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it last reported.
    pub seen_at: Timestamp,
    /// What else it said about itself.
    pub details: Option<Box<RawValue>>,
}

impl WorkerInfo {
    fn read(r: &Row) -> Result<Self> {
        Ok(Self {
            id: r.get("id"),
            name: r.get("name"),
            host: r.get("host"),
            pid: r.get("pid"),
            version: r.get("version"),
            state: r.get("state"),
            alive: r.get("alive"),
            running: r.get("running"),
            concurrency: r.get("concurrency"),
            queues: r.get("queues"),
            kinds: r.get("kinds"),
            started_at: row::moment(r, "started_at"),
            seen_at: row::moment(r, "seen_at"),
            details: row::raw(r, "details")?,
        })
    }
}

impl Client {
    /// The workers, also those that stopped or died lately: the living first, then by name. At most 10,000.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>> {
        let sql = "select * from rowlock.workers order by alive desc, name, id limit 10000";
        let rows = self.rows("list workers", sql, &[]).await?;
        rows.iter().map(WorkerInfo::read).collect()
    }
}
