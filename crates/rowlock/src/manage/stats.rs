//! Numbers: how full the queues are, how many jobs finish, how long they wait and run.

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::row;
use crate::client::Client;
use crate::error::Result;
use crate::validate;

/// Numbers of one queue. Depths count up to 10,000; times are of the successful jobs of the last hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueStats {
    /// The queue.
    pub name: String,
    /// Whether it is paused.
    pub paused: bool,
    /// Jobs that wait for a worker.
    pub ready: u64,
    /// Jobs that a worker has.
    pub running: u64,
    /// Jobs that are for later.
    pub scheduled: u64,
    /// Dead letters.
    pub dead: u64,
    /// Whether one of the depths stopped at 10,000, so that there may be more.
    pub capped: bool,
    /// How long the job that has waited longest has waited.
    pub oldest_wait_ms: Option<i64>,
    /// Jobs that finished in the last minute.
    pub finished_minute: u64,
    /// Jobs that finished in the last hour.
    pub finished_hour: u64,
    /// Whether there were too many to count, and the numbers are worked out from the most recent ones.
    pub estimated: bool,
    /// How many jobs the times below rest on.
    pub sampled: u64,
    /// Half of the jobs started within this time after they were due.
    pub wait_p50_ms: Option<i64>,
    /// 95 % of them did.
    pub wait_p95_ms: Option<i64>,
    /// 99 % of them did.
    pub wait_p99_ms: Option<i64>,
    /// Half of the jobs ran no longer than this.
    pub run_p50_ms: Option<i64>,
    /// 95 % of them did not.
    pub run_p95_ms: Option<i64>,
    /// 99 % of them did not.
    pub run_p99_ms: Option<i64>,
}

impl QueueStats {
    fn read(r: &Row) -> Self {
        Self {
            name: r.get("name"),
            paused: r.get("paused"),
            ready: row::count(r, "ready"),
            running: row::count(r, "running"),
            scheduled: row::count(r, "scheduled"),
            dead: row::count(r, "dead"),
            capped: r.get("capped"),
            oldest_wait_ms: r.get("oldest_wait_ms"),
            finished_minute: row::count(r, "finished_minute"),
            finished_hour: row::count(r, "finished_hour"),
            estimated: r.get("estimated"),
            sampled: row::count(r, "sampled"),
            wait_p50_ms: r.get("wait_p50_ms"),
            wait_p95_ms: r.get("wait_p95_ms"),
            wait_p99_ms: r.get("wait_p99_ms"),
            run_p50_ms: r.get("run_p50_ms"),
            run_p95_ms: r.get("run_p95_ms"),
            run_p99_ms: r.get("run_p99_ms"),
        }
    }
}

impl Client {
    /// Numbers of all queues, by name.
    pub async fn stats(&self) -> Result<Vec<QueueStats>> {
        self.stats_of(None).await
    }

    /// Numbers of one queue; `None` if no job has named it yet.
    pub async fn queue_stats(&self, queue: &str) -> Result<Option<QueueStats>> {
        validate::name("queue", queue)?;
        Ok(self.stats_of(Some(queue)).await?.pop())
    }

    async fn stats_of(&self, queue: Option<&str>) -> Result<Vec<QueueStats>> {
        let sql = "select * from rowlock.stats($1)";
        let rows = self
            .rows("ask for numbers", sql, &[(&queue, Type::TEXT)])
            .await?;
        Ok(rows.iter().map(QueueStats::read).collect())
    }
}
