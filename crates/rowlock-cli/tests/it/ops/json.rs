//! The JSON of every command that answers: its shape is a promise (docs/guide/json-output.md), and a change of it is seen in review.

use std::process::Stdio;
use std::time::Duration;

use rowlock::NewJob;
use rowlock_testkit::TestQueue;
use serde_json::{Value, json};

use super::support::{dead, drain, enqueue, program, redacted, rowlock, run};

/// What the program answers, without what differs from run to run.
async fn answer(queue: &TestQueue, args: &[&str]) -> Value {
    let ran = rowlock(queue, &[args, &["--json"]].concat()).await;
    assert!([0, 3].contains(&ran.code), "{args:?}: {ran:#?}");
    redacted(ran.json())
}

/// A queue with a job in each state: 1 done, 2 dead, 3 ready, 4 scheduled, 5 running.
async fn scene() -> TestQueue {
    let queue = TestQueue::new().await.unwrap();
    enqueue(&queue, "mail", "email", json!({"user": {"id": 7}})).await;
    drain(&queue).await;
    dead(&queue, "mail", "email", "connection refused").await;
    enqueue(&queue, "mail", "email", json!({})).await;
    let later = NewJob::new("report", &json!({"pages": 3}))
        .unwrap()
        .queue("reports")
        .delay(Duration::from_secs(86_400))
        .tag("nightly")
        .unique("report-3");
    queue.client().enqueue_new(later).await.unwrap();
    enqueue(&queue, "imports", "import", json!({})).await;
    super::support::sql(
        &queue,
        "select rowlock.register_worker('w', 'host-w', 7, '0.1.0', '{imports}', '{}', 10);
         select * from rowlock.claim('{imports}', 1, worker => 1)",
    )
    .await;
    queue
}

#[tokio::test]
async fn the_answers_of_reading_commands_are_stable() {
    let queue = scene().await;
    for (name, args) in [
        ("jobs_show_done", &["jobs", "show", "1"][..]),
        ("jobs_show_dead", &["dead", "show", "2"]),
        ("jobs_show_scheduled", &["jobs", "show", "4"]),
        ("jobs_show_running", &["jobs", "show", "5"]),
        ("dead", &["dead", "list"]),
        ("queues", &["queues", "list"]),
        ("workers", &["workers"]),
        ("why_unknown", &["why", "4711"]),
        ("top", &["top"]),
        ("migrate_status", &["migrate", "--status"]),
        ("migrate_dry_run", &["migrate", "--dry-run"]),
        ("doctor", &["doctor", "--only", "schema,vacuum,leases"]),
        (
            "replay_dry_run",
            &["replay", "mail", "--since", "1h", "--dry-run"],
        ),
        (
            "redrive_dry_run",
            &["dead", "redrive", "--all", "--dry-run"],
        ),
        (
            "delete_dry_run",
            &["jobs", "delete", "--queue", "mail", "--dry-run"],
        ),
    ] {
        insta::assert_json_snapshot!(format!("json_{name}"), answer(&queue, args).await);
    }
}

#[tokio::test]
async fn the_answers_of_changing_commands_are_stable() {
    let queue = scene().await;
    for (name, args) in [
        (
            "enqueue",
            &["enqueue", "email", "{}", "--queue", "mail"][..],
        ),
        ("retry", &["jobs", "retry", "1", "2", "4"]),
        ("cancel", &["jobs", "cancel", "3", "5", "1"]),
        ("delete", &["jobs", "delete", "6", "--yes"]),
        ("redrive", &["dead", "redrive", "--queue", "mail"]),
        ("discard", &["dead", "discard", "--queue", "mail", "--yes"]),
        ("replay", &["replay", "mail", "--since", "1h", "--yes"]),
        ("queues_pause", &["queues", "pause", "mail"]),
        (
            "queues_resume",
            &["queues", "resume", "mail", "--kind", "email"],
        ),
        ("queues_set", &["queues", "set", "mail", "lease=10s"]),
        ("queues_purge", &["queues", "purge", "reports", "--yes"]),
        ("migrate", &["migrate"]),
    ] {
        // Some of them cannot do all of it, and say so by their exit code.
        let ran = rowlock(&queue, &[args, &["--json"]].concat()).await;
        let answer = json!({"exit": ran.code, "answer": redacted(ran.json())});
        insta::assert_json_snapshot!(format!("json_{name}"), answer);
    }
}

#[tokio::test]
async fn the_answer_of_a_bulk_load_is_stable() {
    let queue = TestQueue::new().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs.ndjson");
    std::fs::write(&file, "{\"kind\": \"email\"}\n{\"kind\": 7}\n").unwrap();
    let mut command = program(&["enqueue", "--bulk", "jobs.ndjson", "--json"]);
    command
        .current_dir(dir.path())
        .env("DATABASE_URL", queue.db().url())
        .stdin(Stdio::null());
    let ran = run(command).await.expect(1);
    insta::assert_json_snapshot!("json_bulk", ran.json());
}
