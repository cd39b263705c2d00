//! What a measurement costs: time, CPU of Postgres and of this process, write-ahead log, the size of the tables.

use std::time::Instant;

use super::cpu;
use super::figures::Figures;
use super::stage::{SCHEMA, Stage};

/// Readings at one moment.
pub(super) struct Meter {
    pub(super) at: Instant,
    client_cpu_us: u64,
    postgres_cpu_us: Option<u64>,
    lsn: String,
    table_bytes: f64,
    index_bytes: f64,
    history_bytes: f64,
}

impl Meter {
    pub(super) async fn read(stage: &Stage) -> anyhow::Result<Self> {
        let sql = format!(
            "select pg_current_wal_insert_lsn()::text, pg_table_size('{SCHEMA}.job')::float8, pg_indexes_size('{SCHEMA}.job')::float8,
                    (select sum(pg_total_relation_size(relid)) from pg_partition_tree('{SCHEMA}.finished'))::float8"
        );
        let row = stage.sql.query_one(&sql, &[]).await?;
        Ok(Self {
            lsn: row.get(0),
            table_bytes: row.get(1),
            index_bytes: row.get(2),
            history_bytes: row.get(3),
            postgres_cpu_us: stage.postgres_cpu_us(),
            client_cpu_us: cpu::client_us(),
            at: Instant::now(),
        })
    }

    /// What it cost since, for each of `jobs`, which were done at `end`.
    pub(super) async fn cost(
        &self,
        stage: &Stage,
        jobs: u64,
        end: Instant,
    ) -> anyhow::Result<Figures> {
        let seconds = end.saturating_duration_since(self.at).as_secs_f64();
        let now = Self::read(stage).await?;
        let sql = "select ($2::text::pg_lsn - $1::text::pg_lsn)::float8";
        let wal: f64 = stage
            .sql
            .query_one(sql, &[&self.lsn, &now.lsn])
            .await?
            .get(0);
        let each = |total: f64| total / jobs.max(1) as f64;
        let mut figures = Figures::from([
            ("seconds", seconds),
            ("per_second", jobs as f64 / seconds.max(1e-9)),
            (
                "client_cpu_us",
                each(now.client_cpu_us.saturating_sub(self.client_cpu_us) as f64),
            ),
            ("wal_bytes", each(wal)),
            ("table_bytes_before", self.table_bytes),
            ("table_bytes_after", now.table_bytes),
            ("index_bytes_before", self.index_bytes),
            ("index_bytes_after", now.index_bytes),
            ("history_bytes_before", self.history_bytes),
            ("history_bytes_after", now.history_bytes),
        ]);
        if let Some((end, begin)) = now.postgres_cpu_us.zip(self.postgres_cpu_us) {
            figures.insert("postgres_cpu_us", each(end.saturating_sub(begin) as f64));
        }
        if let Some(images) = stage.page_images(&self.lsn, &now.lsn).await {
            figures.insert("wal_bytes_without_images", each(wal - images));
        }
        Ok(figures)
    }
}
