//! What a worker that waits does when somebody rings.

use std::time::Duration;

use rowlock::{Ctx, Item, WorkerHandle};

use super::kit::{Bench, Note, SOON, Tally, note, start, within};

/// Tells in a table of what each call brought.
const TELL: &str = "create table public.fresh (jobs bigint); create schema kept; alter function rowlock.claim_fresh set schema kept;
    create function rowlock.claim_fresh(
      queue text, n integer, worker bigint, token bigint, lease_ms integer default null, kinds text[] default null, after_at timestamptz[] default null
    ) returns table (id bigint, tid tid, kind text, payload jsonb, run_at timestamptz, rest record) language plpgsql as $$
    #variable_conflict use_column
    begin
      return query select * from kept.claim_fresh(queue, n, worker, token, lease_ms, kinds, after_at);
      insert into public.fresh select count(*) from rowlock.job j where j.token = claim_fresh.token;
    end $$";
/// Longer than the 5 ms that a worker has to have waited.
const QUIET: Duration = Duration::from_millis(20);
const BROUGHT: &str = "select coalesce(sum(jobs), 0) from public.fresh";

/// A worker that waits for the bell, and what it will have run.
async fn waiting_worker(bench: &Bench) -> (WorkerHandle, Tally) {
    let ran = Tally::new();
    let tally = ran.clone();
    let worker = start(bench.worker().handle(move |job: Note, _: Ctx| {
        tally.add(job.n);
        async {}
    }))
    .await;
    bench.until_armed(&worker).await;
    (worker, ran)
}

#[tokio::test]
async fn a_job_that_was_rung_for_is_taken_at_once() {
    let bench = Bench::new().await;
    bench.sql.batch_execute(TELL).await.unwrap();
    let (worker, ran) = waiting_worker(&bench).await;
    for n in 1..=20 {
        // Only who has waited for a while asks for what is fresh.
        tokio::time::sleep(QUIET).await;
        bench.enqueue(note(n)).await;
        ran.reach(n as usize).await;
        within(SOON, "the worker is idle", worker.drained()).await;
        if bench.number(BROUGHT).await > 0 {
            break; // It may have been awake for another reason.
        }
    }
    assert!(bench.number(BROUGHT).await > 0, "none of {} was", ran.len());
    bench.finish(&worker).await;
    bench.assert_all_done(ran.len()).await;
}

#[tokio::test]
async fn jobs_that_come_together_are_left_together() {
    let bench = Bench::new().await;
    bench.sql.batch_execute(TELL).await.unwrap();
    let ran = Tally::new();
    let tally = ran.clone();
    let worker = bench
        .worker()
        .handle_batch(50, move |batch: Vec<Item<Note>>| {
            tally.add(batch.len() as i64);
            async {}
        });
    let worker = start(worker).await;
    bench.until_armed(&worker).await;
    bench.enqueue_all((1..=30).map(note)).await;
    ran.reach(1).await;
    bench.finish(&worker).await;
    bench.assert_all_done(30).await;
    assert_eq!(bench.number(BROUGHT).await, 0);
}

#[tokio::test]
async fn a_worker_does_without_it() {
    let bench = Bench::new().await;
    let gone = "drop function rowlock.claim_fresh";
    bench.sql.batch_execute(gone).await.unwrap();
    let (worker, ran) = waiting_worker(&bench).await;
    for n in 1..=3 {
        bench.enqueue(note(n)).await;
        ran.reach(n as usize).await;
    }
    bench.finish(&worker).await;
    bench.assert_all_done(3).await;
}
