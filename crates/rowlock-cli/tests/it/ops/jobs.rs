//! `rowlock jobs`.

use rowlock::NewJob;
use rowlock_testkit::TestQueue;
use serde_json::{Value, json};

use super::support::{dead, drain, enqueue, redacted, rowlock, sql, state};

fn ids(listed: &Value) -> Vec<i64> {
    let jobs = listed["jobs"].as_array().unwrap();
    jobs.iter().map(|job| job["id"].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn a_list_is_filtered_and_paged() {
    let queue = TestQueue::new().await.unwrap();
    let mut mails = Vec::new();
    for n in 0..5 {
        mails.push(
            enqueue(&queue, "mail", "email", json!({"user": {"id": n}}))
                .await
                .0,
        );
        enqueue(&queue, "reports", "report", json!({})).await;
    }
    mails.reverse();

    let first = rowlock(&queue, &["jobs", "-q", "mail", "-n", "2", "--json"])
        .await
        .expect(0)
        .json();
    assert_eq!(ids(&first), mails[..2]);
    let next = first["next"].to_string();
    let rest = rowlock(
        &queue,
        &["jobs", "list", "-q", "mail", "--after", &next, "--json"],
    )
    .await;
    let rest = rest.expect(0).json();
    assert_eq!(ids(&rest), mails[2..]);
    assert_eq!(rest["next"], Value::Null);

    let one = rowlock(&queue, &["jobs", "--payload", "user.id=3", "--json"]).await;
    assert_eq!(ids(&one.expect(0).json()), [mails[1]]);
    let none = rowlock(&queue, &["jobs", "--state", "dead"])
        .await
        .expect(0);
    assert_eq!(none.out, "no job fits\n");
    let young = rowlock(&queue, &["jobs", "--older-than", "1h", "--json"]).await;
    assert_eq!(ids(&young.expect(0).json()), Vec::<i64>::new());
    let table = rowlock(&queue, &["jobs", "-k", "report", "-n", "1"])
        .await
        .expect(0);
    assert!(table.out.contains("reports"), "{}", table.out);
    assert!(!table.out.contains('\x1b'), "colours without a terminal");
    assert!(table.err.contains("--after"), "{}", table.err);
}

#[tokio::test]
async fn the_shape_of_a_list_is_stable() {
    let queue = TestQueue::new().await.unwrap();
    dead(&queue, "mail", "email", "connection refused").await;
    let job = NewJob::new("email", &json!({"to": "a@example.com"})).unwrap();
    let job = job.queue("mail").tag("vip").metadata("by", "test");
    queue.client().enqueue_new(job).await.unwrap();
    let listed = rowlock(&queue, &["jobs", "--json"]).await.expect(0).json();
    insta::assert_json_snapshot!(redacted(listed));
}

#[tokio::test]
async fn one_job_is_shown_with_its_whole_life() {
    let queue = TestQueue::new().await.unwrap();
    let id = dead(&queue, "mail", "email", "connection refused\nby mx1").await;
    let shown = rowlock(&queue, &["jobs", "show", &id.to_string()])
        .await
        .expect(0)
        .out;
    for wanted in [
        "job 1  email in queue mail  dead (failed)",
        "1 started, 1 failed of 1 that may",
        "attempt 1 failed on worker",
        "connection refused\n",
        "by mx1",
        "dead: failed",
    ] {
        assert!(shown.contains(wanted), "{wanted:?} is not in {shown}");
    }
    let json = rowlock(&queue, &["jobs", "show", "1", "--json"])
        .await
        .expect(0)
        .json();
    assert_eq!(json["errors"][0]["attempt"], 1);

    let missing = rowlock(&queue, &["jobs", "show", "4711"]).await.expect(3);
    assert_eq!(missing.out, "");
    assert!(missing.err.contains("no job 4711"), "{}", missing.err);
}

#[tokio::test]
async fn retry_answers_for_each_id() {
    let queue = TestQueue::new().await.unwrap();
    let failed = dead(&queue, "mail", "email", "no").await;
    let done = enqueue(&queue, "mail", "email", json!({})).await;
    drain(&queue).await;
    let later = NewJob::new("email", &json!({}))
        .unwrap()
        .queue("mail")
        .delay(std::time::Duration::from_secs(3600));
    let later = queue.client().enqueue_new(later).await.unwrap().id;

    let args = [
        "jobs",
        "retry",
        &failed.to_string(),
        &done.to_string(),
        &later.to_string(),
        "--json",
    ];
    let answers = rowlock(&queue, &args).await.expect(0).json();
    let words: Vec<&str> = answers["answers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["answer"].as_str().unwrap())
        .collect();
    assert_eq!(words, ["revived", "copied", "hastened"]);
    assert_eq!(state(&queue, failed).await.as_deref(), Some("ready"));

    let some = rowlock(&queue, &["jobs", "retry", "1", "4711"])
        .await
        .expect(1);
    assert!(some.out.contains("not found"), "{}", some.out);
    rowlock(&queue, &["jobs", "retry", "4711"]).await.expect(3);
}

#[tokio::test]
async fn retry_by_filter_takes_what_failed_and_nothing_else() {
    let queue = TestQueue::new().await.unwrap();
    let failed = dead(&queue, "mail", "email", "Connection refused").await;
    let waits = enqueue(
        &queue,
        "mail",
        "email",
        json!({"error": "connection refused"}),
    )
    .await;
    drain(&queue).await;
    assert_eq!(state(&queue, waits).await.as_deref(), Some("scheduled"));
    let done = enqueue(&queue, "mail", "email", json!({})).await;
    drain(&queue).await;
    let later = NewJob::new("email", &json!({}))
        .unwrap()
        .queue("mail")
        .delay(std::time::Duration::from_secs(3600));
    let later = queue.client().enqueue_new(later).await.unwrap().id;

    let dry = rowlock(&queue, &["jobs", "retry", "-q", "mail", "--dry-run"])
        .await
        .expect(0);
    assert_eq!(
        dry.out,
        format!("2 jobs (1 scheduled, 1 dead) would be retried: {waits} {failed}\n")
    );
    assert_eq!(state(&queue, failed).await.as_deref(), Some("dead"));

    rowlock(
        &queue,
        &["jobs", "retry", "-q", "mail", "--error", "REFUSED"],
    )
    .await
    .expect(0);
    assert_eq!(state(&queue, failed).await.as_deref(), Some("ready"));
    assert_eq!(state(&queue, waits).await.as_deref(), Some("ready"));
    assert_eq!(state(&queue, later).await.as_deref(), Some("scheduled"));
    assert_eq!(state(&queue, done).await.as_deref(), Some("done"));
    rowlock(
        &queue,
        &["jobs", "retry", "-q", "mail", "--error", "refused"],
    )
    .await
    .expect(3);
}

#[tokio::test]
async fn nothing_is_destroyed_without_a_yes() {
    let queue = TestQueue::new().await.unwrap();
    for n in 0..60 {
        enqueue(&queue, "mail", "email", json!({"n": n})).await;
    }
    let other = enqueue(&queue, "reports", "report", json!({})).await;

    let asked = rowlock(&queue, &["jobs", "cancel", "-q", "mail"])
        .await
        .expect(1);
    assert!(
        asked.err.contains("cancel 60 jobs (60 ready)") && asked.err.contains("--yes"),
        "{}",
        asked.err
    );
    let asked = rowlock(&queue, &["jobs", "delete", "1"]).await.expect(1);
    assert!(asked.err.contains("delete 1 job for good"), "{}", asked.err);
    assert_eq!(
        queue.client().queue("mail").await.unwrap().unwrap().ready,
        60
    );

    let some = rowlock(
        &queue,
        &["jobs", "cancel", "-q", "mail", "--limit", "2", "--yes"],
    )
    .await
    .expect(0);
    assert!(some.out.contains("cancelled"), "{}", some.out);
    let rest = rowlock(&queue, &["jobs", "cancel", "-q", "mail", "--yes"])
        .await
        .expect(0);
    assert!(
        rest.out.contains("58") && rest.out.contains("cancelled"),
        "{}",
        rest.out
    );
    rowlock(&queue, &["jobs", "delete", "-q", "mail", "--yes", "--json"])
        .await
        .expect(0);
    assert_eq!(state(&queue, rowlock::JobId(1)).await, None);
    assert_eq!(state(&queue, other).await.as_deref(), Some("ready"));
}

#[tokio::test]
async fn a_running_job_is_not_deleted_and_is_asked_to_stop() {
    let queue = TestQueue::new().await.unwrap();
    let id = enqueue(&queue, "mail", "email", json!({})).await;
    sql(&queue, "select * from rowlock.claim('{mail}', 1)").await;
    assert_eq!(state(&queue, id).await.as_deref(), Some("running"));

    let deleted = rowlock(&queue, &["jobs", "delete", "1", "--yes"])
        .await
        .expect(1);
    assert!(deleted.out.contains("running"), "{}", deleted.out);
    let cancelled = rowlock(&queue, &["jobs", "cancel", "1", "--json"])
        .await
        .expect(0)
        .json();
    assert_eq!(cancelled["answers"][0]["answer"], "asked");
    // By filter it is passed over.
    rowlock(&queue, &["jobs", "delete", "-q", "mail", "--yes"])
        .await
        .expect(3);
}

#[tokio::test]
async fn a_command_without_a_filter_changes_nothing() {
    let queue = TestQueue::new().await.unwrap();
    enqueue(&queue, "mail", "email", json!({})).await;
    for verb in ["retry", "cancel", "delete"] {
        let ran = rowlock(&queue, &["jobs", verb, "--json"]).await.expect(2);
        assert!(ran.err.contains("say which jobs"), "{}", ran.err);
    }
    rowlock(&queue, &["jobs", "delete", "1", "-q", "mail"])
        .await
        .expect(2);
    rowlock(&queue, &["jobs", "delete", "--all", "--yes"])
        .await
        .expect(0);
    assert_eq!(state(&queue, rowlock::JobId(1)).await, None);
}

#[tokio::test]
async fn a_filter_before_the_word_is_refused_and_not_ignored() {
    let queue = TestQueue::new().await.unwrap();
    enqueue(&queue, "mail", "email", json!({})).await;
    let args = ["jobs", "--queue", "reports", "delete", "--all", "--yes"];
    let ran = rowlock(&queue, &args).await.expect(2);
    assert!(ran.err.contains("go after the word"), "{}", ran.err);
    rowlock(&queue, &["dead", "--queue", "reports", "redrive", "--all"])
        .await
        .expect(2);
    assert_eq!(
        state(&queue, rowlock::JobId(1)).await.as_deref(),
        Some("ready")
    );
    // What every command takes may stand anywhere.
    rowlock(&queue, &["jobs", "--json", "show", "1"])
        .await
        .expect(0)
        .json();
}
