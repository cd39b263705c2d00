//! More jobs than one connection can bring: the worker claims on two.

use rowlock::{Ctx, RawJob};

use super::kit::{Bench, Note, SOON, Tally, note, start, within};

const JOBS: usize = 25_000;

/// Puts something around each claim.
async fn around_claims(bench: &Bench, before: &str, after: &str) {
    let around = format!(
        "create schema kept; alter function rowlock.claim_batch set schema kept;
         create function rowlock.claim_batch(
           queues text[], wants integer[], want integer, worker bigint, token bigint, lease_ms integer default null, kinds text[] default null,
           suspects boolean default true, after_at timestamptz[] default null, after_id bigint[] default null, look_back_ms integer default 0,
           follow boolean[] default null, turn boolean default true, until_at timestamptz[] default null, until_id bigint[] default null
         ) returns table (id bigint, tid tid, kind text, payload jsonb, run_at timestamptz, rest record) language plpgsql as $$
         #variable_conflict use_column
         begin
           {before};
           return query select * from kept.claim_batch(queues, wants, want, worker, token, lease_ms, kinds, suspects, after_at, after_id,
                                                       look_back_ms, follow, turn, until_at, until_id);
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
    bench.without_sweeps().await;
    let told = "create table public.claims (pid integer, jobs bigint)";
    bench.sql.batch_execute(told).await.unwrap();
    // Claims that take a while: the handlers are faster than one connection.
    let (before, after) = (
        "perform pg_sleep(0.03)",
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

/// More jobs come up behind the cursor than a full scan has room for: it sets the cursor back, and the claim that is under way must not move it
/// forward again. In a flood there is always one, and the rest would wait for as many scans as it takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_scan_has_no_room_for_is_left_to_the_claims() {
    const LATE: i64 = 10_000;
    let bench = Bench::new().await;
    let sql = async |sql: &str| bench.sql.batch_execute(sql).await.expect("it can be done");
    let held_up = "if claim_batch.turn then perform pg_advisory_xact_lock_shared(42); end if"; // not what a scan claims
    around_claims(&bench, "null", held_up).await;
    sql("select pg_advisory_lock(42)").await;
    bench.without_sweeps().await;
    bench.enqueue(note(0)).await;
    enqueue_long_due(&bench).await;
    let ran = Tally::new();
    let tally = ran.clone();
    // More slots than a claim asks for: a scan beside it has some.
    let worker = bench.worker().concurrency(2000);
    let worker = start(worker.handle(move |job: Note, _: Ctx| {
        tally.add(job.n);
        async {}
    }))
    .await;
    let claiming = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'";
    bench
        .until(SOON, "a claim is under way", claiming, "1")
        .await;
    sql(&format!(
        "insert into rowlock.job (queue, kind, payload, created_at, run_at)
         select 'default', 'note', jsonb_build_object('n', -n), now() - interval '60 days', now() - interval '60 days' from generate_series(1, {LATE}) n"
    ))
    .await;
    sql("select pg_advisory_unlock(hashtextextended('rowlock sweep default', 0))").await;
    ran.reach(1).await;
    bench.without_sweeps().await;
    let left =
        "select count(*) from rowlock.job where run_at < now() - interval '45 days' and token = 0";
    let left = bench.number(left).await;
    assert!(left > 0, "scans found all: this shows nothing");

    sql("select pg_advisory_unlock(42)").await;
    ran.reach(1 + JOBS + LATE as usize).await;
    bench.finish(&worker).await;
}

/// A flood of notes, which lasts for a dozen claims on each of two connections or workers, and all of them have just become due for as long as it takes.
async fn flood_of_fresh_jobs(bench: &Bench) {
    bench.without_sweeps().await;
    around_claims(bench, "perform pg_sleep(0.1)", "null").await;
    let now = bench.text("select now()").await;
    let sql = format!(
        "create or replace function rowlock.clock() returns timestamptz language sql volatile parallel safe return timestamptz '{now}';
         insert into rowlock.job (queue, kind, payload, created_at, run_at)
         select 'default', 'note', jsonb_build_object('n', n), '{now}', '{now}' from generate_series(1, {JOBS}) n"
    );
    bench.sql.batch_execute(&sql).await.expect("they are there");
}

/// A job of this kind whose transaction took longer than those of others.
async fn commit_late(bench: &Bench, kind: &str) {
    let late = format!(
        "insert into rowlock.job (queue, kind, payload, created_at, run_at)
         select 'default', '{kind}', '{{\"n\": 0}}', at, at from (select rowlock.clock() - interval '1 ms' as at) late"
    );
    bench.sql.batch_execute(&late).await.expect("it is there");
}

/// How many jobs ran after the late one.
fn ran_after(all: &[i64]) -> usize {
    all.iter().rev().position(|n| *n == 0).expect("it ran")
}

/// Jobs become visible behind the cursor when their transaction takes longer than those of others. In a flood nobody waits for a scan to find
/// them: a look back now and then does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_late_is_found_while_the_flood_goes_on() {
    let bench = Bench::new().await;
    flood_of_fresh_jobs(&bench).await;
    let ran = Tally::new();
    let tally = ran.clone();
    let worker = start(bench.worker().handle(move |job: Note, _: Ctx| {
        tally.add(job.n);
        async {}
    }))
    .await;
    ran.reach(3000).await;
    commit_late(&bench, "note").await;
    let after = ran_after(&ran.reach(JOBS + 1).await);
    assert!(after > 1000, "only {after} of the flood ran after it");
    bench.finish(&worker).await;
}

/// One worker looks back often for all, but it may not have all kinds. So the others do too, if more rarely.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_only_one_worker_has_is_found_too() {
    let bench = Bench::new().await;
    flood_of_fresh_jobs(&bench).await;
    let ran = Tally::new();
    let worker = |kinds: &[&str]| {
        kinds.iter().fold(bench.worker(), |worker, kind| {
            let tally = ran.clone();
            worker.handle_kind(*kind, move |job: RawJob, _| {
                let Note { n } = serde_json::from_str(&job.payload).expect("a note");
                tally.add(n);
                async {}
            })
        })
    };
    // The first to come has the lowest number.
    let first = start(worker(&["note"])).await;
    let second = start(worker(&["note", "rare"])).await;
    ran.reach(8000).await;
    commit_late(&bench, "rare").await;
    let after = ran_after(&ran.reach(JOBS + 1).await);
    assert!(after > 1000, "only {after} of the flood ran after it");
    bench.finish(&first).await;
    bench.finish(&second).await;
}
