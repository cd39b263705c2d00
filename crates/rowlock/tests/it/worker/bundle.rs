//! Floods of short jobs, which are claimed with one lease for many.

use std::time::Duration;

use rowlock::{Fail, WorkerHandle};
use serde_json::json;

use super::kit::{Bench, Gate, Note, SOON, Tally, notes, start, within};

const JOBS: usize = 20_000;
/// Counts bundles in a sequence, which nothing undoes.
const COUNT: &str = "create sequence public.bundles; \
    create function public.count_bundle() returns trigger language plpgsql as $$ begin perform nextval('public.bundles'); return new; end $$; \
    create trigger count after insert on rowlock.bundle for each row execute function public.count_bundle()";
const BUNDLES: &str = "select coalesce(pg_sequence_last_value('public.bundles'), 0)";

/// A backlog of short jobs in a queue without history.
async fn flooded() -> Bench {
    let bench = Bench::new().await;
    bench
        .set_queue(json!({"retention": "0", "max_attempts": 1}))
        .await;
    bench.sql.batch_execute(COUNT).await.unwrap();
    bench.client.bulk(notes(JOBS)).await.unwrap();
    bench
}

/// A worker that only counts what it runs.
async fn working(bench: &Bench, ran: &Tally<i64>) -> WorkerHandle {
    let tally = ran.clone();
    let worker = bench.worker().handle(move |job: Note| {
        tally.add(job.n);
        async {}
    });
    start(worker).await
}

/// Stops the worker, when nothing is left to do and of its bundles nothing but the counter.
async fn end(bench: &Bench, worker: &WorkerHandle) {
    within(SOON, "the queue is empty", worker.drained()).await;
    within(SOON, "the worker stops", worker.shutdown()).await;
    assert_eq!(bench.number("select count(*) from rowlock.bundle").await, 0);
    assert_eq!(bench.number("select count(*) from rowlock.job").await, 0);
    let bundles = bench.number(BUNDLES).await;
    assert!(bundles > 0, "the jobs did not come in bundles");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_runs_once_and_nothing_is_left() {
    let bench = flooded().await;
    let ran = Tally::new();
    let worker = working(&bench, &ran).await;
    let mut all = ran.reach(JOBS).await;
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), JOBS, "some ran twice");
    end(&bench, &worker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_fail_do_so_one_by_one() {
    let bench = flooded().await;
    let worker = start(bench.worker().handle(|job: Note| async move {
        match job.n % 100 {
            7 => Err(Fail::dead("not this one")),
            8 => Err(Fail::retry_after(
                "nor this, and there is no other attempt",
                SOON,
            )),
            _ => Ok(()),
        }
    }))
    .await;
    end(&bench, &worker).await;
    let dead = "select reason || ' ' || count(*) || ' ' || min(attempt) || ' ' || max(attempt) from rowlock.dead group by reason order by reason";
    let dead = bench.sql.query(dead, &[]).await.unwrap();
    let dead: Vec<String> = dead.iter().map(|row| row.get(0)).collect();
    assert_eq!(dead, ["failed 200 1 1", "refused 200 1 1"]);
}

/// Whoever looks sees that they run, and can have them cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_take_long_get_leases_of_their_own() {
    let bench = flooded().await;
    let (gate, late) = (Gate::closed(), Tally::new());
    let (door, tally) = (gate.clone(), late.clone());
    let worker = start(bench.worker().concurrency(100).handle(move |job: Note| {
        let (door, tally) = (door.clone(), tally.clone());
        async move {
            if job.n % 1000 == 999 {
                tally.add(job.n);
                door.pass().await;
            }
        }
    }))
    .await;
    late.reach(JOBS / 1000).await;
    let running = "select count(*)::text from rowlock.jobs where state = 'running'";
    bench
        .until(SOON, "they are seen to run", running, "20")
        .await;
    let open = "select count(*)::text from rowlock.bundle";
    bench.until(SOON, "they need no bundle", open, "0").await;
    let left = "select count(*) from rowlock.job";
    assert_eq!(bench.number(left).await, 20);
    gate.let_through(20);
    end(&bench, &worker).await;
}

/// What it held is given back, and nothing is left to wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stops_gives_back_what_it_has_not_begun() {
    let bench = flooded().await;
    let ran = Tally::new();
    let worker = working(&bench, &ran).await;
    ran.reach(JOBS / 4).await;
    within(SOON, "the worker stops", worker.shutdown()).await;
    assert_eq!(bench.number("select count(*) from rowlock.bundle").await, 0);
    let held = "select count(*) from rowlock.job where token <> 0";
    assert_eq!(bench.number(held).await, 0, "some are still leased");
    let left = bench.number("select count(*) from rowlock.job").await;
    assert_eq!(usize::try_from(left).unwrap() + ran.len(), JOBS);
    let next = working(&bench, &ran).await;
    ran.reach_within(Duration::from_secs(60), JOBS).await;
    end(&bench, &next).await;
    assert_eq!(ran.len(), JOBS);
}
