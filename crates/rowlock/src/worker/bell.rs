//! What a worker asks of the doorbell: to ring for it, or not to.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::core::Core;
use super::idle::{ARMED_FOR, Idle};
use crate::db::Link;
use crate::error::Result;

/// After the bell could not be armed.
const ARM_FAILED: Duration = Duration::from_millis(100);

impl Core {
    /// Arms the bell, or waits for a moment if that fails. Returns whether it did.
    pub(super) async fn arm(&self, link: &Link, idle: &mut Idle) -> bool {
        let sent = Instant::now();
        match self.send_arm(link).await {
            Ok((xid, next_due)) => {
                idle.armed(sent, Instant::now(), xid, next_due);
                true
            }
            Err(e) => {
                tracing::debug!(error = %e, "cannot arm the bell");
                self.pause_looking(ARM_FAILED).await;
                false
            }
        }
    }

    async fn send_arm(&self, link: &Link) -> Result<(i64, Option<Duration>)> {
        let (queues, for_ms) = (self.queue_names(), ARMED_FOR.as_millis() as i32);
        let rows = self
            .look(
                link,
                "arm the bell",
                "select xid, (ceil(extract(epoch from next_at - rowlock.clock()) * 1000))::bigint from rowlock.arm($1, $2)",
                &[(&queues, Type::TEXT_ARRAY), (&for_ms, Type::INT4)],
            )
            .await?;
        let due = rows.first().and_then(|r| r.get::<_, Option<i64>>(1));
        let due = due.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
        Ok((rows.first().map_or(0, |r| r.get(0)), due))
    }

    pub(super) async fn disarm(&self, link: &Link, queues: Vec<String>) {
        let _ = self
            .look(
                link,
                "disarm the bell",
                "select rowlock.disarm($1)",
                &[(&queues, Type::TEXT_ARRAY)],
            )
            .await;
    }

    /// Whether somebody who commits waits for NOTIFY's lock: the disk is slow, or there are many of them.
    pub(super) async fn commits_wait(&self, link: &Link) -> bool {
        let waits = self
            .look(
                link,
                "ask whether commits wait",
                "select exists (select from pg_catalog.pg_locks l where l.locktype = 'object' and l.classid = 'pg_catalog.pg_database'::regclass \
                 and l.objid = 0 and not l.granted)",
                &[],
            )
            .await;
        waits.is_ok_and(|rows| rows.first().is_some_and(|r| r.get(0)))
    }

    pub(super) async fn oldest_xid(&self, link: &Link) -> Result<i64> {
        let rows = self
            .look(
                link,
                "look for open transactions",
                "select rowlock.oldest_xid()",
                &[],
            )
            .await?;
        Ok(rows.first().map_or(0, |r| r.get(0)))
    }
}
