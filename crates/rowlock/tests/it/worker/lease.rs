//! Leases: kept while the handler works, told when they are lost, and fenced.

use std::time::Duration;

use rowlock::{CancelReason, Ctx, Outcome};
use rowlock_testkit::FaultProxy;
use serde_json::json;

use super::kit::{Bench, Gate, Note, SOON, Tally, Tx, errors, note, notes, start, within};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_long_job_keeps_its_lease() {
    let bench = Bench::new().await;
    let id = bench.enqueue(note(1)).await;
    let (started, gate) = (Tally::new(), Gate::closed());
    let workers = [1, 2].map(|_| {
        let (started, gate) = (started.clone(), gate.clone());
        bench
            .worker()
            .lease(SECOND)
            .handle(move |job: Note, ctx: Ctx| {
                let (started, gate) = (started.clone(), gate.clone());
                async move {
                    started.add(job.n);
                    gate.pass().await;
                    assert_eq!(ctx.cancel_reason(), None);
                }
            })
    });
    let mut handles = Vec::new();
    for worker in workers {
        handles.push(start(worker).await);
    }
    started.reach(1).await;
    // As long as several leases; the other worker looks for expired ones all the time.
    let renewed = format!(
        "select lease_until > claimed_at + interval '5 s' from rowlock.job where id = {id}"
    );
    bench
        .until(
            SOON,
            "the lease was renewed several times",
            &renewed,
            "true",
        )
        .await;
    gate.let_through(10);
    for worker in &handles {
        bench.finish(worker).await;
    }
    assert_eq!(started.all(), [1], "it ran once");
    let done = bench.finished(id).await;
    assert_eq!((&done["attempt"], &done["crashes"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn a_lost_lease_is_told_and_the_old_attempt_changes_nothing() {
    let bench = Bench::new().await;
    let id = bench.enqueue(note(1)).await;
    let told: Tally<String> = Tally::new();
    let tally = told.clone();
    let worker = start(
        bench
            .worker()
            .lease(SECOND)
            .handle(move |_: Note, ctx: Ctx| {
                let told = tally.clone();
                async move {
                    told.add("started".into());
                    told.add(format!("{:?}", ctx.cancelled().await));
                    assert!(ctx.progress(&1).await.is_err(), "it has no say any more");
                    Outcome::done(&"the old attempt")
                }
            }),
    )
    .await;
    told.reach(1).await;
    let token = bench.steal().await;
    assert_eq!(told.reach(2).await[1], "LeaseLost");
    bench.finish_leased(&worker).await;

    let job = bench.live(id).await.expect("the new attempt has it");
    assert_eq!((&job["token"], &job["attempt"]), (&json!(token), &json!(2)));
    let done = format!(
        "select cardinality(done) from rowlock.complete('default', '{{{id}}}', '{{{token}}}', null, array['\"new\"'::jsonb])"
    );
    assert_eq!(bench.text(&done).await, "1", "the new attempt counts");
    assert_eq!(bench.finished(id).await["result"], json!("new"));
}

/// The acknowledgement itself is refused, also when the handler never heard of the loss.
#[tokio::test]
async fn an_acknowledgement_after_the_lease_was_lost_is_refused() {
    let bench = Bench::new().await;
    let id = bench.enqueue(note(1)).await;
    let (started, gate) = (Tally::new(), Gate::closed());
    let (tally, door) = (started.clone(), gate.clone());
    // A lease of an hour is not renewed, so the handler is not told.
    let worker = start(
        bench
            .worker()
            .lease(3600 * SECOND)
            .handle(move |_: Note, ctx: Ctx| {
                let (started, gate) = (tally.clone(), door.clone());
                async move {
                    started.add(1);
                    gate.pass().await;
                    assert_eq!(ctx.cancel_reason(), None);
                }
            }),
    )
    .await;
    started.reach(1).await;
    let token = bench.steal_leased_for(7200).await;
    gate.let_through(1);
    bench.finish_leased(&worker).await;
    let job = bench.live(id).await.expect("the new attempt has it");
    assert_eq!(job["token"], json!(token));
    assert_eq!(bench.counts().await, (1, 0, 0));
}

/// A job that came back to the same worker was forgotten when its old attempt ended: the new one was not renewed any more, ran
/// out, and ran again and again.
#[tokio::test]
async fn an_old_attempt_that_ends_does_not_take_the_new_one_of_the_same_worker_with_it() {
    let bench = Bench::new().await;
    let id = bench.enqueue(note(1).max_attempts(100)).await;
    let told: Tally<String> = Tally::new();
    let (first, second) = (Gate::closed(), Gate::closed());
    let (tally, doors) = (told.clone(), (first.clone(), second.clone()));
    let worker = start(
        bench
            .worker()
            .lease(SECOND)
            .handle(move |_: Note, ctx: Ctx| {
                let (told, (first, second)) = (tally.clone(), doors.clone());
                async move {
                    told.add(format!("started {}", ctx.attempt()));
                    match ctx.attempt() {
                        1 => {
                            first.pass().await;
                            told.add(format!("ended 1: {:?}", ctx.cancel_reason()));
                        }
                        _ => second.pass().await,
                    }
                    Outcome::done(&ctx.attempt())
                }
            }),
    )
    .await;
    told.reach(1).await;
    // As after a pause of the whole process: the lease has run out without a word, and the worker itself finds it.
    let expire = format!(
        "update rowlock.job set lease_until = clock_timestamp() - interval '1 s', token = 1 where id = {id}"
    );
    bench.sql.batch_execute(&expire).await.unwrap();
    assert_eq!(told.reach(2).await[1], "started 2");
    first.let_through(1);
    assert_eq!(told.reach(3).await[2], "ended 1: Some(LeaseLost)");
    let renewed = format!(
        "select lease_until > claimed_at + interval '4 s' from rowlock.job where id = {id} and attempt = 2"
    );
    bench
        .until(
            SOON,
            "the new attempt is renewed several times",
            &renewed,
            "true",
        )
        .await;
    second.let_through(1);
    bench.finish(&worker).await;
    let done = bench.finished(id).await;
    assert_eq!((&done["result"], &done["attempt"]), (&json!(2), &json!(2)));
    assert_eq!(told.len(), 3, "{:?}", told.all());
}

/// The task that tells handlers waited for the connection itself.
#[tokio::test]
async fn handlers_hear_that_the_database_cannot_be_reached() {
    let bench = Bench::new().await;
    let proxy = FaultProxy::before(bench.db.url()).await.unwrap();
    let client = rowlock::Client::connect(&proxy.url()).await.unwrap();
    let told: Tally<String> = Tally::new();
    let tally = told.clone();
    let worker = start(
        rowlock::Worker::builder(client)
            .queue("default")
            .lease(SECOND)
            .handle(move |_: Note, ctx: Ctx| {
                let told = tally.clone();
                async move {
                    // Its answer may come before or after the end of its lease is noticed.
                    if ctx.attempt() == 1 {
                        told.add("started".into());
                        told.add(format!("{:?}", ctx.cancelled().await));
                    }
                    Outcome::done(&1)
                }
            }),
    )
    .await;
    let id = bench.enqueue(note(1)).await;
    told.reach(1).await;
    proxy.refuse().await;
    proxy.reset().await;
    assert_eq!(
        told.reach_within(10 * SECOND, 2).await[1],
        format!("{:?}", CancelReason::Unreachable)
    );
    proxy.pass().await;
    bench.finish(&worker).await;
    let done = bench.finished(id).await;
    assert_eq!(
        (&done["outcome"], &done["failures"]),
        (&json!("done"), &json!(0))
    );
}

/// By then somebody else may have them.
#[tokio::test]
async fn jobs_whose_lease_ran_out_while_they_waited_are_not_started() {
    let bench = Bench::new().await;
    let proxy = FaultProxy::before(bench.db.url()).await.unwrap();
    let client = rowlock::Client::connect(&proxy.url()).await.unwrap();
    bench
        .enqueue_all((0..5).map(|_| super::kit::raw("slow")))
        .await;
    let told: Tally<String> = Tally::new();
    let gate = Gate::closed();
    let (tally, door) = (told.clone(), gate.clone());
    // The batch handler makes the worker claim more than it has slots for.
    let worker = start(
        rowlock::Worker::builder(client)
            .queue("default")
            .concurrency(1)
            .lease(SECOND)
            .handle_batch(5, |_: Vec<rowlock::Item<Note>>| async {})
            .handle_kind("slow", move |_, ctx: Ctx| {
                let (told, gate) = (tally.clone(), door.clone());
                async move {
                    told.add("started".into());
                    if told.len() == 1 {
                        told.add(format!("{:?}", ctx.cancelled().await));
                        gate.pass().await;
                    }
                }
            }),
    )
    .await;
    let claimed = "select count(*) from rowlock.job where token <> 0";
    bench
        .until(SOON, "all are in the worker", claimed, "5")
        .await;
    told.reach(1).await;
    proxy.refuse().await;
    proxy.reset().await;
    assert_eq!(told.reach(2).await[1], "Unreachable");
    gate.let_through(1);
    within(SOON, "the first ends and no other starts", async {
        while worker.running() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(told.len(), 2, "{:?}", told.all());
    proxy.pass().await;
    told.reach(6).await;
    bench.finish(&worker).await;
    bench.assert_all_done(5).await;
}

#[tokio::test]
async fn a_row_locked_by_an_open_transaction_holds_nobody_up() {
    let bench = Bench::new().await;
    let ids = bench.enqueue_all(notes(20)).await;
    let (started, gate) = (Tally::new(), Gate::closed());
    let (tally, door, url) = (started.clone(), gate.clone(), bench.db.url().to_owned());
    let worker = start(
        bench
            .worker()
            .lease(SECOND)
            .handle(move |job: Note, ctx: Ctx| {
                let (started, gate, url) = (tally.clone(), door.clone(), url.clone());
                async move {
                    if job.n != 0 {
                        started.add(job.n);
                        gate.pass().await;
                        assert_eq!(ctx.cancel_reason(), None, "note {}", job.n);
                        return;
                    }
                    let (mut sql, connection) =
                        tokio_postgres::connect(&url, tokio_postgres::NoTls)
                            .await
                            .expect("a connection of the handler's own");
                    tokio::spawn(connection);
                    let mut tx = Tx(sql.transaction().await.unwrap());
                    ctx.complete_in_tx(&mut tx).await.unwrap();
                    started.add(0);
                    // For several leases; meanwhile the others are renewed and acknowledged.
                    gate.pass().await;
                    assert_eq!(ctx.cancel_reason(), None, "nobody can take it meanwhile");
                    tx.0.commit().await.unwrap();
                }
            }),
    )
    .await;
    started.reach(20).await;
    let renewed = format!(
        "select bool_and(lease_until > claimed_at + interval '4 s') from rowlock.job where id <> {}",
        ids[0]
    );
    bench
        .until(SOON, "the others are renewed", &renewed, "true")
        .await;
    gate.let_through(20);
    bench.finish(&worker).await;
    bench.assert_all_done(20).await;
    let attempts = "select max(attempt) from rowlock.finished";
    assert_eq!(bench.number(attempts).await, 1, "none ran twice");
    assert_eq!(errors(&bench.finished(ids[0]).await), [] as [&str; 0]);
}

#[tokio::test]
async fn others_are_acknowledged_while_one_row_is_locked() {
    let bench = Bench::new().await;
    let ids = bench.enqueue_all(notes(10)).await;
    let mut other = bench.db.connect().await.unwrap();
    let lock = other.transaction().await.unwrap();
    let (started, gate) = (Tally::new(), Gate::closed());
    let (tally, door) = (started.clone(), gate.clone());
    let worker = start(bench.worker().handle(move |job: Note| {
        let (started, gate) = (tally.clone(), door.clone());
        async move {
            started.add(job.n);
            gate.pass().await;
        }
    }))
    .await;
    started.reach(10).await;
    lock.execute(
        "select from rowlock.job where id = $1 for update",
        &[&ids[4]],
    )
    .await
    .unwrap();
    gate.let_through(10);
    bench
        .until(
            SOON,
            "all but the locked one are done",
            "select count(*) from rowlock.finished",
            "9",
        )
        .await;
    lock.rollback().await.unwrap();
    bench.finish(&worker).await;
    bench.assert_all_done(10).await;
    within(SOON, "the worker has stopped", worker.stopped()).await;
}
