//! Errors that help. Snapshots, so that a change of words is seen in review.

use rowlock_testkit::TestQueue;
use serde_json::json;

use super::support::{enqueue, program, rowlock, run};

/// A server that nobody runs.
const NOBODY: &str = "host=127.0.0.1 port=1 sslmode=disable";

/// Each says what is wrong, and ends with 2: trying again does not help.
const SENSELESS: &[(&str, &[&str])] = &[
    ("unknown_command", &["job"]),
    ("unknown_flag", &["jobs", "--que", "mail"]),
    ("unknown_state", &["jobs", "--state", "asleep"]),
    ("unknown_check", &["doctor", "--only", "horizont"]),
    ("bad_time", &["jobs", "--older-than", "soon"]),
    ("bad_payload_path", &["jobs", "--payload", "user"]),
    ("bad_id", &["jobs", "show", "seven"]),
    ("zero_limit", &["jobs", "--limit", "0"]),
    (
        "bad_address",
        &["jobs", "-d", "postgres://localhost:99999/app"],
    ),
    ("bad_schema", &["jobs", "-d", NOBODY, "--schema", "a b"]),
    ("enqueue_no_kind", &["enqueue"]),
    ("enqueue_bad_json", &["enqueue", "k", "{\"user_id\": }"]),
    (
        "enqueue_bad_delay",
        &["enqueue", "k", "{}", "--delay", "soon"],
    ),
    (
        "enqueue_bad_moment",
        &["enqueue", "k", "{}", "--run-at", "tomorrow"],
    ),
    (
        "enqueue_bad_backoff",
        &["enqueue", "k", "{}", "--backoff", "sometimes"],
    ),
    (
        "enqueue_bad_priority",
        &["enqueue", "k", "{}", "--priority", "9"],
    ),
    (
        "enqueue_text_for_a_number",
        &["enqueue", "k", "{}", "--max-attempts", "many"],
    ),
    (
        "enqueue_empty_queue",
        &["enqueue", "k", "{}", "--queue", ""],
    ),
    ("demo_no_rate", &["demo", "--rate", "0"]),
    ("demo_fresh_elsewhere", &["demo", "--fresh", "-d", NOBODY]),
    ("archive_without_a_time", &["archive", "jobs.ndjson"]),
    ("replay_without_a_window", &["replay", "mail"]),
    ("json_for_a_script", &["migrate", "--sql", "--json"]),
    ("unknown_shell", &["completions", "tcsh"]),
];

/// The same, with a database.
const REFUSED: &[(&str, &[&str])] = &[
    ("nothing_chosen", &["jobs", "delete"]),
    ("nothing_dead_chosen", &["dead", "redrive"]),
    (
        "ids_and_a_filter",
        &["jobs", "delete", "1", "--queue", "mail"],
    ),
    (
        "no_such_age",
        &["jobs", "--older-than", "2h", "--newer-than", "1h"],
    ),
    ("bad_next", &["jobs", "--after", "7"]),
    ("no_such_setting", &["queues", "set", "mail", "leese=5s"]),
    ("no_setting", &["queues", "set", "mail", "lease"]),
    (
        "setting_no_number",
        &["queues", "set", "mail", "max-attempts=few"],
    ),
    (
        "setting_no_truth",
        &["queues", "set", "mail", "paused=perhaps"],
    ),
    ("setting_no_time", &["queues", "set", "mail", "lease=soon"]),
    (
        "setting_no_size",
        &["queues", "set", "mail", "max-payload=large"],
    ),
    (
        "setting_no_backoff",
        &["queues", "set", "mail", "backoff=often"],
    ),
    (
        "setting_out_of_range",
        &["queues", "set", "mail", "lease=1ms"],
    ),
    ("bad_rate", &["dead", "redrive", "--all", "--rate", "-1"]),
];

/// There is nothing of that name: 3, except for a list, which is just empty.
const UNKNOWN: &[(&str, i32, &[&str])] = &[
    ("unknown_queue_shown", 3, &["queues", "show", "mial"]),
    ("unknown_queue_paused", 3, &["queues", "pause", "mial"]),
    (
        "unknown_queue_purged",
        3,
        &["queues", "purge", "mial", "--yes"],
    ),
    ("unknown_queue_listed", 0, &["jobs", "--queue", "mial"]),
    ("unknown_queue_dead", 0, &["dead", "--queue", "mial"]),
    (
        "unknown_queue_deleted",
        3,
        &["jobs", "delete", "--queue", "mial"],
    ),
    ("unknown_job_shown", 3, &["jobs", "show", "4711"]),
    ("unknown_job_why", 3, &["why", "4711"]),
    ("unknown_job_retried", 3, &["jobs", "retry", "4711"]),
    ("unknown_job_redriven", 3, &["dead", "redrive", "4711"]),
];

/// What it says, on both channels.
fn said(ran: &super::support::Ran) -> String {
    format!("exit {}\n{}{}", ran.code, ran.out, ran.err)
}

#[tokio::test]
async fn what_makes_no_sense_is_explained() {
    for (name, args) in SENSELESS {
        let ran = run(program(args)).await;
        assert_eq!(ran.code, 2, "{name}: {ran:#?}");
        insta::assert_snapshot!(format!("mistake_{name}"), said(&ran));
    }
}

#[tokio::test]
async fn what_is_refused_is_explained_and_changes_nothing() {
    let queue = TestQueue::new().await.unwrap();
    let id = enqueue(&queue, "mail", "email", json!({})).await;
    let before = settings(&queue).await;
    for (name, args) in REFUSED {
        let ran = rowlock(&queue, args).await;
        assert_eq!(ran.code, 2, "{name}: {ran:#?}");
        insta::assert_snapshot!(format!("mistake_{name}"), said(&ran));
    }
    assert_eq!(settings(&queue).await, before);
    let fate = queue.fate(id).await.unwrap().unwrap();
    assert_eq!(fate.state, "ready");
}

async fn settings(queue: &TestQueue) -> serde_json::Value {
    let mut shown = rowlock(queue, &["queues", "show", "mail", "--json"])
        .await
        .expect(0)
        .json();
    for varies in ["oldest_wait_ms", "stats"] {
        shown.as_object_mut().unwrap().remove(varies);
    }
    shown
}

#[tokio::test]
async fn names_that_nothing_has_are_said() {
    let queue = TestQueue::new().await.unwrap();
    enqueue(&queue, "mail", "email", json!({})).await;
    for (name, code, args) in UNKNOWN {
        let ran = rowlock(&queue, args).await;
        assert_eq!(ran.code, *code, "{name}: {ran:#?}");
        insta::assert_snapshot!(format!("mistake_{name}"), said(&ran));
    }
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_said_by_every_command() {
    for args in [
        &["jobs"][..],
        &["jobs", "show", "1"],
        &["jobs", "delete", "1", "--yes"],
        &["dead"],
        &["queues"],
        &["workers"],
        &["why", "1"],
        &["doctor"],
        &["top", "--once"],
        &["migrate"],
        &["migrate", "--status"],
        &["enqueue", "k"],
        &["replay", "mail", "--since", "1h", "--dry-run"],
        &["demo", "--duration", "1s"],
    ] {
        let ran = run(program(&[args, &["-d", NOBODY]].concat())).await;
        assert_eq!(ran.code, 1, "{args:?}: {ran:#?}");
        assert_eq!(ran.out, "", "{args:?}");
        assert!(
            ran.err.ends_with(
                "rowlock: cannot reach the database: 127.0.0.1:1: Connection refused (os error 111)\n"
            ),
            "{args:?}: {}",
            ran.err
        );
    }
}

#[tokio::test]
async fn a_database_without_the_queue_says_what_to_do() {
    let queue = TestQueue::new().await.unwrap();
    let ran = rowlock(&queue, &["jobs", "--schema", "elsewhere"]).await;
    insta::assert_snapshot!("mistake_no_schema", said(&ran.expect(1)));
}
