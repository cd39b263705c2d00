//! `rowlock doctor`: each finding in a database that has what it finds.

mod database;
mod pgbouncer;
mod queue;
mod route;

use rowlock_testkit::TestQueue;
use serde_json::Value;

use super::support::rowlock;

/// The findings of one check that are not ok, and the exit code.
async fn findings(queue: &TestQueue, check: &str, more: &[&str]) -> (i32, Vec<Value>) {
    let args = [&["doctor", "--only", check, "--json"], more].concat();
    let ran = rowlock(queue, &args).await;
    let mut findings = ran.json()["findings"].as_array().unwrap().clone();
    findings.retain(|f| f["severity"] != "ok");
    (ran.code, findings)
}

/// The one finding with this code.
#[track_caller]
fn the<'a>(findings: &'a [Value], code: &str) -> &'a Value {
    let mut with_code = findings.iter().filter(|f| f["code"] == code);
    let found = with_code
        .next()
        .unwrap_or_else(|| panic!("no {code} in {findings:#?}"));
    assert!(with_code.next().is_none(), "{code} twice in {findings:#?}");
    assert!(
        found["advice"].as_str().is_some_and(|a| !a.is_empty()),
        "{found:#?}"
    );
    found
}

#[tokio::test]
async fn a_reader_is_enough_to_look() {
    let place = crate::support::Place::new("").await;
    let url = place.acting_as("reader").await;
    let mut command = place.rowlock(&["doctor", "--json"]);
    command.env("DATABASE_URL", url);
    let ran = crate::support::run(command).await;
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.len() >= 10, "{report:#}");
    let blind: Vec<&Value> = findings
        .iter()
        .filter(|f| f["code"] == "could_not_look")
        // Other people's sessions show only to members of pg_monitor.
        .filter(|f| f["check"] != "horizon")
        .collect();
    assert!(blind.is_empty(), "{blind:#?}");
    place.forget("reader").await;
}

#[tokio::test]
async fn a_healthy_queue_has_nothing_wrong() {
    let queue = TestQueue::new().await.unwrap();
    // Other tests may have slots on the server, which are not of this database alone.
    let ran = rowlock(&queue, &["doctor", "--skip", "horizon"])
        .await
        .expect(0);
    assert!(
        ran.out.lines().all(|line| line.starts_with("ok ")),
        "{}",
        ran.out
    );
    let json = rowlock(&queue, &["doctor", "--only", "schema,indexes", "--json"]).await;
    insta::assert_json_snapshot!(json.expect(0).json());
}
