//! The look at what has just become due, and all that it leaves to the others.

use tokio_postgres::Client as Pg;

use super::kit::{Installed, installed, number, one, refused, rows, run, stop_clock};

/// What it takes of the queue `default`, in the order of the ids.
async fn fresh(pg: &Pg, n: usize, arguments: &str) -> Vec<i64> {
    let sql = format!(
        "select id from rowlock.claim_fresh('default', {n}, 7, 77{arguments}) where id is not null order by id"
    );
    let ids = rows(pg, &sql).await;
    ids.iter().map(|id| id.parse().expect("an id")).collect()
}

/// Puts jobs into the queue `default`, due now unless one of these columns says otherwise, and returns the first one's id.
async fn put(pg: &Pg, n: usize, column: &str, value: &str) -> i64 {
    let (columns, values) = match column {
        "run_at" => (column.to_owned(), value.to_owned()),
        column => (
            format!("run_at, {column}"),
            format!("rowlock.clock(), {value}"),
        ),
    };
    let sql = format!(
        "with put as (insert into rowlock.job (kind, payload, created_at, {columns}) select 'k', '{{}}', rowlock.clock(), {values} from generate_series(1, {n}) returning id)
         select min(id) from put"
    );
    number(pg, &sql).await
}

/// A queue at a moment that lasts.
async fn stopped() -> Installed {
    let own = installed().await;
    stop_clock(&own.pg, 0).await;
    run(&own.pg, "select rowlock.ensure_queue('default')").await;
    own
}

#[tokio::test]
async fn it_takes_what_has_just_become_due_with_the_highest_priority_first() {
    let own = stopped().await;
    let pg = &own.pg;
    assert!(fresh(pg, 10, "").await.is_empty(), "there is nothing");
    let low = put(pg, 3, "priority", "0").await;
    let high = put(pg, 2, "priority", "2").await;
    assert_eq!(fresh(pg, 3, "").await, [low, high, high + 1]);
    assert_eq!(fresh(pg, 3, "").await, [low + 1, low + 2]);
    assert!(fresh(pg, 3, "").await.is_empty(), "all are leased");
    let leased = "select distinct token, lease_by, attempt, crashes, lease_until > rowlock.clock() + interval '20 s', claimed_at > rowlock.clock() - interval '20 s' from rowlock.job";
    assert_eq!(rows(pg, leased).await, ["77|7|1|0|t|t"]);
    let by_id = format!("select done from rowlock.complete('default', '{{{low}}}', '{{77}}')");
    assert_eq!(one(pg, &by_id).await, format!("{{{low}}}"));
}

#[tokio::test]
async fn what_is_unusual_is_left_to_the_claim() {
    let own = stopped().await;
    let pg = &own.pg;
    for (column, value, why) in [
        (
            "run_at",
            "rowlock.clock() - interval '3 s'",
            "it was due before",
        ),
        (
            "run_at",
            "rowlock.clock() + interval '1 min'",
            "it is not due",
        ),
        ("cancel_at", "rowlock.clock()", "it is cancelled"),
        (
            "expires_at",
            "rowlock.clock() - interval '1 ms'",
            "it has expired",
        ),
        (
            "lease_until",
            "rowlock.clock() + interval '1 min'",
            "it runs",
        ),
        (
            "lease_until",
            "rowlock.clock() - interval '1 ms'",
            "its lease has expired",
        ),
        ("queue", "'other'", "it is somewhere else"),
    ] {
        put(pg, 1, column, value).await;
        assert!(fresh(pg, 10, "").await.is_empty(), "{why}");
    }
    let job = put(pg, 1, "tags", "'{t}'::text[]").await;
    assert!(fresh(pg, 9, ", kinds => '{other}'").await.is_empty());
    let later = ", after_at => array_fill(rowlock.clock() + interval '1 ms', array[9])";
    assert!(fresh(pg, 9, later).await.is_empty(), "behind the cursor");
    for settings in [
        "{\"paused\": true}",
        "{\"kinds\": {\"k\": {\"paused\": true}}}",
    ] {
        run(
            pg,
            &format!("select rowlock.set_queue('default', '{settings}')"),
        )
        .await;
        assert!(fresh(pg, 9, "").await.is_empty(), "{settings}");
        run(pg, "update rowlock.queue set paused = false, kinds = '{}'").await;
    }
    let locker = own.another().await;
    run(
        &locker,
        &format!("begin; select 1 from rowlock.job where id = {job} for update"),
    )
    .await;
    assert!(fresh(pg, 9, "").await.is_empty(), "somebody has locked it");
    run(&locker, "rollback").await;
    assert_eq!(fresh(pg, 9, ", kinds => '{a,k}'").await, [job]);
}

#[tokio::test]
async fn it_says_what_a_claim_says() {
    let own = stopped().await;
    let pg = &own.pg;
    run(
        pg,
        "select rowlock.set_queue('default', '{\"retention\": \"0\", \"max_attempts\": 9}')",
    )
    .await;
    let end = "select payload - 'clock' - 'lease_until' - 'mark', payload ? 'mark' from rowlock.claim_fresh('default', 5, 7, 77) where id is null";
    let nothing = r#"{"more": false, "queue": "default", "parked": 0}|f"#;
    assert_eq!(one(pg, end).await, nothing);
    put(pg, 1, "tags", "'{t}'::text[]").await;
    put(pg, 1, "priority", "0").await;
    let rests = "select rest is null, rest::text like '%{t}%' from rowlock.claim_fresh('default', 5, 7, 77) where id is not null order by id";
    assert_eq!(rows(pg, rests).await, ["f|t", "t|null"]);
    put(pg, 1, "priority", "0").await;
    let some = r#"{"more": false, "queue": "default", "parked": 0, "max_attempts": 9}|t"#;
    assert_eq!(one(pg, end).await, some);
    // What it took is untouched in the sense of complete_untouched, though it was locked first.
    put(pg, 1, "priority", "0").await;
    let claimed = "select tid, payload ->> 'mark' from rowlock.claim_fresh('default', 5, 7, 78) order by id nulls last";
    let claimed = rows(pg, claimed).await;
    let tid = claimed[0].trim_end_matches("|null");
    let mark = claimed[1].trim_start_matches("null|");
    let done = format!(
        "select rowlock.complete_untouched('default', array['{tid}']::tid[], '{{1}}', '{{78}}', '{{{mark}}}')"
    );
    assert_eq!(one(pg, &done).await, "t");
    assert_eq!(
        number(pg, "select count(*) from rowlock.job where token = 78").await,
        0
    );
}

#[tokio::test]
async fn bad_arguments_are_refused() {
    let own = stopped().await;
    let pg = &own.pg;
    put(pg, 1, "priority", "0").await;
    for (arguments, word) in [
        ("'default', 0, 7, 77", "rowlock: n '0'"),
        ("'default', null, 7, 77", "rowlock: n 'null'"),
        ("'default', 1001, 7, 77", "rowlock: n '1001'"),
        ("'default', 1, 7, 0", "rowlock: token '0'"),
        ("'default', 1, 7, null", "rowlock: token 'null'"),
    ] {
        let said = refused(
            pg,
            &format!("select * from rowlock.claim_fresh({arguments})"),
        )
        .await;
        assert!(said.contains(word), "{arguments}: {said}");
    }
    assert_eq!(
        number(pg, "select count(*) from rowlock.job where token <> 0").await,
        0
    );
    let nowhere =
        "select id is null, payload ->> 'queue' from rowlock.claim_fresh('nowhere', 1, 7, 77)";
    assert_eq!(rows(pg, nowhere).await, ["t|nowhere"]);
    assert_eq!(
        number(
            pg,
            "select count(*) from rowlock.queue where name = 'nowhere'"
        )
        .await,
        0,
        "no queue was made"
    );
}
