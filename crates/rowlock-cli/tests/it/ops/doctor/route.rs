//! What is wrong with the way to the database, and with what one may see there.

use std::time::Duration;

use rowlock_testkit::TestQueue;

use super::super::support::{program, run, sql};
use super::pgbouncer::PgBouncer;
use super::{findings, the};

#[tokio::test]
async fn a_pooler_in_the_way_is_found() {
    let queue = TestQueue::new().await.unwrap();
    let (code, found) = findings(&queue, "route", &[]).await;
    assert_eq!((code, found.len()), (0, 0), "{found:#?}");
    let Some(bouncer) = PgBouncer::before(&queue) else {
        return;
    };
    let ran = run(program(&[
        "doctor",
        "--only",
        "route",
        "--json",
        "-d",
        &bouncer.url,
    ]))
    .await
    .expect(10);
    let found = ran.json()["findings"].as_array().unwrap().clone();
    let pooler = the(&found[..1], "pooler");
    assert!(
        pooler["sentence"]
            .as_str()
            .unwrap()
            .contains("swallows LISTEN"),
        "{pooler}"
    );
    // All the other checks work through it as well.
    run(program(&[
        "doctor",
        "--skip",
        "route,horizon",
        "-d",
        &bouncer.url,
    ]))
    .await
    .expect(0);
}

#[tokio::test]
async fn a_clock_that_differs_is_found() {
    let queue = TestQueue::new().await.unwrap();
    queue
        .set_clock_ahead(Duration::from_secs(3600))
        .await
        .unwrap();
    let (code, found) = findings(&queue, "route", &[]).await;
    assert_eq!(code, 20);
    let skew = the(&found, "clock_skew")["evidence"]["skew_ms"]
        .as_i64()
        .unwrap();
    // The way there and back is somewhere in it.
    assert!((3_590_000..3_610_000).contains(&skew), "{skew}");
}

#[tokio::test]
async fn a_server_without_writes_is_critical() {
    let queue = TestQueue::new().await.unwrap();
    sql(
        &queue,
        &format!(
            "alter database {} set default_transaction_read_only = on",
            queue.db().name()
        ),
    )
    .await;
    let (code, found) = findings(&queue, "route", &[]).await;
    assert_eq!(code, 20);
    the(&found, "read_only");
}

#[tokio::test]
async fn what_a_role_may_not_see_is_said_and_stops_nothing() {
    let queue = TestQueue::new().await.unwrap();
    let role = format!("doctor_{}", queue.db().name());
    sql(
        &queue,
        &format!("create role {role} login; select rowlock.grant_access('{role}', 'reader')"),
    )
    .await;
    let holder = queue.db().connect().await.unwrap();
    holder
        .batch_execute("begin; select pg_current_xact_id()")
        .await
        .unwrap();
    let url = queue
        .db()
        .url()
        .replace("user=postgres", &format!("user={role}"));
    assert_ne!(url, queue.db().url());
    let ran = run(program(&["doctor", "--json", "-d", &url])).await;
    // A table that it may not read is the trouble of one check.
    sql(&queue, &format!("revoke select on rowlock.job from {role}")).await;
    let less = run(program(&[
        "doctor", "--skip", "horizon", "--json", "-d", &url,
    ]))
    .await;
    sql(&queue, &format!("drop owned by {role}; drop role {role}")).await;

    let found = ran.expect(10).json()["findings"]
        .as_array()
        .unwrap()
        .clone();
    let unknown: Vec<_> = found
        .iter()
        .filter(|f| f["severity"] == "unknown")
        .collect();
    assert_eq!(unknown.len(), 1, "{unknown:#?}");
    assert_eq!(unknown[0]["check"], "horizon");
    assert!(
        unknown[0]["advice"]
            .as_str()
            .unwrap()
            .contains("pg_monitor")
    );

    let found = less.expect(10).json()["findings"]
        .as_array()
        .unwrap()
        .clone();
    let unknown: Vec<&str> = found
        .iter()
        .filter(|f| f["severity"] == "unknown")
        .filter_map(|f| f["check"].as_str())
        .collect();
    assert_eq!(unknown, ["leases", "backlog"]);
    assert!(
        found
            .iter()
            .any(|f| f["check"] == "indexes" && f["severity"] == "ok")
    );
}
