//! What a measurement costs: time, CPU of Postgres and of this process, write-ahead log.

use std::time::Instant;

use serde::Serialize;

use super::stage::Stage;

/// Readings at one moment.
pub(super) struct Meter {
    at: Instant,
    client_cpu_us: u64,
    postgres_cpu_us: Option<u64>,
    lsn: String,
}

/// The difference between two moments, for each job.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Cost {
    pub(super) seconds: f64,
    pub(super) per_second: f64,
    pub(super) client_cpu_us: f64,
    /// Only when the server runs on this machine.
    pub(super) postgres_cpu_us: Option<f64>,
    pub(super) wal_bytes: f64,
    /// Without the full images of pages that follow a checkpoint; only where pg_walinspect can be installed.
    pub(super) wal_bytes_without_images: Option<f64>,
}

impl Meter {
    pub(super) async fn read(stage: &Stage) -> anyhow::Result<Self> {
        let row = stage
            .sql
            .query_one(
                "select pg_current_wal_insert_lsn()::text, pg_backend_pid()",
                &[],
            )
            .await?;
        let backend: i32 = row.get(1);
        Ok(Self {
            lsn: row.get(0),
            postgres_cpu_us: postgres_cpu_us(backend),
            client_cpu_us: client_cpu_us(),
            at: Instant::now(),
        })
    }

    /// What it cost since, for each of `jobs`.
    pub(super) async fn cost(&self, stage: &Stage, jobs: u64) -> anyhow::Result<Cost> {
        let seconds = self.at.elapsed().as_secs_f64();
        let end = Self::read(stage).await?;
        let sql = "select ($2::text::pg_lsn - $1::text::pg_lsn)::float8";
        let wal: f64 = stage
            .sql
            .query_one(sql, &[&self.lsn, &end.lsn])
            .await?
            .get(0);
        let images = self.page_images(stage, &end.lsn).await;
        let each = |total: f64| total / jobs.max(1) as f64;
        Ok(Cost {
            seconds,
            per_second: jobs as f64 / seconds,
            client_cpu_us: each(end.client_cpu_us.saturating_sub(self.client_cpu_us) as f64),
            postgres_cpu_us: end
                .postgres_cpu_us
                .zip(self.postgres_cpu_us)
                .map(|(e, b)| each(e.saturating_sub(b) as f64)),
            wal_bytes: each(wal),
            wal_bytes_without_images: images.map(|i| each(wal - i)),
        })
    }

    /// Bytes of page images since; reading the log back is not part of what is measured.
    async fn page_images(&self, stage: &Stage, end: &str) -> Option<f64> {
        stage
            .sql
            .batch_execute(
                "set client_min_messages = error; create extension if not exists pg_walinspect",
            )
            .await
            .ok()?;
        let sql = "select coalesce(sum(fpi_size), 0)::float8 from pg_get_wal_stats($1::text::pg_lsn, $2::text::pg_lsn)";
        stage
            .sql
            .query_one(sql, &[&self.lsn, &end])
            .await
            .ok()
            .map(|r| r.get(0))
    }
}

/// User and system time of this process.
fn client_cpu_us() -> u64 {
    stat_cpu_us("self").map_or(0, |s| s.own_us)
}

struct Stat {
    parent: u32,
    own_us: u64,
    /// Of children that have ended.
    children_us: u64,
}

/// Reads `/proc/PID/stat`.
fn stat_cpu_us(pid: &str) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything; what follows the last one is numbers.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |n: usize| fields.get(n)?.parse::<u64>().ok();
    // A tick is 10 ms on every Linux that matters here.
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own_us: (ticks(11)? + ticks(12)?) * 10_000,
        children_us: (ticks(13)? + ticks(14)?) * 10_000,
    })
}

/// User and system time of the whole server that the given backend belongs to; `None` if it is not on this machine.
fn postgres_cpu_us(backend: i32) -> Option<u64> {
    let postmaster = stat_cpu_us(&backend.to_string())?.parent;
    let top = stat_cpu_us(&postmaster.to_string())?;
    let mut total = top.own_us + top.children_us;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name
            .to_str()
            .filter(|n| n.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        if let Some(stat) = stat_cpu_us(pid).filter(|s| s.parent == postmaster) {
            total += stat.own_us;
        }
    }
    Some(total)
}
