use std::time::Duration;

use rowlock::manage::{DeadReason, JobFilter, JobState};
use rowlock::{Error, JobId};
use serde_json::json;

use super::{Bench, bench, job};

async fn found(b: &Bench, filter: JobFilter) -> Vec<JobId> {
    let page = b.client.jobs(&filter).await.expect("a list");
    assert!(!page.cut);
    page.jobs.iter().map(|j| j.id).collect()
}

/// All pages, one after the other.
async fn pages(b: &Bench, filter: &JobFilter) -> Vec<JobId> {
    let mut ids = Vec::new();
    let mut filter = filter.clone();
    loop {
        let page = b.client.jobs(&filter).await.expect("a page");
        ids.extend(page.jobs.iter().map(|j| j.id));
        match page.next {
            // As it would come back from an address or a command line.
            Some(next) => filter = filter.after(next.to_string().parse().expect("a next")),
            None => return ids,
        }
    }
}

#[tokio::test]
async fn each_filter_finds_what_fits() {
    let b = bench().await;
    b.enqueue("done", "k").await;
    let done = b.finish("done").await;
    b.enqueue("dead", "k").await;
    let dead = b.kill("dead", "Connection refused\nby the server").await;
    let running = b.enqueue("run", "r").await;
    b.claim("run", 1).await;
    let middle = b.client.clock().await.unwrap();
    let ready = b
        .enqueue_job(
            job(
                "mail",
                json!({"user": {"id": 7, "name": "x"}, "ok": true, "a.b": 1}),
            )
            .queue("q")
            .tag("vip")
            .metadata("tenant", json!({"id": "t1"})),
        )
        .await;
    let later = b
        .enqueue_job(
            job("mail", json!({"user": {"id": "7"}}))
                .queue("q")
                .delay(Duration::from_secs(60)),
        )
        .await;
    let f = JobFilter::new;

    assert_eq!(
        found(&b, f()).await,
        [later, ready, running, dead, done],
        "newest first"
    );
    for (state, id) in [
        (JobState::Scheduled, later),
        (JobState::Ready, ready),
        (JobState::Running, running),
        (JobState::Dead, dead),
        (JobState::Done, done),
    ] {
        assert_eq!(found(&b, f().state(state)).await, [id], "{state}");
        let queue = b.client.job(id).await.unwrap().unwrap().queue;
        assert_eq!(
            found(&b, f().state(state).queue(queue)).await,
            [id],
            "{state} of its queue"
        );
        assert!(
            found(&b, f().state(state).queue("other")).await.is_empty(),
            "{state} of another queue"
        );
    }
    assert!(found(&b, f().state(JobState::Cancelled)).await.is_empty());
    assert_eq!(
        found(&b, f().states([JobState::Done, JobState::Ready])).await,
        [ready, done]
    );
    assert_eq!(found(&b, f().queue("q")).await, [later, ready]);
    assert_eq!(found(&b, f().kind("mail")).await, [later, ready]);
    assert_eq!(found(&b, f().tag("vip")).await, [ready]);
    assert_eq!(found(&b, f().error("connection REFUSED")).await, [dead]);
    assert!(found(&b, f().error("nothing of the sort")).await.is_empty());
    assert_eq!(found(&b, f().reason(DeadReason::Refused)).await, [dead]);
    assert!(found(&b, f().reason(DeadReason::Poison)).await.is_empty());

    assert_eq!(
        found(&b, f().payload("user.id", 7)).await,
        [ready],
        "a number is a number"
    );
    assert_eq!(
        found(&b, f().payload("user.id", "7")).await,
        [later, ready],
        "a text fits what is written so"
    );
    assert_eq!(found(&b, f().payload("ok", true)).await, [ready]);
    assert_eq!(found(&b, f().payload("a.b", 1)).await, [ready]);
    assert_eq!(
        found(&b, f().payload("user", json!({"id": 7, "name": "x"}))).await,
        [ready]
    );
    assert!(
        found(&b, f().payload("user.id", 7).payload("user.name", "y"))
            .await
            .is_empty()
    );
    assert_eq!(found(&b, f().metadata("tenant.id", "t1")).await, [ready]);

    assert_eq!(found(&b, f().created_after(middle)).await, [later, ready]);
    assert_eq!(
        found(&b, f().created_before(middle)).await,
        [running, dead, done]
    );
    assert_eq!(found(&b, f().ended_before(middle)).await, [dead, done]);
    assert!(found(&b, f().ended_after(middle)).await.is_empty());
    let before = f().state(JobState::Dead).queue("dead").ended_before(middle);
    assert_eq!(found(&b, before).await, [dead]);
    let after = f().state(JobState::Dead).queue("dead").ended_after(middle);
    assert!(found(&b, after).await.is_empty());
    assert!(
        found(&b, f().state(JobState::Ready).reason(DeadReason::Failed))
            .await
            .is_empty()
    );
}

/// Whichever way the search walks, its pages hold every job once, and the last one says that it is the last.
#[tokio::test]
async fn pages_hold_every_job_once() {
    let b = bench().await;
    b.sql(
        "select rowlock.enqueue('k', queue => 'q' || n % 2, priority => n % 3, delay => n % 4 * interval '1 hour') from generate_series(1, 60) n;
         select rowlock.claim('{q0,q1}', 10);
         insert into rowlock.dead (id, created_at, run_at, died_at, worker, attempt, failures, crashes, priority, queue, kind, reason, payload)
         select nextval('rowlock.job_id'), now(), now(), now() - n % 5 * interval '1 minute', 0, 1, 1, 0, 0, 'q1', 'k', 'failed', '{}'
           from generate_series(1, 20) n;",
    )
    .await;
    let f = JobFilter::new;
    let live = [JobState::Scheduled, JobState::Ready, JobState::Running];
    for (filter, rows) in [
        (f(), 80),
        (f().states(live), 60),
        (f().queue("q1").states(live), 30),
        (f().queue("q1"), 50),
        (f().state(JobState::Running), 10),
        (f().state(JobState::Scheduled), 45),
        (f().queue("q1").state(JobState::Dead), 20),
    ] {
        for limit in [1, 7, 10, 1000] {
            let ids = pages(&b, &filter.clone().limit(limit)).await;
            let mut once = ids.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(
                (ids.len(), once.len()),
                (rows, rows),
                "{filter:?}, {limit} at a time"
            );
        }
    }
    let newest_first = pages(&b, &f().limit(7)).await;
    assert!(newest_first.is_sorted_by(|a, b| a > b));

    let page = b
        .client
        .jobs(&f().queue("q1").state(JobState::Dead).limit(20))
        .await
        .unwrap();
    assert!(
        page.next.is_none(),
        "all that there is, and nothing more to ask for"
    );
}

#[tokio::test]
async fn what_runs_is_found_in_front_of_a_long_queue() {
    let b = bench().await;
    b.sql(
        "insert into rowlock.job (queue, kind, payload) select 'long', 'k', '{}' from generate_series(1, 30000);
         select rowlock.heal_queues();",
    )
    .await;
    let running: Vec<JobId> = b.claim("long", 3).await.iter().map(|c| c.0).collect();
    let other = b.enqueue("zebra", "k").await;
    b.claim("zebra", 1).await;

    let page = b
        .client
        .jobs(&JobFilter::new().state(JobState::Running))
        .await
        .unwrap();
    let ids: Vec<JobId> = page.jobs.iter().map(|j| j.id).collect();
    assert_eq!(
        ids,
        [running.as_slice(), &[other]].concat(),
        "also of the queue behind it"
    );
    assert!(page.cut, "the long queue was not searched to its end");
    assert!(page.next.is_none());
    assert!(page.visited <= 10_001);
}

/// The work is bounded by rows, not by luck: the database itself counts them.
#[tokio::test]
async fn a_search_reads_no_more_rows_than_it_may() {
    let b = bench().await;
    b.sql(
        "insert into rowlock.job (queue, kind, payload) select 'q', case when n = 1 then 'rare' else 'k' end, jsonb_build_object('n', n) from generate_series(1, 20000) n;
         insert into rowlock.finished (id, created_at, run_at, finished_at, worker, attempt, failures, crashes, priority, queue, kind, outcome, payload)
         select nextval('rowlock.job_id'), now(), now(), now(), 0, 1, 0, 0, 0, 'q', 'k', 'done', '{}' from generate_series(1, 20000);
         insert into rowlock.dead (id, created_at, run_at, died_at, worker, attempt, failures, crashes, priority, queue, kind, reason, payload)
         select nextval('rowlock.job_id'), now(), now(), now(), 0, 1, 1, 0, 0, 'q', 'k', 'failed', '{}' from generate_series(1, 20000);",
    )
    .await;
    let filters = [
        r#"{"kind": "none"}"#,
        r#"{"kind": "none", "queue": "q", "states": ["ready"]}"#,
        r#"{"kind": "none", "queue": "q", "states": ["dead"]}"#,
        r#"{"kind": "none", "queue": "q", "states": ["running"]}"#,
        r#"{"kind": "none", "states": ["scheduled"]}"#,
        r#"{"kind": "none", "states": ["done", "dead"]}"#,
        r#"{"payload": {"n": 0}, "states": ["ready"]}"#,
        r#"{"error": "none"}"#,
    ];
    // First on tables just loaded, of which the planner knows nothing; then with statistics.
    for (n, filter) in filters.iter().chain(&filters).enumerate() {
        if n == filters.len() {
            b.sql("analyze").await;
        }
        let sql = format!(
            "select visited, cut from rowlock.find_jobs('{filter}', max_visits => 1500, max_ms => 60000)"
        );
        let (rows, fetched, scanned) = b.counting(&sql).await;
        assert_eq!(rows.len(), 1, "{filter}: nothing but the last row");
        let (visited, cut): (i64, bool) = (rows[0].get(0), rows[0].get(1));
        assert!(visited <= 1500, "{filter}: {visited}");
        assert_eq!(cut, visited == 1500, "{filter}");
        assert_eq!(scanned, 0, "{filter}");
        // A merge of several indexes looks one row ahead in each, and in each round.
        assert!(
            fetched <= 1600,
            "{filter}: {fetched} rows for {visited} visits"
        );
    }

    // A newest page costs about as many rows as it has.
    let (rows, fetched, scanned) = b
        .counting("select id from rowlock.find_jobs(max_jobs => 10)")
        .await;
    assert_eq!((rows.len(), scanned), (11, 0));
    assert!(fetched <= 150, "{fetched}");
}

#[tokio::test]
async fn a_search_that_was_cut_goes_on_where_it_stopped() {
    let b = bench().await;
    b.sql("insert into rowlock.job (queue, kind, payload) select 'q', case when n = 1 then 'rare' else 'k' end, '{}' from generate_series(1, 5000) n;")
        .await;
    for (bound, rounds_wanted) in [
        ("max_visits => 1000", Some(6)),
        ("max_visits => 1000, max_ms => 1", None),
        ("max_ms => 1", None),
    ] {
        let sql = format!(
            "select id, next::text, cut from rowlock.find_jobs('{{\"kind\": \"rare\"}}', from_next => $1::text::jsonb, {bound})"
        );
        let mut next: Option<String> = None;
        let (mut rounds, mut ids) = (0, Vec::new());
        loop {
            let rows = b.pg.query(&sql, &[&next]).await.unwrap();
            rounds += 1;
            ids.extend(rows.iter().filter_map(|r| r.get::<_, Option<i64>>(0)));
            let last = &rows[rows.len() - 1];
            next = last.get(1);
            assert_eq!(
                last.get::<_, bool>(2),
                next.is_some(),
                "cut, and where to go on"
            );
            if next.is_none() {
                break;
            }
        }
        assert_eq!(ids.len(), 1, "{bound}");
        // Five thousand rows, and then the end.
        assert!(
            rounds_wanted.is_none_or(|n| n == rounds),
            "{bound}: {rounds}"
        );
    }
}

#[tokio::test]
async fn a_next_of_another_filter_is_refused() {
    let b = bench().await;
    b.enqueue("q", "k").await;
    b.enqueue("q", "k").await;
    let page = b.client.jobs(&JobFilter::new().limit(1)).await.unwrap();
    let next = page.next.expect("there is more");
    let other = JobFilter::new().state(JobState::Running).after(next);
    let e = b.client.jobs(&other).await.unwrap_err();
    assert!(matches!(e, Error::Invalid(_)), "{e}");
    let forged = JobFilter::new().after(r#"{"walk": "ids", "id": "x"}"#.parse().unwrap());
    let e = b.client.jobs(&forged).await.unwrap_err();
    assert!(matches!(e, Error::Invalid(_)), "{e}");
}

#[tokio::test]
async fn the_function_refuses_what_it_does_not_know() {
    let b = bench().await;
    for (filter, words) in [
        ("null", "filter"),
        ("[]", "must be a JSON object"),
        (
            r#"{"quue": "q"}"#,
            "filter 'quue' is unknown: known are states, queue",
        ),
        (
            r#"{"states": "ready"}"#,
            "must be a list of states: known are scheduled",
        ),
        (
            r#"{"states": ["asleep"]}"#,
            "state 'asleep' is no state of a job: known are scheduled",
        ),
        (r#"{"queue": 7}"#, "queue '7' is no text"),
        (r#"{"kind": ""}"#, "kind '' is empty"),
        (r#"{"reason": "age"}"#, "is no reason to die"),
        (r#"{"error": ""}"#, "is empty: leave it out"),
        (r#"{"payload": 7}"#, "must be a JSON object {path: value}"),
        (r#"{"payload": {"": 7}}"#, "is an empty path"),
        (r#"{"created_after": "soon"}"#, "is no time"),
        (r#"{"ended_before": 7}"#, "is no time"),
        (
            r#"{"ended_after": "2030-01-01", "ended_before": "2029-01-01"}"#,
            "does not come after ended_after",
        ),
    ] {
        let e =
            b.pg.query(
                "select id from rowlock.find_jobs($1::text::jsonb)",
                &[&filter],
            )
            .await
            .expect_err(filter);
        let e = e.as_db_error().expect("the database's own");
        assert_eq!(e.code().code(), "22023", "{filter}: {e}");
        assert!(e.message().contains(words), "{filter}: {e}");
    }
    // What is null does not matter.
    b.sql(r#"select from rowlock.find_jobs('{"states": null, "queue": null, "payload": null, "created_after": null}')"#)
        .await;
}

#[tokio::test]
async fn a_bad_filter_is_refused_before_it_is_sent() {
    // Nobody listens there: whatever is sent fails in another way.
    let client = rowlock::Client::builder()
        .lazy(rowlock::ConnInfo::parse("postgres://127.0.0.1:1/none").unwrap())
        .unwrap();
    let e = client.jobs(&JobFilter::new().queue("")).await.unwrap_err();
    assert_eq!(
        e.to_string(),
        "queue \"\" is empty: it needs 1 to 200 bytes"
    );
}
