//! The machine's own limit on the same table and indexes: rows in by COPY, then updated by their place as a claim updates them, and deleted by
//! their place as a completion deletes them. Batches of 500, 4 connections, statements prepared, and a client that does nothing else.
//!
//! What it costs to write a lease into each row and to take the row away, and nothing else: nothing looks for the rows, nothing locks them, nothing is
//! returned but where they are now. A queue that writes into each row cannot be faster with this table. Claims of a flood of short jobs do not: they
//! write one lease for many (docs/decisions/0017-one-lease-for-many.md), so a drain may come out above.

mod rows;
mod tid;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio_postgres::types::Type;

use super::Session;
use super::figures::Figures;
use super::meter::Meter;
use super::report::Line;
use super::stage::{SCHEMA, Stage, signed};
use tid::Tid;

const CONNECTIONS: usize = 4;
const BATCH: usize = 500;

pub(super) async fn run(session: &mut Session<'_>) -> anyhow::Result<()> {
    let (stage, jobs) = (session.stage, session.options.jobs);
    for (connections, case) in [
        (1, "COPY in, 1 connection"),
        (CONNECTIONS, "COPY in, 4 connections"),
    ] {
        stage.clear(false).await?;
        let figures = copy_in(stage, jobs, connections).await?;
        session.report.add(Line::new("floor", case, jobs, figures));
    }
    // On what the last COPY put in.
    stage.checkpoint().await;
    let figures = claim_and_delete(stage, jobs).await?;
    let line = Line::new("floor", "claim and delete", jobs, figures);
    session.report.add(line);
    Ok(())
}

/// Each connection copies its share, in one transaction.
async fn copy_in(stage: &Stage, jobs: u64, connections: usize) -> anyhow::Result<Figures> {
    let clients = stage.others(connections).await?;
    let _bar = super::watch::spinner("copying in");
    let meter = Meter::read(stage).await?;
    let mut tasks = JoinSet::new();
    for (n, client) in clients.into_iter().enumerate() {
        let share = |n: usize| jobs * n as u64 / connections as u64;
        let numbers = share(n)..share(n + 1);
        let padding = stage.padding().to_owned();
        tasks.spawn(
            async move { anyhow::Ok((rows::copy(&client, numbers, &padding).await?, client)) },
        );
    }
    let mut copied = 0;
    let mut open = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let (rows, client) = done??;
        copied += rows;
        open.push(client);
    }
    let end = Instant::now();
    let figures = meter.cost(stage, jobs, end).await?;
    drop(open);
    let there = stage
        .count(&format!("select count(*) from {SCHEMA}.job"))
        .await?;
    anyhow::ensure!(
        copied == jobs && there == signed(jobs),
        "{jobs} rows were to be copied, {copied} were, {there} are there"
    );
    Ok(figures)
}

/// Each connection updates and deletes its share of the rows, whose places are known before.
async fn claim_and_delete(stage: &Stage, jobs: u64) -> anyhow::Result<Figures> {
    let rows = stage
        .sql
        .query(&format!("select ctid from {SCHEMA}.job"), &[])
        .await?;
    let tids: Vec<Tid> = rows.iter().map(|row| row.get(0)).collect();
    drop(rows);
    let mut hands = Vec::new();
    for _ in 0..CONNECTIONS {
        hands.push(Hand::new(stage).await?);
    }
    let done = Arc::new(AtomicU64::new(0));
    let _bar = super::watch::bar("claiming and deleting", jobs, {
        let done = done.clone();
        move || done.load(Relaxed)
    });
    let meter = Meter::read(stage).await?;
    let mut tasks = JoinSet::new();
    for (n, hand) in hands.into_iter().enumerate() {
        let share = |n: usize| tids.len() * n / CONNECTIONS;
        let mine = tids[share(n)..share(n + 1)].to_vec();
        let done = done.clone();
        tasks.spawn(async move {
            for batch in mine.chunks(BATCH) {
                hand.claim_and_delete(batch).await?;
                done.fetch_add(batch.len() as u64, Relaxed);
            }
            anyhow::Ok(hand)
        });
    }
    let mut open = Vec::new();
    while let Some(done) = tasks.join_next().await {
        open.push(done??);
    }
    let end = Instant::now();
    let figures = meter.cost(stage, jobs, end).await?;
    drop(open);
    let left = stage
        .count(&format!("select count(*) from {SCHEMA}.job"))
        .await?;
    anyhow::ensure!(
        tids.len() as u64 == jobs && left == 0,
        "{} of {jobs} rows were found, {left} are left",
        tids.len()
    );
    Ok(figures)
}

/// Writes the columns that a claim writes, and commits as a claim does: without waiting for the disk. The sub-select is evaluated once.
fn claim_sql() -> String {
    format!(
        "update {SCHEMA}.job
            set lease_until = now() + interval '30 s', claimed_at = now(), token = $2, lease_by = 1, attempt = attempt + 1
          where ctid = any ($1) and (select set_config('synchronous_commit', 'off', true)) = 'off'
         returning ctid"
    )
}

fn delete_sql() -> String {
    format!("delete from {SCHEMA}.job where ctid = any ($1)")
}

/// A connection with its statements.
struct Hand {
    client: tokio_postgres::Client,
    claim: tokio_postgres::Statement,
    delete: tokio_postgres::Statement,
}

impl Hand {
    async fn new(stage: &Stage) -> anyhow::Result<Self> {
        let client = stage.another().await?;
        // Only the scan by place is left, whatever the statistics say.
        client
            .batch_execute("set enable_seqscan = off; set enable_indexscan = off; set enable_bitmapscan = off; set plan_cache_mode = force_generic_plan; set jit = off")
            .await?;
        let claim = client
            .prepare_typed(&claim_sql(), &[Type::TID_ARRAY, Type::INT8])
            .await?;
        let delete = client
            .prepare_typed(&delete_sql(), &[Type::TID_ARRAY])
            .await?;
        Ok(Self {
            client,
            claim,
            delete,
        })
    }

    async fn claim_and_delete(&self, batch: &[Tid]) -> anyhow::Result<()> {
        let token = rand::random::<i64>() | 1;
        let rows = self.client.query(&self.claim, &[&batch, &token]).await?;
        let held: Vec<Tid> = rows.iter().map(|row| row.get(0)).collect();
        let deleted = self
            .client
            .execute(&self.delete, &[&held])
            .await
            .context("cannot delete")?;
        anyhow::ensure!(
            held.len() == batch.len() && deleted == batch.len() as u64,
            "of {} rows {} were claimed and {deleted} deleted",
            batch.len(),
            held.len()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rowlock_testkit::TestDb;

    use super::*;

    #[tokio::test]
    async fn rows_are_found_by_their_place_and_updated_within_their_page() {
        let db = TestDb::new().await.unwrap();
        let stage = Stage::of_test(&db).await;
        copy_in(&stage, 1000, 2).await.unwrap();
        let hand = Hand::new(&stage).await.unwrap();
        for sql in [claim_sql(), delete_sql()] {
            let sql = sql.replace("$1", "'{\"(0,1)\"}'::tid[]").replace("$2", "1");
            let plan = hand.client.query(&format!("explain {sql}"), &[]).await;
            let plan: Vec<String> = plan.unwrap().iter().map(|r| r.get(0)).collect();
            let plan = plan.join("\n");
            assert!(
                plan.contains("Tid Scan") && !plan.contains("Seq Scan"),
                "{plan}"
            );
        }

        let sql = format!("select ctid from {SCHEMA}.job");
        let tids = hand.client.query(&sql, &[]).await.unwrap();
        let tids: Vec<Tid> = tids.iter().map(|r| r.get(0)).collect();
        hand.client.batch_execute("begin").await.unwrap();
        let claimed = hand.client.query(&hand.claim, &[&tids, &7i64]).await;
        assert_eq!(claimed.unwrap().len(), 1000);
        let sql = format!(
            "select pg_stat_get_xact_tuples_hot_updated('{SCHEMA}.job'::regclass), current_setting('synchronous_commit')"
        );
        let row = hand.client.query_one(&sql, &[]).await.unwrap();
        let (hot, commit): (i64, String) = (row.get(0), row.get(1));
        assert!(hot >= 950, "{hot} of 1000");
        assert_eq!(commit, "off");
        hand.client.batch_execute("rollback").await.unwrap();

        claim_and_delete(&stage, 1000).await.unwrap();
        let wrong = claim_and_delete(&stage, 1000).await;
        assert!(
            wrong
                .unwrap_err()
                .to_string()
                .contains("0 of 1000 rows were found")
        );
        stage.take_down().await.unwrap();
    }
}
