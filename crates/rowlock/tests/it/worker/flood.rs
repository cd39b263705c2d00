//! More jobs than one connection can bring: the worker claims on two.

use rowlock::Ctx;

use super::kit::{Bench, Note, SOON, Tally, start, within};

const JOBS: usize = 25_000;

/// Puts something around each claim.
async fn around_claims(bench: &Bench, before: &str, after: &str) {
    let around = format!(
        "create schema kept; alter function rowlock.claim_batch set schema kept;
         create function rowlock.claim_batch(
           queues text[], wants integer[], want integer, worker bigint, token bigint, lease_ms integer default null, kinds text[] default null,
           suspects boolean default true, after_at timestamptz[] default null, after_id bigint[] default null, look_back_ms integer default 0,
           follow boolean[] default null, turn boolean default true
         ) returns table (id bigint, tid tid, kind text, payload jsonb, run_at timestamptz, rest record) language plpgsql as $$
         #variable_conflict use_column
         begin
           {before};
           return query select * from kept.claim_batch(queues, wants, want, worker, token, lease_ms, kinds, suspects, after_at, after_id,
                                                       look_back_ms, follow, turn);
           {after};
         end $$"
    );
    let done = bench.sql.batch_execute(&around).await;
    done.expect("the function can be put around the other");
}

/// Jobs that have been due for so long that nobody finds them by looking back a little.
async fn enqueue_long_due(bench: &Bench) {
    let jobs = format!(
        "insert into rowlock.job (queue, kind, payload, created_at, run_at)
         select 'default', 'note', jsonb_build_object('n', n), now() - interval '30 days', now() - interval '30 days' from generate_series(1, {JOBS}) n"
    );
    let done = bench.sql.batch_execute(&jobs).await;
    done.expect("the jobs are there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_connections_claim_and_each_job_runs_once() {
    let bench = Bench::new().await;
    let told = "create table public.claims (pid integer, jobs bigint)";
    bench.sql.batch_execute(told).await.unwrap();
    // Claims that take a while: the handlers are faster than one connection.
    let (before, after) = (
        "perform pg_sleep(0.1)",
        "insert into public.claims select pg_backend_pid(), count(*) from rowlock.job j where j.token = claim_batch.token",
    );
    around_claims(&bench, before, after).await;
    enqueue_long_due(&bench).await;
    let worker = start(bench.worker().handle(|_: Note, _: Ctx| async {})).await;
    bench.finish(&worker).await;
    bench.assert_all_done(JOBS).await;
    assert_eq!(worker.handled(), JOBS as u64, "each ran once");
    let by_each = bench
        .text("select array_agg(n order by n desc) from (select sum(jobs) as n from public.claims group by pid) c where n > 0")
        .await;
    assert_eq!(
        by_each.split(',').count(),
        2,
        "both connections brought jobs: {by_each}"
    );
}

/// A claim tells the others where to go on before it has written anything. If it then fails, what it saw lies behind that place; and behind
/// the cursor too, which another claim of the worker may have moved meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_fail_in_a_flood_leave_nothing_behind() {
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let told = "create sequence public.calls";
    bench.sql.batch_execute(told).await.unwrap();
    let (before, after) = (
        "perform pg_sleep(0.05)",
        "if exists (select from rowlock.job j where j.token = claim_batch.token) and nextval('public.calls') in (14, 15, 30) then \
         perform pg_sleep(0.2); raise exception 'as if' using errcode = '40001'; end if",
    );
    // Some fail, and late: the other connection has gone on by then.
    around_claims(&bench, before, after).await;
    enqueue_long_due(&bench).await;
    let ran = Tally::new();
    let tally = ran.clone();
    let worker = start(bench.worker().handle(move |job: Note, _: Ctx| {
        tally.add(job.n);
        async {}
    }))
    .await;
    let mut all = ran.reach(JOBS).await;
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), JOBS, "each ran");
    assert!(
        bench.number("select last_value from public.calls").await > 10,
        "some have failed"
    );
    within(SOON, "the worker stops", worker.shutdown()).await;
}
