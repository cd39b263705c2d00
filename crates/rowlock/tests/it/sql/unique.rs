//! Unique keys: at most one live job with a key in a queue.

use rowlock::{NewJob, OnConflict};
use serde_json::json;

use super::kit::{claim, complete, installed, move_clock, number, one, rows, run, until, within};

#[tokio::test]
async fn the_second_is_answered_with_the_first() {
    let own = installed().await;
    let pg = &own.pg;
    let enqueue = "select id, duplicate from rowlock.enqueue('k', '{\"n\": 1}', unique_key => 'u')";
    let first = one(pg, enqueue).await;
    assert!(first.ends_with("|f"), "{first}");
    assert_eq!(one(pg, enqueue).await, first.replace("|f", "|t"));
    let other = one(
        pg,
        "select duplicate from rowlock.enqueue('k', queue => 'other', unique_key => 'u')",
    )
    .await;
    assert_eq!(other, "f", "keys are per queue");
    let held = claim(pg, "n => 1").await;
    assert_eq!(
        one(pg, enqueue).await,
        first.replace("|f", "|t"),
        "also while it runs"
    );
    complete(pg, &held).await;
    assert!(
        one(pg, enqueue).await.ends_with("|f"),
        "when it is finished, the key is free"
    );
}

#[tokio::test]
async fn keep_and_replace() {
    let own = installed().await;
    let pg = &own.pg;
    let id = number(pg, "select id from rowlock.enqueue('first', '{\"n\": 1}', unique_key => 'u', delay => '1 hour')").await;
    let keep = one(pg, "select id, duplicate from rowlock.enqueue('second', '{\"n\": 2}', unique_key => 'u', priority => 3)").await;
    assert_eq!(keep, format!("{id}|t"));
    assert_eq!(one(pg, "select kind, payload, priority, run_at > now() + interval '50 minutes' from rowlock.job").await, "first|{\"n\": 1}|0|t");
    let replace = "select id, duplicate from rowlock.enqueue('second', '{\"n\": 2}', unique_key => 'u', on_conflict => 'replace', priority => 3, delay => '2 hours')";
    assert_eq!(one(pg, replace).await, format!("{id}|t"));
    assert_eq!(one(pg, "select kind, payload, priority, run_at > now() + interval '110 minutes' from rowlock.job").await, "second|{\"n\": 2}|3|t");
    run(
        pg,
        "select rowlock.retry(array(select id from rowlock.job))",
    )
    .await;
    let held = claim(pg, "n => 1").await;
    assert_eq!(
        one(pg, replace.replace("'{\"n\": 2}'", "'{\"n\": 3}'").as_str()).await,
        format!("{id}|t")
    );
    assert_eq!(
        one(pg, "select payload, attempt from rowlock.job").await,
        "{\"n\": 2}|1",
        "a running job is left alone"
    );
    complete(pg, &held).await;
}

#[tokio::test]
async fn duplicates_within_one_batch() {
    let own = installed().await;
    let pg = &own.pg;
    let keep = "select n, id - (select min(id) from rowlock.job), duplicate from rowlock.enqueue_many(\
        '[{\"kind\": \"a\", \"unique_key\": \"u\"}, {\"kind\": \"b\"}, {\"kind\": \"c\", \"unique_key\": \"u\"}, {\"kind\": \"d\", \"unique_key\": \"v\"}]') order by n";
    rows(pg, keep).await;
    assert_eq!(
        rows(pg, "select kind, unique_key from rowlock.job order by id").await,
        ["a|u", "b|null", "d|v"],
        "the first of a key wins"
    );
    let again = rows(pg, "select n, duplicate, (select kind from rowlock.job j where j.id = m.id) from rowlock.enqueue_many(\
        '[{\"kind\": \"x\", \"unique_key\": \"v\"}, {\"kind\": \"y\"}, {\"kind\": \"z\", \"unique_key\": \"u\", \"on_conflict\": \"replace\", \"payload\": {\"n\": 1}}, \
          {\"kind\": \"zz\", \"unique_key\": \"u\", \"on_conflict\": \"replace\", \"payload\": {\"n\": 2}}]') m order by n").await;
    assert_eq!(again.len(), 4);
    assert!(
        again[0].starts_with("1|t")
            && again[1].starts_with("2|f")
            && again[2].starts_with("3|t")
            && again[3].starts_with("4|t"),
        "{again:?}"
    );
    assert_eq!(
        one(
            pg,
            "select kind, payload from rowlock.job where unique_key = 'u'"
        )
        .await,
        "zz|{\"n\": 2}",
        "of two that replace, the last counts"
    );

    let jobs = ["k1", "k2", "k1"].map(|key| {
        NewJob::new("r", &json!({"key": key}))
            .expect("a job")
            .queue("rust")
            .unique(key)
    });
    let answers = own
        .client
        .enqueue_all(jobs.clone())
        .await
        .expect("enqueued");
    assert_eq!(
        answers.iter().map(|a| a.duplicate).collect::<Vec<_>>(),
        [false, false, true]
    );
    assert_eq!(
        answers[0].id, answers[2].id,
        "the duplicate names the job that was there"
    );
    assert_eq!(
        own.client.bulk(jobs).await.expect("loaded"),
        3,
        "COPY takes the same care"
    );
    assert_eq!(
        number(pg, "select count(*) from rowlock.job where queue = 'rust'").await,
        2
    );
    let replaced = NewJob::new("r", &json!({"new": true}))
        .expect("a job")
        .queue("rust")
        .unique("k2")
        .on_conflict(OnConflict::Replace);
    assert!(
        own.client
            .enqueue_new(replaced)
            .await
            .expect("enqueued")
            .duplicate
    );
    assert_eq!(
        one(
            pg,
            "select payload from rowlock.job where unique_key = 'k2'"
        )
        .await,
        "{\"new\": true}"
    );
}

#[tokio::test]
async fn a_second_transaction_waits_for_the_first_and_learns_how_it_ended() {
    let own = installed().await;
    for (ending, duplicate) in [("commit", "t"), ("rollback", "f")] {
        let (pg, other) = (&own.pg, own.another().await);
        run(pg, "delete from rowlock.job").await;
        run(pg, "begin").await;
        let first = number(pg, "select id from rowlock.enqueue('k', unique_key => 'u')").await;
        let pid = number(&other, "select pg_backend_pid()").await;
        let second = tokio::spawn(async move {
            one(
                &other,
                "select id, duplicate from rowlock.enqueue('k', unique_key => 'u')",
            )
            .await
        });
        let waits = format!(
            "select wait_event_type is not distinct from 'Lock' from pg_stat_activity where pid = {pid}"
        );
        until(
            &own.another().await,
            &waits,
            "for the second to wait for the first",
        )
        .await;
        run(pg, ending).await;
        let second = within("the second enqueue", second)
            .await
            .expect("no panic");
        assert!(second.ends_with(duplicate), "after {ending}: {second}");
        assert_eq!(
            second.starts_with(&format!("{first}|")),
            ending == "commit",
            "after {ending}: {second}"
        );
        assert_eq!(
            number(pg, "select count(*) from rowlock.job").await,
            1,
            "after {ending}"
        );
    }
}

#[tokio::test]
async fn many_sessions_with_the_same_keys_in_any_order_make_one_job_each_and_no_deadlock() {
    let own = installed().await;
    let mut sessions = Vec::new();
    for n in 0..6 {
        let pg = own.another().await;
        sessions.push(tokio::spawn(async move {
            let order = if n % 2 == 0 { "asc" } else { "desc" };
            let call = format!(
                "select count(*) filter (where not duplicate) from rowlock.enqueue_many((select jsonb_agg(jsonb_build_object('kind', 'k', \
                 'unique_key', 'u' || g) order by g {order}) from generate_series(1, 200) g))"
            );
            number(&pg, &call).await
        }));
    }
    let mut new = 0;
    for session in sessions {
        new += within("a session", session).await.expect("no deadlock");
    }
    assert_eq!(new, 200, "each key was new once");
    assert_eq!(
        number(&own.pg, "select count(*) from rowlock.job").await,
        200
    );
}

#[tokio::test]
async fn a_replacement_is_not_finished_by_the_holder_of_an_expired_lease() {
    let own = installed().await;
    let pg = &own.pg;
    let enqueue = "select duplicate from rowlock.enqueue('k', '{\"rev\": 1}', unique_key => 'u')";
    assert_eq!(one(pg, enqueue).await, "f");
    let slow = claim(pg, "n => 1").await;
    move_clock(pg, "1 hour").await;
    let replace = "select duplicate from rowlock.enqueue('k', '{\"rev\": 2}', unique_key => 'u', on_conflict => 'replace',
                   tags => '{new}', max_attempts => 7, expires_at => rowlock.clock() + interval '1 day')";
    assert_eq!(one(pg, replace).await, "t");
    complete(pg, &slow).await;
    assert_eq!(
        rows(pg, "select payload ->> 'rev', tags, max_attempts, expires_at is not null, crashes from rowlock.job").await,
        ["2|{new}|7|t|1"],
        "the new job waits, with all that came with it"
    );
}

#[tokio::test]
async fn a_job_that_is_to_be_cancelled_does_not_stand_in_the_way() {
    let own = installed().await;
    let pg = &own.pg;
    let enqueue = "select duplicate from rowlock.enqueue('k', unique_key => 'u')";
    assert_eq!(one(pg, enqueue).await, "f");
    let held = claim(pg, "n => 1").await;
    let id = held[0].id;
    assert_eq!(
        one(
            pg,
            &format!("select answer from rowlock.cancel('{{{id}}}')")
        )
        .await,
        "asked"
    );
    move_clock(pg, "1 hour").await;
    assert_eq!(
        one(pg, enqueue).await,
        "f",
        "nobody runs the first any more"
    );
    assert_eq!(
        rows(pg, "select id, outcome from rowlock.finished").await,
        [format!("{id}|cancelled")]
    );
    assert_eq!(number(pg, "select count(*) from rowlock.job").await, 1);
}
