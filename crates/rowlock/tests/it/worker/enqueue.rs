//! Enqueueing: statements that are shared, errors that are not.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::join_all;
use rowlock::{Client, Error, NewJob};
use rowlock_testkit::FaultProxy;
use serde_json::json;
use serde_json::value::RawValue;

use super::kit::{Bench, SOON, note, notes, within};

#[tokio::test]
async fn enqueues_under_way_at_the_same_time_share_statements() {
    let bench = Bench::new().await;
    bench.enqueue(note(-1)).await;
    let all = join_all((0..400).map(|n| async move { (n, note(n)) })).await;
    let answers = join_all(all.into_iter().map(|(n, job)| {
        let client = bench.client.clone();
        async move { (n, client.enqueue_new(job).await.unwrap().id.0) }
    }))
    .await;
    for (n, id) in answers {
        let job = bench.live(id).await.expect("it is there");
        assert_eq!(
            job["payload"],
            json!({"n": n}),
            "everybody gets the answer to his own job"
        );
    }
    let statements = bench
        .number("select count(distinct xmin::text) from rowlock.job")
        .await;
    assert!(statements < 50, "400 jobs took {statements} transactions");
}

fn too_large() -> NewJob {
    NewJob::new("note", &json!({"x": "x".repeat(1_100_000)})).unwrap()
}

#[tokio::test]
async fn a_bad_one_fails_alone() {
    let bench = Bench::new().await;
    let jobs = (0..60).map(|n| match n {
        17 => too_large(),
        // Refused before it travels.
        18 => note(18).priority(9),
        n => note(n),
    });
    let answers = join_all(jobs.map(|job| bench.client.enqueue_new(job).into_future())).await;
    for (n, answer) in answers.into_iter().enumerate() {
        match (n, answer) {
            (17, Err(Error::Invalid(e))) => assert!(e.rule.contains("too large"), "{e}"),
            (18, Err(Error::Invalid(e))) => assert_eq!(e.what, "priority"),
            (17 | 18, other) => panic!("{n} should have been refused: {other:?}"),
            (_, answer) => assert!(!answer.unwrap().duplicate),
        }
    }
    assert_eq!(bench.counts().await.0, 58);
}

/// Of nine numbers of eight characters there is a megabyte of text.
#[tokio::test]
async fn numbers_count_as_they_are_written_out_on_every_way_in() {
    let bench = Bench::new().await;
    let payload = format!(r#"{{"n":[{}0]}}"#, "1e131071,".repeat(9));
    let large = || NewJob::new("note", &RawValue::from_string(payload.clone()).unwrap()).unwrap();
    let client = &bench.client;
    let mut connection = bench.db.connect().await.unwrap();
    let mut tx = connection.transaction().await.unwrap();
    for (how, answer) in [
        ("alone", client.enqueue_new(large()).await.map(drop)),
        (
            "with options",
            client.enqueue_new(large().tag("t")).await.map(drop),
        ),
        (
            "with others",
            client.enqueue_all(vec![note(1), large()]).await.map(drop),
        ),
        ("in bulk", client.bulk([note(1), large()]).await.map(drop)),
        (
            "in a transaction",
            client.enqueue_new(large()).in_tx(&mut tx).await.map(drop),
        ),
    ] {
        match answer {
            Err(Error::Invalid(e)) => assert!(
                e.what == "payload" && e.rule.contains("too large"),
                "{how}: {e}"
            ),
            // Of what the caller's driver said.
            Err(Error::Driver { sqlstate, .. }) if how == "in a transaction" => {
                assert_eq!(sqlstate.as_deref(), Some("22023"), "{how}");
            }
            other => panic!("{how}: {other:?}"),
        }
    }
    assert_eq!(bench.counts().await.0, 0);
    // Those of a float are fine.
    let float = NewJob::new("note", &json!({"n": f64::MAX})).unwrap();
    client.enqueue_all(vec![note(1), float]).await.unwrap();
}

#[tokio::test]
async fn of_many_with_the_same_key_one_is_new() {
    let bench = Bench::new().await;
    let jobs = (0..50).map(|n| note(n).unique("the key"));
    let answers = join_all(jobs.map(|job| bench.client.enqueue_new(job).into_future())).await;
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|a| !a.duplicate).count(), 1);
    assert!(answers.iter().all(|a| a.id == answers[0].id));
    assert_eq!(bench.counts().await.0, 1);
}

/// Two such jobs held up every enqueue of their client.
#[tokio::test]
async fn who_waits_for_a_lock_holds_nobody_up() {
    let bench = Bench::new().await;
    let keys = ["a", "b", "c"];
    let mut other = bench.db.connect().await.unwrap();
    let tx = other.transaction().await.unwrap();
    for key in keys {
        let enqueue = "select rowlock.enqueue_many($1::text::jsonb)";
        let job = json!([{"kind": "note", "payload": {"n": 0}, "unique_key": key}]).to_string();
        tx.execute(enqueue, &[&job]).await.unwrap();
    }
    let mut waiting = Vec::new();
    for (n, key) in (1..).zip(keys) {
        let client = bench.client.clone();
        let enqueue = async move { client.enqueue_new(note(n).unique(key)).await };
        waiting.push(tokio::spawn(enqueue));
        let blocked = "select count(*)::text from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        let what = format!("{n} of them wait for a lock");
        bench.until(SOON, &what, blocked, &n.to_string()).await;
    }
    let free = bench.client.enqueue_new(note(9)).into_future();
    within(SOON, "another job is enqueued", free).await.unwrap();
    tx.rollback().await.unwrap();
    for answer in within(SOON, "the others are answered", join_all(waiting)).await {
        assert!(!answer.unwrap().unwrap().duplicate);
    }
}

/// A connection that was given back in the middle of a statement kept whoever had it next waiting for the end of that.
#[tokio::test]
async fn who_gives_up_keeps_nobody_waiting() {
    let bench = Bench::new().await;
    let client = Client::builder()
        .connections(2)
        .connect(bench.db.url())
        .await
        .unwrap();
    client.enqueue_new(note(0)).await.unwrap();
    let mut other = bench.db.connect().await.unwrap();
    let tx = other.transaction().await.unwrap();
    tx.batch_execute("lock table rowlock.job in exclusive mode")
        .await
        .unwrap();
    let sender = client.clone();
    let waits = tokio::spawn(async move { sender.enqueue_new(note(1)).await });
    let blocked = "select count(*)::text from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    bench.until(SOON, "it waits for a lock", blocked, "1").await;
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    // It came back to the pool first, so it would be the first to be taken.
    within(SOON, "another call is answered", client.check())
        .await
        .unwrap();
    tx.rollback().await.unwrap();
    within(
        SOON,
        "another job is enqueued",
        client.enqueue_new(note(2)).into_future(),
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn a_lost_connection_is_a_clean_error_and_the_next_one_works() {
    let bench = Bench::new().await;
    let proxy = FaultProxy::before(bench.db.url()).await.unwrap();
    let client = Client::connect(&proxy.url()).await.unwrap();
    client.enqueue_new(note(0)).await.unwrap();

    // Cut in the middle: nobody can know whether they were stored.
    proxy.half_open().await;
    let stuck: Vec<_> = (0..20)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move { client.enqueue_new(note(n)).await })
        })
        .collect();
    let many = client.clone();
    let many = tokio::spawn(async move { many.enqueue_all(notes(5)).await });
    proxy.refuse().await;
    let reset = async {
        // Those that were still to connect are told by the next round.
        while !stuck.iter().all(tokio::task::JoinHandle::is_finished) || !many.is_finished() {
            proxy.reset().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(SOON, "all are answered", reset).await;
    for stuck in stuck {
        let error = stuck.await.unwrap().unwrap_err();
        assert!(error.is_retryable(), "{error}");
    }
    assert!(many.await.unwrap().unwrap_err().is_retryable());

    proxy.pass().await;
    for n in 0..5 {
        let enqueued = within(
            SOON,
            "it is answered",
            client.enqueue_new(note(n)).into_future(),
        )
        .await;
        enqueued.unwrap();
        proxy.reset().await;
        // A connection that broke while nobody used it may cost one error, no more.
        if let Err(error) = client.enqueue_new(note(n)).await {
            assert!(error.is_retryable(), "{error}");
            client.enqueue_new(note(n)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn many_jobs_across_queues_are_all_or_nothing() {
    let bench = Bench::new().await;
    let jobs = |last: NewJob| {
        (0..20)
            .map(|n| note(n).queue(format!("q{}", n % 3)))
            .chain([last.queue("q1")])
    };
    let refused = bench
        .client
        .enqueue_all(jobs(too_large()))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("too large"), "{refused}");
    let refused = bench
        .client
        .enqueue_all(jobs(note(0).priority(5)))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("priority"), "{refused}");
    assert_eq!(bench.counts().await.0, 0, "nothing is there");

    let ids = bench.enqueue_all(jobs(note(20))).await;
    for (n, id) in ids.iter().enumerate() {
        let job = bench.live(*id).await.expect("it is there");
        assert_eq!(
            job["payload"],
            json!({"n": n}),
            "the answers come in the order of the jobs"
        );
    }
    assert_eq!(bench.client.enqueue_all([]).await.unwrap(), []);
    // More than one statement takes, in one queue.
    assert_eq!(bench.enqueue_all(notes(12_000)).await.len(), 12_000);
}

/// The queues were locked in an order that differed from call to call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_with_the_same_keys_do_not_deadlock() {
    let bench = Bench::new().await;
    for queue in ["a", "b", "c", "d"] {
        bench.enqueue(note(0).queue(queue)).await;
    }
    for round in 0..25 {
        let calls = (0..4).map(|caller| {
            let client = bench.client.clone();
            let mut jobs: Vec<NewJob> = ["a", "b", "c", "d"]
                .into_iter()
                .flat_map(|queue| {
                    (0..5).map(move |n| note(n).queue(queue).unique(format!("{round} {n}")))
                })
                .collect();
            if caller % 2 == 1 {
                jobs.reverse();
            }
            tokio::spawn(async move { client.enqueue_all(jobs).await })
        });
        let answers = within(SOON, "all are answered", join_all(calls)).await;
        let answers: Vec<_> = answers.into_iter().map(|a| a.unwrap().unwrap()).collect();
        let new = answers.iter().flatten().filter(|a| !a.duplicate).count();
        assert_eq!(new, 20);
    }
}

#[tokio::test]
async fn fifty_thousand_at_once() {
    let bench = Bench::new().await;
    let jobs = notes(50_000).enumerate().map(|(n, job)| {
        let queue = if n % 10 == 0 { "other" } else { "default" };
        if n % 1000 == 0 {
            job.queue(queue).tag("rare").priority(2)
        } else {
            job.queue(queue)
        }
    });
    assert_eq!(bench.client.bulk(jobs).await.unwrap(), 50_000);
    assert_eq!(bench.counts().await.0, 50_000);
    let other = "select count(*) from rowlock.job where queue = 'other'";
    assert_eq!(bench.number(other).await, 5000);
    let rare = "select count(*) from rowlock.job where tags = '{rare}' and priority = 2";
    assert_eq!(bench.number(rare).await, 50);
}

/// More than may load at a time on most machines: the others wait, and none for ever.
#[tokio::test]
async fn loads_beside_each_other_all_come_in() {
    let bench = Bench::new().await;
    let client = &bench.client;
    let loads = join_all((0..8).map(|_| client.bulk(notes(3000))));
    let loaded = within(SOON, "all are loaded", loads).await;
    for count in loaded {
        assert_eq!(count.unwrap(), 3000);
    }
    assert_eq!(bench.counts().await.0, 24_000);
    let bad = || notes(3000).chain([note(0).priority(7)]);
    let refused = within(
        SOON,
        "all fail",
        join_all((0..8).map(|_| client.bulk(bad()))),
    )
    .await;
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    let again = within(SOON, "it is loaded", client.bulk(notes(3000))).await;
    assert_eq!(again.unwrap(), 3000);
    assert_eq!(bench.counts().await.0, 27_000);
}

/// Rows are sent in pieces of 64 kB.
#[tokio::test]
async fn rows_of_any_size_are_loaded_together() {
    let bench = Bench::new().await;
    let sizes = [1, 70_000, 10, 65_530, 300_000, 2];
    let jobs = sizes.map(|bytes| NewJob::new("note", &json!({"x": "x".repeat(bytes)})).unwrap());
    assert_eq!(bench.client.bulk(jobs).await.unwrap(), 6);
    let stored =
        "select string_agg(length(payload ->> 'x')::text, ',' order by id) from rowlock.job";
    assert_eq!(bench.text(stored).await, "1,70000,10,65530,300000,2");
}

#[tokio::test]
async fn unique_keys_hold_in_bulk_and_a_bad_item_undoes_all() {
    let bench = Bench::new().await;
    bench.enqueue(note(0).unique("7")).await;
    let jobs = notes(2000).zip(0..).map(|(job, n)| {
        if n % 2 == 0 {
            job
        } else {
            job.unique((n % 100).to_string())
        }
    });
    bench.client.bulk(jobs).await.unwrap();
    let keyed = "select count(*) from rowlock.job where unique_key is not null";
    assert_eq!(bench.number(keyed).await, 50);
    assert_eq!(bench.counts().await.0, 1050);

    for bad in [
        note(0).priority(7),
        too_large(),
        NewJob::new("note", &json!([1])).unwrap(),
    ] {
        let jobs = notes(15_000).chain([bad]);
        let refused = bench.client.bulk(jobs).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
        assert_eq!(bench.counts().await.0, 1050, "nothing was loaded");
    }
    let refuse =
        "alter table rowlock.job add constraint no_five check (payload ->> 'n' <> '14555')";
    bench.sql.batch_execute(refuse).await.unwrap();
    let refused = bench.client.bulk(notes(15_000)).await.unwrap_err();
    assert!(refused.to_string().contains("no_five"), "{refused}");
    assert_eq!(bench.counts().await.0, 1050, "the server refused them all");
    let accept = "alter table rowlock.job drop constraint no_five";
    bench.sql.batch_execute(accept).await.unwrap();
    // The connection that had to roll back is as good as any.
    assert_eq!(bench.client.bulk(notes(10)).await.unwrap(), 10);
}

/// The task that gathers enqueues ended with the runtime of the first one, and every later enqueue with it.
#[test]
fn a_client_outlives_the_runtime_it_was_first_used_in() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let bench = first.block_on(async {
        let bench = Bench::new().await;
        bench.enqueue(note(1)).await;
        bench
    });
    let Bench { client, sql, db } = bench;
    drop((sql, first));
    let second = runtime();
    second.block_on(async {
        let enqueued = within(
            SOON,
            "it is answered",
            client.enqueue_new(note(2)).into_future(),
        )
        .await;
        enqueued.unwrap();
        drop(client);
        db.close().await.unwrap();
    });
}
