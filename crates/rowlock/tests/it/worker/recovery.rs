//! Recovery: what lies behind the cursors, and what dead workers leave behind.

use std::time::Duration;

use rowlock::{Ctx, Queue};
use serde_json::json;

use super::kit::{Bench, Gate, Note, SOON, Tally, errors, note, notes, start, within};

/// Longest that a full scan may take to come: two rounds of sweeping on a busy machine.
const SWEPT: Duration = Duration::from_secs(10);

/// A worker whose cursor has passed everything up to now.
async fn worker_ahead(bench: &Bench, told: &Tally) -> rowlock::WorkerHandle {
    let tally = told.clone();
    let builder = bench.worker().poll(Duration::from_secs(3600));
    let worker = start(builder.handle(move |job: Note| {
        tally.add(job.n);
        async {}
    }))
    .await;
    bench.enqueue(note(-1)).await;
    told.reach(1).await;
    worker
}

#[tokio::test]
async fn rows_that_commit_late_are_found_by_a_scan() {
    let bench = Bench::new().await;
    let told = Tally::new();
    let worker = worker_ahead(&bench, &told).await;
    for n in 0..3 {
        // As a transaction that took a minute would leave it, and nobody rings.
        let late = format!(
            "insert into rowlock.job (kind, payload, run_at) values ('note', '{{\"n\": {n}}}', clock_timestamp() - interval '1 min')"
        );
        bench.sql.batch_execute(&late).await.unwrap();
        told.reach_within(SWEPT, n + 2).await;
    }
    bench.finish(&worker).await;
    bench.assert_all_done(4).await;
}

#[tokio::test]
async fn more_late_rows_than_slots_are_all_found() {
    let bench = Bench::new().await;
    let told = Tally::new();
    let worker = worker_ahead(&bench, &told).await;
    let late = "insert into rowlock.job (kind, payload, run_at) \
                select 'note', '{\"n\": 1}', clock_timestamp() - interval '1 min' from generate_series(1, 3000)";
    bench.sql.batch_execute(late).await.unwrap();
    told.reach_within(2 * SWEPT, 3001).await;
    bench.finish(&worker).await;
    bench.assert_all_done(3001).await;
}

/// A scan brought as many as there were slots, once a second; the claims that were to bring the others passed over them.
#[tokio::test]
async fn many_expired_jobs_are_taken_one_after_the_other_and_not_one_a_second() {
    let bench = Bench::new().await;
    let told = Tally::new();
    bench.enqueue_all(notes(600)).await;
    let lose = "select from rowlock.claim('{default}', 600); update rowlock.job set lease_until = clock_timestamp() - interval '1 s'";
    bench.sql.batch_execute(lose).await.unwrap();
    let tally = told.clone();
    let builder = bench
        .worker()
        .concurrency(2)
        .poll(Duration::from_secs(3600));
    let worker = start(
        builder
            .handle(move |job: Note| {
                tally.add(job.n);
                async {}
            })
            // With one of these, more is claimed than there are slots.
            .handle_batch(10, |_: Vec<rowlock::Item<Other>>| async {}),
    )
    .await;
    told.reach_within(3 * SWEPT, 600).await;
    bench.finish(&worker).await;
    bench.assert_all_done(600).await;
    assert_eq!(
        bench
            .number("select max(crashes) from rowlock.finished")
            .await,
        1
    );
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Other {}

impl rowlock::Job for Other {
    const KIND: &'static str = "other";
}

#[tokio::test]
async fn released_jobs_are_found_at_once_by_their_message() {
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let told = Tally::new();
    let id = bench.enqueue(note(5)).await;
    let claimed = bench
        .sql
        .query_one("select token from rowlock.claim()", &[])
        .await;
    let token: i64 = claimed.unwrap().get(0);
    let worker = worker_ahead(&bench, &told).await;
    let release = "select cardinality(done) from rowlock.release('default', $1, $2)";
    let released = bench
        .sql
        .query_one(release, &[&vec![id], &vec![token]])
        .await;
    assert_eq!(released.unwrap().get::<_, i32>(0), 1);
    assert_eq!(told.reach(2).await[1], 5);
    bench.finish(&worker).await;
    assert_eq!(bench.finished(id).await["attempt"], 2);
}

/// The claim under way moved the cursor forward again, past what the message was about.
#[tokio::test]
async fn a_message_that_comes_while_a_claim_is_under_way_is_not_lost() {
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let told = Tally::new();
    let old = "insert into rowlock.job (kind, payload, run_at) values ('note', '{\"n\": 5}', clock_timestamp() - interval '1 min')";
    bench.sql.batch_execute(old).await.unwrap();
    let claimed = bench
        .sql
        .query_one("select id, token from rowlock.claim()", &[])
        .await
        .unwrap();
    let (id, token): (i64, i64) = (claimed.get(0), claimed.get(1));
    // A claim that brings something takes a second to return.
    let slow = "do $$ declare v_args text; v_names text; v_result text; begin \
                select pg_get_function_arguments(oid), array_to_string(proargnames[1:pronargs], ', '), pg_get_function_result(oid) \
                  into v_args, v_names, v_result from pg_proc where proname = 'claim_batch'; \
                create schema kept; alter function rowlock.claim_batch set schema kept; \
                execute format('create function rowlock.claim_batch(%s) returns %s language plpgsql security definer as \
                  $f$ #variable_conflict use_variable \
                  begin return query select * from kept.claim_batch(%s); \
                  if exists (select from rowlock.job j where j.token = token and j.payload @> ''{\"n\": 6}'') then perform pg_sleep(1); end if; end $f$', \
                  v_args, v_result, v_names); end $$";
    bench.sql.batch_execute(slow).await.unwrap();
    // In a queue that has settings of kinds nothing is taken but by claims.
    bench
        .set_queue(json!({"kinds": {"other": {"max_attempts": 2}}}))
        .await;
    let worker = worker_ahead(&bench, &told).await;
    bench.enqueue(note(6)).await;
    let under_way = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    bench
        .until(SOON, "the claim is under way", under_way, "1")
        .await;
    let release = "select cardinality(done) from rowlock.release('default', $1, $2)";
    bench
        .sql
        .execute(release, &[&vec![id], &vec![token]])
        .await
        .unwrap();
    let mut all = told.reach(3).await;
    all.sort_unstable();
    assert_eq!(all, [-1, 5, 6]);
    bench.finish(&worker).await;
}

#[tokio::test]
async fn jobs_of_a_paused_queue_run_when_it_is_resumed() {
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let told = Tally::new();
    let worker = worker_ahead(&bench, &told).await;
    bench
        .sql
        .batch_execute("select rowlock.pause('default', 'note')")
        .await
        .unwrap();
    bench.enqueue_all([note(1), note(2)]).await;
    within(SOON, "the worker has looked", worker.drained()).await;
    assert_eq!(told.len(), 1, "they are paused");
    bench
        .sql
        .batch_execute("select rowlock.resume('default', 'note')")
        .await
        .unwrap();
    told.reach(3).await;
    bench.finish(&worker).await;
}

/// All slots are taken by jobs that end now and then; without a place of its own, the expired one would wait behind a thousand.
#[tokio::test]
async fn a_saturated_worker_still_takes_expired_jobs() {
    let bench = Bench::new().await;
    let (told, gate) = (Tally::new(), Gate::closed());
    let expired = bench.enqueue(note(7)).await;
    bench
        .sql
        .execute("select from rowlock.claim()", &[])
        .await
        .unwrap();
    bench.enqueue_all((0..2000).map(|_| note(0))).await;
    let (tally, door) = (told.clone(), gate.clone());
    let worker = start(bench.worker().concurrency(1).handle(move |job: Note| {
        let (told, gate) = (tally.clone(), door.clone());
        async move {
            told.add(job.n);
            gate.pass().await;
        }
    }))
    .await;
    told.reach(1).await;
    let expire = "update rowlock.job set lease_until = clock_timestamp() - interval '1 s' where token <> 0 and payload = '{\"n\": 7}'";
    bench.sql.batch_execute(expire).await.unwrap();
    let steps = async {
        while !told.all().contains(&7) {
            gate.let_through(1);
            told.reach(told.len() + 1).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(2 * SWEPT, "the expired job has its turn", steps).await;
    assert!(
        told.len() < 1500,
        "it came in the order of the queue, after {} others",
        told.len()
    );
    gate.let_through(3000);
    bench.finish(&worker).await;
    let done = bench.finished(expired).await;
    assert_eq!((&done["crashes"], &done["attempt"]), (&json!(1), &json!(2)));
    assert_eq!(
        errors(&done),
        ["the lease expired: the worker died or lost its connection"]
    );
}

/// The one who scans waited for a slot of the full queue, for as long as its jobs took.
#[tokio::test]
async fn a_full_queue_does_not_keep_the_scans_of_others_waiting() {
    let bench = Bench::new().await;
    let (told, gate) = (Tally::new(), Gate::closed());
    let (tally, door) = (told.clone(), gate.clone());
    bench.enqueue(note(0).queue("full")).await;
    let builder = rowlock::Worker::builder(bench.client.clone())
        .queue(Queue::named("full").concurrency(1))
        .queue("other")
        .poll(Duration::from_secs(3600))
        .handle(move |job: Note, ctx: Ctx| {
            let (told, gate) = (tally.clone(), door.clone());
            async move {
                told.add(job.n);
                if ctx.queue() == "full" {
                    gate.pass().await;
                }
            }
        });
    let worker = start(builder).await;
    told.reach(1).await;
    bench.enqueue(note(1).queue("other")).await;
    told.reach(2).await;
    for n in 2..5 {
        let late = format!(
            "insert into rowlock.job (queue, kind, payload, run_at) values ('other', 'note', '{{\"n\": {n}}}', clock_timestamp() - interval '1 min')"
        );
        bench.sql.batch_execute(&late).await.unwrap();
        told.reach_within(SWEPT, n + 1).await;
    }
    gate.let_through(1);
    bench.finish(&worker).await;
}

#[tokio::test]
async fn a_job_that_kept_losing_its_workers_is_parked_by_whoever_finds_it() {
    let bench = Bench::new().await;
    bench.set_queue(json!({"max_crashes": 3})).await;
    let told = Tally::new();
    let id = bench.enqueue(note(7)).await;
    for _ in 0..3 {
        let lose = "select from rowlock.claim(); update rowlock.job set lease_until = clock_timestamp() - interval '1 s'";
        bench.sql.batch_execute(lose).await.unwrap();
    }
    let worker = worker_ahead(&bench, &told).await;
    bench
        .until(
            SWEPT,
            "it is parked",
            "select count(*) from rowlock.dead",
            "1",
        )
        .await;
    bench.finish(&worker).await;
    assert_eq!(told.all(), [-1], "it must not run again");
    let dead = bench.dead(id).await;
    assert_eq!(
        (&dead["reason"], &dead["crashes"]),
        (&json!("poison"), &json!(3))
    );
}
