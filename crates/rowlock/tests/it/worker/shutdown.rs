//! Shutdown: soft, then hard; never stuck, never forgetting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rowlock::{CancelReason, Ctx, Item, Outcome};
use serde_json::json;

use super::kit::{Bench, Gate, Note, SOON, Tally, note, notes, raw, start, within};

async fn assert_nothing_leased(bench: &Bench) {
    let leased = "select count(*) from rowlock.job where lease_until <> '-infinity' or token <> 0";
    assert_eq!(bench.number(leased).await, 0, "jobs are left leased");
    let cost = "select coalesce(max(failures + crashes), 0) from rowlock.job";
    assert_eq!(bench.number(cost).await, 0, "giving back costs nothing");
}

#[tokio::test]
async fn a_soft_shutdown_finishes_what_runs_and_gives_back_what_waits() {
    let bench = Bench::new().await;
    let (told, gate) = (Tally::new(), Gate::closed());
    let (tally, door) = (told.clone(), gate.clone());
    // The batch handler makes the worker claim more than it has slots for.
    let worker = start(
        bench
            .worker()
            .concurrency(2)
            .handle_batch(5, |_: Vec<Item<Note>>| async {})
            .handle_kind("slow", move |_, ctx: Ctx| {
                let (told, gate) = (tally.clone(), door.clone());
                async move {
                    told.add(ctx.id().0);
                    gate.pass().await;
                    assert_eq!(ctx.cancel_reason(), None, "it has its time");
                }
            }),
    )
    .await;
    bench.enqueue_all((0..20).map(|_| raw("slow"))).await;
    let running = told.reach(2).await;
    let leased = "select count(*) > 2 from rowlock.job where token <> 0";
    bench
        .until(SOON, "some wait in the worker", leased, "true")
        .await;
    let leased = bench
        .number("select count(*) from rowlock.job where token <> 0")
        .await;

    let stopping = tokio::spawn({
        let worker = worker.clone();
        async move { worker.shutdown().await }
    });
    let two = "select count(*) from rowlock.job where token <> 0";
    bench
        .until(SOON, "those that wait are given back", two, "2")
        .await;
    assert!(!stopping.is_finished(), "two are running");
    bench.enqueue(raw("slow")).await;
    gate.let_through(2);
    let stopped = within(SOON, "it stops", stopping).await.unwrap();
    assert_eq!(
        (
            stopped.handled,
            stopped.given_back as i64,
            stopped.interrupted,
            stopped.unsettled
        ),
        (2, leased - 2, 0, 0)
    );
    assert_eq!(told.len(), 2, "none was started after the shutdown");
    for id in running {
        assert_eq!(bench.finished(id).await["outcome"], "done");
    }
    assert_eq!(bench.counts().await, (19, 2, 0));
    assert_nothing_leased(&bench).await;
    let state = format!(
        "select state from rowlock.worker where id = {}",
        worker.id()
    );
    assert_eq!(bench.text(&state).await, "stopped");
}

#[tokio::test]
async fn after_the_grace_period_jobs_are_told_dropped_and_given_back() {
    let bench = Bench::new().await;
    let ids = bench.enqueue_all(notes(3)).await;
    let told: Tally<String> = Tally::new();
    let tally = told.clone();
    struct Dropped(Tally<String>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.add("dropped".into());
        }
    }
    let builder = bench.worker().grace(Duration::from_millis(100));
    let worker = start(builder.handle(move |job: Note, ctx: Ctx| {
        let told = tally.clone();
        async move {
            told.add("started".into());
            match job.n {
                // Gives up when told to.
                0 => {
                    let reason = ctx.cancelled().await;
                    told.add(format!("{reason:?}"));
                    Outcome::retry("stopped in the middle")
                }
                // Finishes when told to.
                1 => {
                    ctx.cancelled().await;
                    Outcome::done(&"in time")
                }
                // Does not listen.
                _ => {
                    let _dropped = Dropped(told);
                    std::future::pending().await
                }
            }
        }
    }))
    .await;
    told.reach(3).await;
    let stopped = within(SOON, "it stops", worker.shutdown()).await;
    assert_eq!((stopped.interrupted, stopped.unsettled), (3, 0));
    assert!(
        told.all()
            .contains(&format!("{:?}", CancelReason::Shutdown))
    );
    // The worker is gone; what is left of it must not go on working.
    told.reach(5).await;
    assert!(
        told.all().contains(&"dropped".to_owned()),
        "{:?}",
        told.all()
    );
    assert_eq!(bench.finished(ids[1]).await["result"], json!("in time"));
    assert_eq!(bench.counts().await, (2, 1, 0));
    assert_nothing_leased(&bench).await;
}

#[tokio::test]
async fn a_blocking_handler_that_never_returns_does_not_hang_it() {
    let bench = Bench::new().await;
    let id = bench.enqueue(note(1)).await;
    let (told, release) = (Tally::new(), Arc::new(AtomicBool::new(false)));
    let (tally, held) = (told.clone(), release.clone());
    let builder = bench.worker().grace(Duration::from_millis(50));
    let worker = start(builder.handle_blocking(move |_: Note| {
        tally.add(1);
        while !held.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        tally.add(2);
    }))
    .await;
    told.reach(1).await;
    let stopped = within(SOON, "it stops", worker.shutdown()).await;
    assert_eq!((stopped.interrupted, stopped.unsettled), (1, 0));
    let job = bench.live(id).await.expect("it was given back");
    assert_eq!((&job["token"], &job["failures"]), (&json!(0), &json!(0)));
    release.store(true, SeqCst);
    told.reach(2).await;
    assert!(
        bench.live(id).await.is_some(),
        "what it returns now counts for nothing"
    );
}

#[tokio::test]
async fn it_may_be_asked_any_number_of_times() {
    let bench = Bench::new().await;
    bench.enqueue_all(notes(5)).await;
    let worker = start(bench.worker().handle(|_: Note| async {})).await;
    within(SOON, "the queue is drained", worker.drained()).await;
    let (a, b, c) = within(SOON, "all are answered", async {
        tokio::join!(worker.shutdown(), worker.shutdown_now(), worker.stopped())
    })
    .await;
    let again = within(SOON, "it is answered again", worker.shutdown()).await;
    assert_eq!((a, b, c), (again, again, again));
    assert_eq!(again.handled, 5);
    // Whoever waits for an empty queue is not kept by a worker that has stopped.
    within(SOON, "drained returns", worker.drained()).await;
}

#[tokio::test]
async fn a_second_call_ends_the_grace_period() {
    let bench = Bench::new().await;
    bench.enqueue(note(1)).await;
    let told = Tally::new();
    let tally = told.clone();
    let builder = bench.worker().grace(Duration::from_secs(3600));
    let worker = start(builder.handle(move |_: Note, ctx: Ctx| {
        let told = tally.clone();
        async move {
            told.add(1);
            ctx.cancelled().await;
            Err::<(), _>("stopped")
        }
    }))
    .await;
    told.reach(1).await;
    let soft = worker.clone();
    let soft = tokio::spawn(async move { soft.shutdown().await });
    let stopping = format!("select 1 from rowlock.worker where id = {}", worker.id());
    assert_eq!(bench.number(&stopping).await, 1);
    let hard = within(SOON, "the hard one stops it", worker.shutdown_now()).await;
    assert_eq!(within(SOON, "the soft one too", soft).await.unwrap(), hard);
    assert_eq!(hard.interrupted, 1);
    assert_nothing_leased(&bench).await;
}

#[tokio::test]
async fn drain_works_until_nothing_is_ready() {
    let bench = Bench::new().await;
    bench.enqueue_all(notes(500)).await;
    let later = bench
        .enqueue(note(1).delay(Duration::from_secs(3600)))
        .await;
    let more = Arc::new(AtomicBool::new(true));
    let worker = bench.worker().handle(move |job: Note, ctx: Ctx| {
        let more = more.clone();
        async move {
            // What a handler enqueues is worked too.
            if job.n == 499 && more.swap(false, SeqCst) {
                ctx.client().enqueue_all(notes(50)).await?;
            }
            Ok::<_, rowlock::Error>(())
        }
    });
    let stopped = within(SOON, "it ends", worker.build().unwrap().drain())
        .await
        .unwrap();
    assert_eq!(
        (stopped.handled, stopped.given_back, stopped.unsettled),
        (550, 0, 0)
    );
    assert_eq!(bench.counts().await, (1, 550, 0));
    assert!(bench.live(later).await.is_some());
}

/// A worker that has just started begins where others stopped. What lies behind that place, more than it takes at once, is no less ready.
#[tokio::test]
async fn drain_also_works_what_lies_behind_the_place_where_others_stopped() {
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let drain = async |jobs: usize| {
        let worker = bench.worker().concurrency(5).handle(|_: Note| async {});
        let drained = worker.build().unwrap().drain();
        let stopped = within(SOON, "it ends", drained).await.unwrap();
        assert_eq!(stopped.handled, jobs as u64);
    };
    bench.enqueue_all(notes(50)).await;
    drain(50).await;
    let place = "select max(pg_sequence_last_value(('rowlock.cursor_at_' || n)::regclass)) > 2048 from generate_series(0, 31) n";
    assert_eq!(
        bench.text(place).await,
        "true",
        "nobody said where it stopped"
    );
    let long_ago = "2021-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap();
    bench
        .enqueue_all(notes(200).map(|j| j.run_at(long_ago)))
        .await;
    drain(200).await;
    bench.assert_all_done(250).await;
}

/// What a claim brought that was under way when the worker stopped was started all the same, and stayed leased.
#[tokio::test]
async fn a_claim_under_way_is_given_back() {
    let bench = Bench::new().await;
    let proxy = rowlock_testkit::FaultProxy::before(bench.db.url())
        .await
        .unwrap();
    let client = rowlock::Client::connect(&proxy.url()).await.unwrap();
    let told = Tally::new();
    let tally = told.clone();
    let builder = rowlock::Worker::builder(client)
        .queue("default")
        .poll(Duration::from_millis(10));
    let worker = start(builder.handle(move |job: Note| {
        tally.add(job.n);
        std::future::pending::<()>()
    }))
    .await;
    within(SOON, "it is idle", worker.drained()).await;
    proxy.delay(Duration::from_millis(300)).await;
    let id = bench.enqueue(note(1)).await;
    let claimed = format!("select attempt from rowlock.job where id = {id}");
    bench
        .until(
            SOON,
            "it is claimed, and the answer on its way",
            &claimed,
            "1",
        )
        .await;
    let stopped = within(SOON, "it stops", worker.shutdown()).await;
    assert_eq!((stopped.given_back, stopped.unsettled), (1, 0));
    assert_eq!(told.len(), 0, "it was not to start");
    assert_nothing_leased(&bench).await;
}

/// A claim found nothing while jobs were running, and nobody looked again when they had ended.
#[tokio::test]
async fn drained_is_told_however_rarely_the_worker_polls() {
    let bench = Bench::new().await;
    bench.enqueue_all(notes(10)).await;
    let (told, gate) = (Tally::new(), Gate::closed());
    let (tally, door) = (told.clone(), gate.clone());
    let builder = bench.worker().poll_only().poll(Duration::from_secs(3600));
    let worker = start(builder.handle(move |job: Note| {
        let (told, gate) = (tally.clone(), door.clone());
        async move {
            told.add(job.n);
            gate.pass().await;
        }
    }))
    .await;
    told.reach(10).await;
    let drained = worker.drained();
    tokio::pin!(drained);
    let early = tokio::time::timeout(Duration::from_millis(300), &mut drained).await;
    assert!(early.is_err(), "ten are running");
    gate.let_through(10);
    within(SOON, "drained returns", drained).await;
    bench.finish(&worker).await;
    bench.assert_all_done(10).await;
}

/// The same at many moments, and with many jobs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_leased_whenever_it_stops() {
    let bench = Bench::new().await;
    bench.client.bulk(notes(20_000)).await.unwrap();
    for round in 0..12 {
        let told = Tally::new();
        let tally = told.clone();
        let worker = start(bench.worker().concurrency(20).handle(move |job: Note| {
            tally.add(job.n);
            async {}
        }))
        .await;
        // At another moment each time.
        told.reach(1 + 37 * round).await;
        let stopped = within(SOON, "it stops", worker.shutdown()).await;
        assert_eq!(stopped.unsettled, 0, "{stopped:?}");
        assert_nothing_leased(&bench).await;
    }
}

#[tokio::test]
async fn without_a_database_it_still_stops() {
    let bench = Bench::new().await;
    let proxy = rowlock_testkit::FaultProxy::before(bench.db.url())
        .await
        .unwrap();
    let client = rowlock::Client::connect(&proxy.url()).await.unwrap();
    for hung in [false, true] {
        let (told, gate) = (Tally::new(), Gate::closed());
        let (tally, door) = (told.clone(), gate.clone());
        let worker = rowlock::Worker::builder(client.clone())
            .queue("default")
            .handle(move |job: Note| {
                let (told, gate) = (tally.clone(), door.clone());
                async move {
                    told.add(job.n);
                    gate.pass().await;
                }
            });
        let worker = start(worker).await;
        bench.enqueue(note(1)).await;
        told.reach(1).await;
        if hung {
            proxy.half_open().await;
        } else {
            proxy.refuse().await;
            proxy.reset().await;
        }
        gate.let_through(1);
        let began = Instant::now();
        let stopped = within(Duration::from_secs(40), "it stops", worker.shutdown()).await;
        assert_eq!(
            (stopped.handled, stopped.unsettled),
            (1, 1),
            "it could not tell anybody"
        );
        assert!(
            began.elapsed() < Duration::from_secs(25),
            "it took {:?}",
            began.elapsed()
        );
        proxy.pass().await;
        bench
            .sql
            .batch_execute("delete from rowlock.job")
            .await
            .unwrap();
        proxy.reset().await;
    }
}
