use jiff::ToSpan;
use rowlock::manage::{DeadFilter, DeadReason, JobState};
use rowlock::{Error, JobId};
use serde_json::json;

use super::{Bench, bench, job};

/// Dead jobs of a queue, as many as that.
async fn bury(b: &Bench, queue: &str, jobs: i32) {
    b.sql(&format!(
        "insert into rowlock.dead (id, created_at, run_at, died_at, worker, attempt, failures, crashes, priority, queue, kind, reason, payload, errors)
         select nextval('rowlock.job_id'), now(), now(), now() - interval '1 hour', 0, 5, 5, 0, 0, '{queue}', 'k', 'failed', '{{}}',
                jsonb_build_array(jsonb_build_object('attempt', 5, 'at', now(), 'worker', 0, 'error', 'boom ' || n))
           from generate_series(1, {jobs}) n"
    ))
    .await;
}

#[tokio::test]
async fn a_redrive_goes_on_until_all_are_back() {
    let b = bench().await;
    bury(&b, "a", 1500).await;
    bury(&b, "b", 1000).await;
    let mut told = Vec::new();
    let did = b
        .client
        .redrive(DeadFilter::new())
        .on_progress(|so_far| told.push(so_far.redriven))
        .await
        .unwrap();
    assert_eq!((did.redriven, did.duplicates), (2500, 0));
    assert!(told.len() >= 3 && told.is_sorted(), "{told:?}");
    assert_eq!(told.last(), Some(&2500));
    assert_eq!(b.number("select count(*) from rowlock.dead").await, 0);
    assert_eq!(
        b.number("select count(*) from rowlock.job where failures = 0 and attempt = 5")
            .await,
        2500
    );
}

#[tokio::test]
async fn a_redrive_takes_only_what_fits() {
    let b = bench().await;
    bury(&b, "a", 3).await;
    bury(&b, "b", 3).await;
    let one = JobId(
        b.number("select min(id) from rowlock.dead where queue = 'b'")
            .await,
    );
    let f = DeadFilter::new;
    let now = b.client.clock().await.unwrap();
    for (filter, jobs) in [
        (f().queue("none"), 0),
        (f().reason(DeadReason::Poison), 0),
        (f().died_after(now - 1.minute()), 0),
        (f().died_after(now + 1.hour()), 0),
        (f().died_before(now - 2.hours()), 0),
        (f().queue("a").error("BOOM 2"), 1),
        (f().ids([one]), 1),
        (f().ids([one]), 0),
        (
            f().queue("b")
                .kind("k")
                .reason(DeadReason::Failed)
                .died_after(now - 2.hours())
                .died_before(now),
            2,
        ),
    ] {
        let did = b.client.redrive(filter.clone()).await.unwrap();
        assert_eq!(did.redriven, jobs, "{filter:?}");
    }
    assert_eq!(b.number("select count(*) from rowlock.dead").await, 2);
}

#[tokio::test]
async fn tags_and_paths_choose_among_the_dead() {
    let b = bench().await;
    for (id, tag) in [(7, "vip"), (8, "vip"), (9, "common")] {
        b.enqueue_job(
            job("k", json!({"user": {"id": id}, "a.b": true}))
                .queue("q")
                .tag(tag)
                .metadata("tenant", "t1"),
        )
        .await;
        b.kill("q", "boom").await;
    }
    let f = DeadFilter::new;
    for (filter, jobs) in [
        (f().tag("none"), 0),
        (f().payload("user.id", 70), 0),
        (f().payload("user", 7), 0),
        (f().metadata("tenant", "t2"), 0),
        (f().tag("common").payload("user.id", 7), 0),
        (
            f().tag("vip")
                .payload("user.id", 7)
                .metadata("tenant", "t1"),
            1,
        ),
        (f().payload("user.id", "8").payload("a.b", "true"), 1),
    ] {
        let did = b.client.redrive(filter.clone()).await.unwrap();
        assert_eq!(did.redriven, jobs, "{filter:?}");
    }
    let left = b
        .client
        .discard(f().metadata("tenant", "t1"))
        .await
        .unwrap();
    assert_eq!(left.discarded, 1);
    for (bad, what) in [
        (f().tag(""), "tag"),
        (f().payload("", 1), "payload"),
        (f().metadata("a", "\0"), "metadata"),
    ] {
        let Err(Error::Invalid(refused)) = b.client.discard(bad).await else {
            panic!("{what} is refused");
        };
        assert_eq!(refused.what, what);
    }
    // In SQL, a filter that says nothing is none.
    let refused =
        b.pg.query(
            "select discarded from rowlock.discard(payload => '{}')",
            &[],
        )
        .await
        .unwrap_err();
    let message = refused.as_db_error().unwrap().message();
    assert!(
        message.contains("would discard every dead job"),
        "{message}"
    );
}

#[tokio::test]
async fn a_redrive_with_a_rate_spreads_the_jobs() {
    let b = bench().await;
    bury(&b, "a", 1101).await;
    let start = b.client.clock().await.unwrap() + 1.hour();
    let did = b
        .client
        .redrive(DeadFilter::new().queue("a"))
        .rate(10.0)
        .start_at(start)
        .await
        .unwrap();
    assert_eq!(did.redriven, 1101);
    // Over two rounds, as if it were one.
    let spread =
        "select (extract(epoch from max(run_at) - min(run_at)) * 1000)::bigint from rowlock.job";
    assert_eq!(b.number(spread).await, 110_000);
    let first = b
        .number("select (extract(epoch from min(run_at)) * 1000000)::bigint from rowlock.job")
        .await;
    assert_eq!(first, start.as_microsecond());
}

#[tokio::test]
async fn a_redrive_of_a_few() {
    let b = bench().await;
    bury(&b, "a", 10).await;
    let did = b.client.redrive(DeadFilter::new()).limit(3).await.unwrap();
    assert_eq!(did.redriven, 3);
    assert_eq!(b.number("select count(*) from rowlock.dead").await, 7);
}

#[tokio::test]
async fn a_job_whose_key_is_taken_stays_dead() {
    let b = bench().await;
    b.enqueue_job(job("k", json!({})).queue("q").unique("u"))
        .await;
    let dead = b.kill("q", "boom").await;
    b.enqueue_job(job("k", json!({})).queue("q").unique("u"))
        .await;
    let did = b.client.redrive(DeadFilter::all()).await.unwrap();
    assert_eq!((did.redriven, did.duplicates), (0, 1));
    let found = b.client.job(dead).await.unwrap().unwrap();
    assert_eq!(found.state, JobState::Dead);
}

/// What is redriven may die again at once; the loop must not chase it.
#[tokio::test]
async fn a_redrive_leaves_alone_what_dies_after_it_began() {
    let b = bench().await;
    b.enqueue("q", "k").await;
    let first = b.kill("q", "boom").await;
    b.sql("update rowlock.dead set died_at = died_at + interval '1 hour'")
        .await;
    let did = b
        .client
        .redrive(DeadFilter::new().queue("q"))
        .await
        .unwrap();
    assert_eq!(did.redriven, 0);
    let found = b.client.job(first).await.unwrap().unwrap();
    assert_eq!(found.state, JobState::Dead);
}

#[tokio::test]
async fn a_discard_must_say_what_it_means() {
    let b = bench().await;
    bury(&b, "a", 1200).await;
    bury(&b, "b", 5).await;
    let e = b.client.discard(DeadFilter::new()).await.unwrap_err();
    assert!(
        e.to_string().contains("would discard every dead job"),
        "{e}"
    );
    assert_eq!(b.number("select count(*) from rowlock.dead").await, 1205);

    let filter = DeadFilter::new().queue("a");
    let did = b.client.discard(filter.clone()).limit(7).await.unwrap();
    assert_eq!(did.discarded, 7);
    let did = b.client.discard(filter).await.unwrap();
    assert_eq!(did.discarded, 1193);
    let did = b.client.discard(DeadFilter::all()).await.unwrap();
    assert_eq!(did.discarded, 5);
}

#[tokio::test]
async fn bad_values_change_nothing() {
    let b = bench().await;
    bury(&b, "a", 3).await;
    let now = b.client.clock().await.unwrap();
    let all = DeadFilter::all;
    let errors = [
        b.client.redrive(all()).rate(0.0).await.unwrap_err(),
        b.client.redrive(all()).rate(f64::NAN).await.unwrap_err(),
        b.client.redrive(all()).limit(0).await.unwrap_err(),
        b.client.redrive(all().queue("")).await.unwrap_err(),
        b.client.redrive(all().error("")).await.unwrap_err(),
        b.client
            .redrive(all())
            .start_at("1999-01-01T00:00:00Z".parse().unwrap())
            .await
            .unwrap_err(),
        b.client
            .redrive(all().died_after(now).died_before(now))
            .await
            .unwrap_err(),
        b.client
            .discard(all().ids((0..10_001).map(JobId)))
            .await
            .unwrap_err(),
        b.client.discard(all().kind("x\0")).await.unwrap_err(),
    ];
    for (e, what) in errors.iter().zip([
        "rate",
        "rate",
        "limit",
        "queue",
        "error",
        "start_at",
        "died_before",
        "ids",
        "kind",
    ]) {
        match e {
            Error::Invalid(e) => assert_eq!(e.what, what, "{e}"),
            e => panic!("{e}"),
        }
    }
    assert_eq!(b.number("select count(*) from rowlock.dead").await, 3);
}
