//! Housekeeping: the days of history, retention, and what is left over. None of it may ever fail or hold up an acknowledgement.

use std::time::Instant;

use super::kit::{
    Held, claim, complete, enqueue, installed, is, move_clock, number, one, refused, rows, run,
    within,
};

const DAYS: &str = "select partition from rowlock.history_days() order by 1";

#[tokio::test]
async fn partitions_are_made_a_week_ahead_from_the_start() {
    let own = installed().await;
    let pg = &own.pg;
    let wanted = rows(
        pg,
        "select 'finished_' || to_char((now() at time zone 'UTC')::date + n, 'YYYYMMDD') from generate_series(0, 7) n",
    )
    .await;
    assert_eq!(rows(pg, DAYS).await, wanted);
    enqueue(pg, 1).await;
    let held = claim(pg, "n => 1").await;
    complete(pg, &held).await;
    assert_eq!(
        one(pg, "select tableoid::regclass from rowlock.finished").await,
        format!("rowlock.{}", wanted[0])
    );

    move_clock(pg, "3 days").await;
    let made = rows(
        pg,
        "select partition, answer from rowlock.make_partitions()",
    )
    .await;
    assert_eq!(made.len(), 3, "three more days: {made:?}");
    assert!(made.iter().all(|m| m.ends_with("|made")), "{made:?}");
    assert_eq!(
        rows(
            pg,
            "select partition, answer from rowlock.make_partitions()"
        )
        .await,
        [""; 0],
        "nothing is missing any more"
    );
}

#[tokio::test]
async fn days_begin_at_midnight_utc_whatever_the_time_zone() {
    let own = installed().await;
    let pg = &own.pg;
    // A zone with summer time, on the days when the clocks change.
    run(pg, "set timezone = 'America/New_York'").await;
    for day in ["2040-03-11", "2040-11-04"] {
        run(pg, &format!("select rowlock.make_partition('{day}', 0)")).await;
        let bounds = one(
            pg,
            &format!(
                "select pg_get_expr(relpartbound, oid) from pg_class where oid = 'rowlock.finished_{}'::regclass",
                day.replace('-', "")
            ),
        )
        .await;
        let hours = one(
            pg,
            &format!("select extract(epoch from rowlock.day_begins('{day}'::date + 1) - rowlock.day_begins('{day}')) / 3600, rowlock.history_day('{day} 23:59:59.9+00')"),
        )
        .await;
        assert_eq!(hours, format!("24.0000000000000000|{day}"), "{bounds}");
    }
}

#[tokio::test]
async fn a_missing_partition_never_fails_an_acknowledgement_and_is_made_up_for() {
    let own = installed().await;
    let pg = &own.pg;
    let all = enqueue(pg, 3).await;
    move_clock(pg, "30 days").await;
    let held = claim(pg, "n => 2").await;
    assert!(
        complete(pg, &held).await.ends_with("|{}|{}"),
        "no partition takes this day, and the ack does not mind"
    );
    run(
        pg,
        "select rowlock.enqueue('k', expires_at => rowlock.clock() + interval '1 s')",
    )
    .await;
    run(pg, &format!("select rowlock.cancel(array[{}])", all[2])).await;
    assert_eq!(one(pg, "select count(*), min(tableoid::regclass::text), max(tableoid::regclass::text) from rowlock.finished").await, "3|rowlock.finished_default|rowlock.finished_default");

    assert_eq!(
        rows(pg, "select answer from rowlock.make_partitions(0, 2)").await,
        [
            "failed: more than 2 rows of this day are in finished_default; moving them would hold up acknowledgements for too long. \
          They are kept and cleared there, or call make_partitions with a higher move_limit"
        ]
    );
    assert_eq!(
        rows(pg, "select answer from rowlock.make_partitions(0)").await,
        ["made, and 3 rows moved there"]
    );
    assert_eq!(
        one(pg, "select count(*), count(*) filter (where tableoid::regclass::text = 'rowlock.finished_' || to_char(finished_at at time zone 'UTC', 'YYYYMMDD')) from rowlock.finished").await,
        "3|3",
        "the rows are in their day's partition now"
    );
    assert_eq!(
        one(
            pg,
            &format!("select place from rowlock.find_job({})", all[0])
        )
        .await,
        "finished",
        "and are found there"
    );
}

#[tokio::test]
async fn rows_of_a_day_in_the_past_are_moved_too() {
    let own = installed().await;
    let pg = &own.pg;
    enqueue(pg, 1).await;
    move_clock(pg, "30 days").await;
    let held = claim(pg, "n => 1").await;
    complete(pg, &held).await;
    move_clock(pg, "32 days").await;
    let made = rows(
        pg,
        "select answer from rowlock.make_partitions(1) order by partition",
    )
    .await;
    assert_eq!(
        made,
        ["made, and 1 rows moved there", "made", "made"],
        "the day before yesterday, today and tomorrow"
    );
}

/// Completes these one after the other on a connection of their own; the longest that one took, in ms.
async fn slowest(pg: tokio_postgres::Client, held: Vec<Held>) -> u128 {
    let mut slowest = 0;
    for one in held {
        let start = Instant::now();
        let said = complete(&pg, std::slice::from_ref(&one)).await;
        assert!(said.ends_with("|{}|{}"), "{said}");
        slowest = slowest.max(start.elapsed().as_millis());
    }
    slowest
}

#[tokio::test]
async fn a_drop_behind_a_reader_gives_up_soon_and_is_tried_again() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "insert into rowlock.job (kind, payload) select 'k', '{}' from generate_series(1, 300)",
    )
    .await;
    let held = claim(pg, "n => 300, lease_ms => 86400000").await;
    move_clock(pg, "10 days").await;
    run(pg, "select rowlock.make_partitions()").await;
    let oldest = rows(pg, DAYS).await[0].clone();

    let reader = own.another().await;
    run(
        &reader,
        &format!("begin; select count(*) from rowlock.{oldest}"),
    )
    .await;
    let (dropper, acker) = (own.another().await, own.another().await);
    // Dropping needs the lock on `finished` for as long as it waits for the reader, and every ack needs it too.
    let drop = async {
        let start = Instant::now();
        let answers = rows(
            &dropper,
            "select partition, answer from rowlock.drop_partitions()",
        )
        .await;
        (answers, start.elapsed())
    };
    let (acks, (answers, waited)) = within(
        "acks beside a drop",
        futures_util::future::join(slowest(acker, held), drop),
    )
    .await;
    assert_eq!(
        answers,
        [format!(
            "{oldest}|locked: canceling statement due to lock timeout"
        )],
        "it gives up, and leaves the other days for later"
    );
    assert!(
        waited.as_millis() >= 100,
        "it waited for the reader: {waited:?}"
    );
    assert!(
        acks < 5_000,
        "an ack waited for {acks} ms, while the drop may wait for a lock for 100 ms"
    );
    assert_eq!(
        number(pg, "select count(*) from rowlock.finished").await,
        300
    );

    run(&reader, "commit").await;
    let answers = rows(pg, "select answer from rowlock.drop_partitions()").await;
    assert_eq!(answers, ["dropped"; 3], "three days are older than a week");
    assert!(!rows(pg, DAYS).await.contains(&oldest));
}

#[tokio::test]
async fn making_a_partition_gives_up_soon_too() {
    let own = installed().await;
    let (pg, reader) = (&own.pg, own.another().await);
    move_clock(pg, "1 day").await;
    run(
        &reader,
        "begin; select count(*) from rowlock.finished_default",
    )
    .await;
    let answers = rows(pg, "select answer from rowlock.make_partitions()").await;
    assert_eq!(answers, ["locked: canceling statement due to lock timeout"]);
    run(&reader, "commit").await;
    assert_eq!(
        rows(pg, "select answer from rowlock.make_partitions()").await,
        ["made"]
    );
}

/// Fills the history: this many jobs of a queue, one a minute, back from some time ago.
fn history(queue: &str, ago: &str, count: usize) -> String {
    format!(
        "insert into rowlock.finished (id, created_at, run_at, finished_at, worker, attempt, failures, crashes, priority, queue, kind, outcome, payload) \
         select nextval('rowlock.job_id'), t, t, t, 0, 1, 0, 0, 0, '{queue}', 'k', 'done', '{{}}' \
         from (select now() - interval '{ago}' - g * interval '1 minute' as t from generate_series(1, {count}) g) s;"
    )
}

#[tokio::test]
async fn a_shorter_retention_is_kept_by_batches() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "select rowlock.set_queue('short', '{\"retention\": \"1 day\"}'), rowlock.set_queue('long', '{\"retention\": \"7 days\"}'), \
         rowlock.set_queue('none', '{\"retention\": \"0\"}')",
    )
    .await;
    for (queue, ago, count) in [
        ("short", "1 hour", 100),
        ("short", "25 hours", 2000),
        ("long", "25 hours", 500),
        ("none", "1 hour", 50),
    ] {
        run(pg, &history(queue, ago, count)).await;
    }
    let count = "select queue, count(*) from rowlock.finished group by 1 order by 1";
    // A little at a time: how far it came is remembered.
    let mut calls = 0;
    let mut deleted = 0;
    loop {
        calls += 1;
        assert!(calls < 500, "it comes to an end");
        let said = one(pg, "select deleted, behind from rowlock.retain(50, 1)").await;
        deleted += said
            .split('|')
            .next()
            .and_then(|n| n.parse::<i64>().ok())
            .expect("a number");
        if said.ends_with("|f") {
            break;
        }
    }
    assert_eq!(
        rows(pg, count).await,
        ["long|500", "short|100"],
        "after {calls} calls"
    );
    assert_eq!(deleted, 2050);
    assert_eq!(
        one(pg, "select deleted, behind from rowlock.retain()").await,
        "0|f",
        "nothing is left to do"
    );
    assert!(
        is(pg, "select bool_and(upto <= now() - q.retention) and count(*) = 2 from rowlock.retained r join rowlock.queue q on q.name = r.queue").await,
        "each short queue remembers how far it is cleared"
    );
    move_clock(pg, "1 day").await;
    run(pg, "select rowlock.retain()").await;
    assert_eq!(rows(pg, count).await, ["long|500"], "a day later");
}

#[tokio::test]
async fn what_the_default_partition_took_goes_at_the_longest_retention() {
    let own = installed().await;
    let pg = &own.pg;
    run(pg, "select rowlock.ensure_queue('default')").await;
    run(
        pg,
        &(history("default", "8 days", 120) + &history("default", "2 days", 30)),
    )
    .await;
    assert_eq!(
        one(pg, "select deleted, behind from rowlock.retain(50)").await,
        "120|f"
    );
    assert_eq!(
        number(pg, "select count(*) from rowlock.finished").await,
        30
    );
}

#[tokio::test]
async fn maintenance_from_many_sessions_at_once_is_done_and_fails_nowhere() {
    let own = installed().await;
    let pg = &own.pg;
    move_clock(pg, "3 days").await;
    // A job that came by COPY, into a queue that nobody knows of.
    run(
        pg,
        "insert into rowlock.job (queue, kind, payload) values ('copied', 'k', '{}')",
    )
    .await;
    let mut sessions = Vec::new();
    for _ in 0..5 {
        let session = own.another().await;
        sessions.push(tokio::spawn(async move {
            rows(&session, "select step, did, detail from rowlock.maintain()").await
        }));
    }
    let mut at_work = 0;
    for session in sessions {
        let said = within("maintenance", session).await.expect("no panic");
        assert!(!said.iter().any(|s| s.contains("failed")), "{said:?}");
        at_work += usize::from(said.len() > 1);
    }
    assert!(at_work >= 1, "somebody did it");
    assert_eq!(rows(pg, DAYS).await.len(), 11);
    assert_eq!(one(pg, "select name from rowlock.queue").await, "copied");

    let other = own.another().await;
    run(pg, "begin; select rowlock.maintain()").await;
    assert_eq!(
        rows(&other, "select * from rowlock.maintain()").await,
        ["maintain|0|left to another session that is at it"]
    );
    run(pg, "commit").await;
}

#[tokio::test]
async fn queues_without_a_row_are_found_among_those_with_one() {
    let own = installed().await;
    let pg = &own.pg;
    for known in ["", "{b}", "{b,d,f}", "{a,g}"] {
        run(
            pg,
            &format!(
                "truncate rowlock.queue; delete from rowlock.job;
                 select rowlock.ensure_queue(q) from unnest(nullif('{known}', '')::text[]) q;
                 insert into rowlock.job (queue, kind, payload) select q, 'k', '{{}}' from unnest('{{a,b,bb,c,d,e,g,g2}}'::text[]) q"
            ),
        )
        .await;
        let before = number(pg, "select count(*) from rowlock.queue").await;
        let made = number(pg, "select rowlock.heal_queues()").await;
        let names = one(
            pg,
            "select string_agg(distinct j.queue, ' ') from rowlock.job j join rowlock.queue q on q.name = j.queue",
        )
        .await;
        assert_eq!(names, "a b bb c d e g g2", "of {known}");
        let all = number(pg, "select count(*) from rowlock.queue").await;
        assert_eq!(before + made, all, "of {known}");
        assert_eq!(number(pg, "select rowlock.heal_queues()").await, 0);
    }
}

#[tokio::test]
async fn a_step_that_fails_does_not_stop_the_others() {
    let own = installed().await;
    let pg = &own.pg;
    run(pg, "drop table rowlock.once; insert into rowlock.job (queue, kind, payload) values ('copied', 'k', '{}')").await;
    let steps = rows(
        pg,
        "select step, did, coalesce(left(detail, 7), '') from rowlock.maintain()",
    )
    .await;
    assert!(
        steps.contains(&"forget_once|0|failed:".to_owned()),
        "{steps:?}"
    );
    assert!(steps.contains(&"heal_queues|1|".to_owned()), "{steps:?}");
    assert_eq!(steps.len(), 7, "{steps:?}");
}

#[tokio::test]
async fn workers_that_were_not_seen_for_long_are_forgotten() {
    let own = installed().await;
    let pg = &own.pg;
    let register = "select rowlock.register_worker('w', 'h', 1, 'v', '{default}', '{}', 1)";
    let (gone, alive) = (number(pg, register).await, number(pg, register).await);
    move_clock(pg, "2 days").await;
    assert!(is(pg, &format!("select rowlock.heartbeat({alive}, 3)")).await);
    assert_eq!(number(pg, "select rowlock.forget_workers()").await, 1);
    assert_eq!(
        one(pg, "select id, running from rowlock.worker").await,
        format!("{alive}|3")
    );
    assert!(
        !is(pg, &format!("select rowlock.heartbeat({gone}, 0)")).await,
        "it is told to register again"
    );
    assert_eq!(
        refused(pg, "select rowlock.forget_workers('-1 day')").await,
        "22023 rowlock: older_than '-1 days' is out of range: it must be from 0 to 3650 days"
    );
}

/// Of many workers one keeps house.
#[tokio::test]
async fn what_another_has_just_done_is_not_due() {
    let own = installed().await;
    let pg = &own.pg;
    let due = "select count(*) from rowlock.maintain_if_due(60000)";
    assert!(number(pg, due).await > 1);
    assert_eq!(number(pg, due).await, 0);
    assert!(
        number(pg, "select count(*) from rowlock.maintain()").await > 1,
        "who asks for it gets it"
    );
    run(pg, "select setval('rowlock.kept_house', (extract(epoch from now() - interval '61 s') * 1000)::bigint)").await;
    assert!(number(pg, due).await > 1);
    // The clock was set back.
    run(pg, "select setval('rowlock.kept_house', (extract(epoch from now() + interval '1 day') * 1000)::bigint)").await;
    assert!(number(pg, due).await > 1);
    for bad in ["0", "null", "86400001"] {
        let told = refused(pg, &format!("select rowlock.maintain_if_due({bad})")).await;
        assert!(told.contains("every_ms"), "{told}");
    }
}
