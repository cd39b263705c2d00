//! Management: the client's methods against a real database.

mod access;
mod archive;
mod dead;
mod history;
mod jobs;
mod queues;
mod search;
mod stats;
mod why;
mod workers;

use rowlock::{Client, JobId, NewJob};
use rowlock_testkit::TestDb;
use serde_json::{Value, json};

/// A queue, a client of it, and a connection to do with it what clients do not.
pub(super) struct Bench {
    pub(super) client: Client,
    pub(super) pg: tokio_postgres::Client,
    pub(super) db: TestDb,
}

pub(super) async fn bench() -> Bench {
    let (db, client) = crate::support::queue().await;
    let pg = db.connect().await.expect("a connection");
    Bench { client, pg, db }
}

impl Bench {
    /// Enqueues a job with an empty payload.
    pub(super) async fn enqueue(&self, queue: &str, kind: &str) -> JobId {
        self.enqueue_job(job(kind, json!({})).queue(queue.to_owned()))
            .await
    }

    pub(super) async fn enqueue_job(&self, job: NewJob) -> JobId {
        self.client.enqueue_new(job).await.expect("enqueue").id
    }

    /// Runs statements.
    pub(super) async fn sql(&self, sql: &str) {
        self.pg.batch_execute(sql).await.expect(sql);
    }

    /// One number out of the database.
    pub(super) async fn number(&self, sql: &str) -> i64 {
        self.pg.query_one(sql, &[]).await.expect(sql).get(0)
    }

    /// Claims up to `n` jobs of a queue by SQL; returns their ids and tokens in the order of claiming.
    pub(super) async fn claim(&self, queue: &str, n: i32) -> Vec<(JobId, i64)> {
        let rows = self
            .pg
            .query(
                "select id, token from rowlock.claim(array[$1], $2)",
                &[&queue, &n],
            )
            .await
            .expect("claim");
        rows.iter().map(|r| (JobId(r.get(0)), r.get(1))).collect()
    }

    /// Claims the next job of a queue and completes it.
    pub(super) async fn finish(&self, queue: &str) -> JobId {
        let (id, token) = self.claim(queue, 1).await[0];
        self.pg
            .query_one(
                "select done from rowlock.complete($1, array[$2::bigint], array[$3::bigint])",
                &[&queue, &id.0, &token],
            )
            .await
            .expect("complete");
        id
    }

    /// Claims the next job of a queue and lets it die with this error.
    pub(super) async fn kill(&self, queue: &str, error: &str) -> JobId {
        let (id, token) = self.claim(queue, 1).await[0];
        let dead: Vec<i64> = self
            .pg
            .query_one(
                "select dead from rowlock.fail($1, array[$2::bigint], array[$3::bigint], array[$4::text], fates => '{refused}')",
                &[&queue, &id.0, &token, &error],
            )
            .await
            .expect("fail")
            .get(0);
        assert_eq!(dead, [id.0]);
        id
    }

    /// Runs a statement and counts, as the database does, how many rows of the tables of jobs it fetched by index, and how many it
    /// read by sequential scans.
    pub(super) async fn counting(&self, sql: &str) -> (Vec<tokio_postgres::Row>, i64, i64) {
        // The numbers include what the session has not reported yet, and inside a transaction it reports nothing.
        let count = "select coalesce(sum(idx_tup_fetch), 0)::bigint, coalesce(sum(seq_tup_read), 0)::bigint
                       from pg_stat_xact_user_tables
                      where schemaname = 'rowlock' and (relname in ('job', 'dead') or relname like 'finished%')";
        self.sql("begin").await;
        let before = self.pg.query_one(count, &[]).await.expect(count);
        let rows = self.pg.query(sql, &[]).await.expect(sql);
        let after = self.pg.query_one(count, &[]).await.expect(count);
        self.sql("rollback").await;
        let rise = |n| after.get::<_, i64>(n) - before.get::<_, i64>(n);
        (rows, rise(0), rise(1))
    }
}

#[allow(clippy::needless_pass_by_value)] // json!(…) is what it is called with
pub(super) fn job(kind: &str, payload: Value) -> NewJob {
    NewJob::new(kind.to_owned(), &payload).expect("a job")
}
