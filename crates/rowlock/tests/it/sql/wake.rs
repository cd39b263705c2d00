//! The doorbell: an enqueue rings only while somebody is armed, and nobody is missed.

use serde_json::json;

use super::kit::{
    Installed, Session, claim, enqueue, installed, is, number, one, rows, run, stop_clock, until,
};

/// A database whose default queue is there, and an ear on its channel.
async fn listening() -> (Installed, Session) {
    let own = installed().await;
    run(
        &own.pg,
        "select rowlock.ensure_queue('default'), rowlock.ensure_queue('other')",
    )
    .await;
    let ear = Session::open(own.db.url()).await;
    run(&ear.pg, "listen rowlock").await;
    (own, ear)
}

const ENQUEUES: [&str; 5] = [
    "select rowlock.enqueue('k')",
    "select rowlock.enqueue_plain('default', 'k', '{}', 0)",
    "select rowlock.enqueue('k', tags => '{t}')",
    "select rowlock.enqueue_many('[{\"kind\": \"k\"}]')",
    "select rowlock.enqueue_batch('default', '{k,k}', array['{}', '{}']::jsonb[])",
];

#[tokio::test]
async fn an_enqueue_rings_only_while_somebody_is_armed() {
    let (own, mut ear) = listening().await;
    let pg = &own.pg;
    for sql in ENQUEUES {
        run(pg, sql).await;
    }
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        [""; 0],
        "nobody is armed"
    );

    run(pg, "select rowlock.arm('{default}', 60000)").await;
    for sql in ENQUEUES {
        run(pg, sql).await;
        assert_eq!(ear.heard_so_far("rowlock").await, ["ring default"], "{sql}");
    }
    own.client
        .bulk([rowlock::NewJob::new("k", &json!({})).expect("a job")])
        .await
        .expect("loaded");
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        ["ring default", "schedule default"],
        "COPY rings too, and nobody knows when those are due"
    );

    for (sql, why) in [
        (
            "select rowlock.enqueue('k', queue => 'other')",
            "nobody waits for that queue",
        ),
        (
            "select rowlock.enqueue('k', delay => '1 hour')",
            "it is not due yet",
        ),
        (
            "select rowlock.enqueue_many('[{\"kind\": \"k\", \"delay_ms\": 60000}]')",
            "it is not due yet",
        ),
        (
            "begin; select rowlock.enqueue('k'); rollback",
            "it was rolled back",
        ),
    ] {
        run(pg, sql).await;
        assert_eq!(ear.heard_so_far("rowlock").await, [""; 0], "{why}: {sql}");
    }
    run(pg, "select rowlock.disarm('{default}')").await;
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        ["disarm default"],
        "those who wait are told"
    );
    for sql in [
        "select rowlock.enqueue('k')",
        "select rowlock.disarm('{default}')",
    ] {
        run(pg, sql).await;
        assert_eq!(
            ear.heard_so_far("rowlock").await,
            [""; 0],
            "it is disarmed: {sql}"
        );
    }
}

#[tokio::test]
async fn a_job_that_is_due_while_the_bell_is_armed_is_announced_when_it_is_stored() {
    let (own, mut ear) = listening().await;
    let pg = &own.pg;
    stop_clock(pg, 0).await;
    run(pg, "select rowlock.arm('{default}', 7000)").await;
    for sql in [
        "select rowlock.enqueue('k', delay => '6 seconds')",
        "select rowlock.enqueue('k', delay => '6 seconds', tags => '{t}')",
        "select rowlock.enqueue_many('[{\"kind\": \"k\", \"delay_ms\": 6000}, {\"kind\": \"k\", \"delay_ms\": 60000}]')",
        "select rowlock.enqueue_batch('default', '{k}', array['{}'::jsonb], null, null, '{6000}')",
    ] {
        run(pg, sql).await;
        assert_eq!(
            ear.heard_so_far("rowlock").await,
            ["schedule default"],
            "{sql}"
        );
    }
    for delay in ["7 seconds", "1 hour"] {
        run(
            pg,
            &format!("select rowlock.enqueue('k', delay => '{delay}')"),
        )
        .await;
        assert_eq!(
            ear.heard_so_far("rowlock").await,
            [""; 0],
            "whoever arms again in time sees it: {delay}"
        );
    }
    run(
        pg,
        "select rowlock.enqueue_batch('default', '{k,k}', array['{}', '{}']::jsonb[], null, null, '{6000,null}')",
    )
    .await;
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        ["ring default"],
        "one of them is due now"
    );
}

#[tokio::test]
async fn a_retry_that_is_due_while_the_bell_is_armed_is_announced() {
    let (own, mut ear) = listening().await;
    let pg = &own.pg;
    enqueue(pg, 4).await;
    stop_clock(pg, 0).await;
    run(pg, "select rowlock.arm('{default}', 7000)").await;
    let claimed = claim(pg, "n => 4").await;
    let [a, b, c, d] = &claimed[..] else {
        panic!("four jobs were to be claimed: {claimed:?}");
    };
    for (verb, job, rest, heard) in [
        ("fail", a, "'{no}', '{6000}'", vec!["schedule default"]),
        ("fail", b, "'{no}', '{7000}'", vec![]),
        ("snooze", c, "'{6000}'", vec!["schedule default"]),
        ("snooze", d, "'{0}'", vec!["ring default"]),
    ] {
        let sql = format!(
            "select (rowlock.{verb}('default', '{{{}}}', '{{{}}}', {rest})).done",
            job.id, job.token
        );
        assert_eq!(one(pg, &sql).await, format!("{{{}}}", job.id), "{sql}");
        assert_eq!(ear.heard_so_far("rowlock").await, heard, "{sql}");
    }
}

#[tokio::test]
async fn an_arming_lapses_by_the_databases_clock_and_is_never_cut_short() {
    let (own, mut ear) = listening().await;
    let pg = &own.pg;
    stop_clock(pg, 0).await;
    run(pg, "select rowlock.arm('{default}', 60000)").await;
    run(pg, "select rowlock.arm('{default}', 10)").await;
    stop_clock(pg, 59_999).await;
    enqueue(pg, 1).await;
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        ["ring default"],
        "the longer arming counts"
    );
    stop_clock(pg, 60_000).await;
    enqueue(pg, 1).await;
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        [""; 0],
        "a dead worker's arming has lapsed"
    );
}

#[tokio::test]
async fn a_producer_that_looked_before_the_arming_is_still_in_progress() {
    let (own, mut ear) = listening().await;
    let (worker, producer) = (&own.pg, own.another().await);
    // It has looked at the bell, found nobody there, and will not look again.
    run(&producer, "begin; select rowlock.enqueue('k')").await;
    let armed = one(worker, "select xid from rowlock.arm('{default}', 60000)").await;
    assert_eq!(
        rows(worker, "select id from rowlock.claim(n => 1)").await,
        [""; 0],
        "the recheck after arming finds nothing"
    );
    let safe = format!("select rowlock.oldest_xid() >= {armed}");
    assert!(
        !is(worker, &safe).await,
        "the producer is in progress, so it is not safe to wait yet"
    );
    run(&producer, "commit").await;
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        [""; 0],
        "it rang nobody: without the rule above, the job would lie there unheard"
    );
    until(worker, &safe, "for the transactions of that moment to end").await;
    assert_eq!(
        rows(worker, "select kind from rowlock.claim(n => 1)").await,
        ["k"],
        "the poll that comes after them finds it"
    );

    // One that begins after the arming rings, however long it takes.
    run(&producer, "begin; select rowlock.enqueue('k')").await;
    run(&producer, "commit").await;
    assert_eq!(ear.heard_so_far("rowlock").await, ["ring default"]);
}

#[tokio::test]
async fn a_producer_that_makes_the_queue_rings_because_it_cannot_know() {
    let own = installed().await;
    let mut ear = Session::open(own.db.url()).await;
    run(&ear.pg, "listen rowlock").await;
    let (first, second) = (&own.pg, own.another().await);
    run(first, "begin; select rowlock.enqueue('k', queue => 'new')").await;
    run(&second, "select rowlock.enqueue('k', queue => 'new')").await;
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        ["ring new"],
        "it cannot see the queue's row, so it rings in any case"
    );
    run(first, "commit").await;
    assert_eq!(ear.heard_so_far("rowlock").await, ["queue new"]);
}

#[tokio::test]
async fn arming_says_when_the_next_job_is_due() {
    let (own, _ear) = listening().await;
    let pg = &own.pg;
    assert_eq!(
        one(
            pg,
            "select next_at from rowlock.arm('{default,other}', 1000)"
        )
        .await,
        "null"
    );
    run(
        pg,
        "select rowlock.enqueue('k', run_at => '2100-01-03', priority => 4), rowlock.enqueue('k', run_at => '2100-01-01', queue => 'other', priority => -4), \
         rowlock.enqueue('k', run_at => '2100-01-02')",
    )
    .await;
    assert_eq!(
        one(
            pg,
            "select next_at from rowlock.arm('{default,other}', 1000)"
        )
        .await,
        "2100-01-01 00:00:00+00"
    );
    assert_eq!(
        one(pg, "select next_at from rowlock.arm('{default}', 1000)").await,
        "2100-01-02 00:00:00+00"
    );
}

#[tokio::test]
async fn arming_leaves_no_dead_rows_behind() {
    let (own, _ear) = listening().await;
    let (pg, horizon) = (&own.pg, own.another().await);
    run(
        &horizon,
        "begin isolation level repeatable read; select count(*) from rowlock.queue",
    )
    .await;
    let size = "select sum(pg_relation_size(oid)) from pg_class where relnamespace = 'rowlock'::regnamespace and relkind in ('r', 'S', 'p')";
    run(
        pg,
        "select rowlock.arm('{default}', 10), rowlock.disarm('{default}')",
    )
    .await;
    run(
        pg,
        "select rowlock.sweep('default', 1, 0, 7, overdue => true)",
    )
    .await;
    let before = number(pg, size).await;
    for _ in 0..300 {
        run(
            pg,
            "select rowlock.arm('{default}', 10), rowlock.disarm('{default}')",
        )
        .await;
        run(
            pg,
            "select rowlock.sweep('default', 1, 0, 7, overdue => true)",
        )
        .await;
    }
    assert_eq!(
        number(pg, size).await,
        before,
        "the bell and the time of the sweep are kept outside of MVCC"
    );
}

#[tokio::test]
async fn what_comes_up_behind_the_cursors_is_announced() {
    let (own, mut ear) = listening().await;
    let pg = &own.pg;
    enqueue(pg, 2).await;
    let held = super::kit::claim(pg, "n => 2").await;
    ear.heard_so_far("rowlock").await;
    run(
        pg,
        &format!("select rowlock.release({})", super::kit::named(&held[..1])),
    )
    .await;
    let due = "select (extract(epoch from run_at) * 1000000)::bigint from rowlock.job where id = ";
    let due = number(pg, &format!("{due}{}", held[0].id)).await;
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        [format!("since default {due}")],
        "a released job keeps its place"
    );
    run(pg, &format!("select rowlock.cancel(array[{}])", held[1].id)).await;
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        [format!("cancel default {}", held[1].id)]
    );
    run(pg, "select rowlock.pause('default')").await;
    run(pg, "select rowlock.resume('default')").await;
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        ["ring default"],
        "nobody has looked into a paused queue, so nothing was passed over"
    );
    run(pg, "select rowlock.pause('default', 'k')").await;
    run(pg, "select rowlock.resume('default', 'k')").await;
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        ["rewind default", "rewind default"],
        "jobs of a paused kind were"
    );
    run(pg, "select rowlock.resume('default')").await;
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        [""; 0],
        "nothing has changed"
    );
}
