//! `rowlock dead`.

use rowlock::{JobId, NewJob};
use rowlock_testkit::TestQueue;
use serde_json::json;

use super::support::{dead, redacted, rowlock, state};

#[tokio::test]
async fn dead_jobs_are_listed_and_shown() {
    let queue = TestQueue::new().await.unwrap();
    dead(&queue, "mail", "email", "connection refused").await;
    dead(&queue, "reports", "report", "out of paper").await;

    let listed = rowlock(&queue, &["dead", "--error", "paper", "--json"])
        .await
        .expect(0)
        .json();
    assert_eq!(listed["jobs"][0]["queue"], "reports");
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1);
    let table = rowlock(&queue, &["dead", "list", "-q", "mail"])
        .await
        .expect(0);
    assert!(table.out.contains("connection refused"), "{}", table.out);
    rowlock(&queue, &["dead", "show", "1"]).await.expect(0);
    let old = rowlock(&queue, &["dead", "--older-than", "1h"])
        .await
        .expect(0);
    assert_eq!(old.out, "no dead job fits\n");
}

#[tokio::test]
async fn redrive_by_id_says_what_became_of_them() {
    let queue = TestQueue::new().await.unwrap();
    let id = dead(&queue, "mail", "email", "no").await;
    let dry = rowlock(&queue, &["dead", "redrive", "1", "--dry-run"])
        .await
        .expect(0);
    assert_eq!(dry.out, "1 dead job would be redriven: 1\n");
    let did = rowlock(&queue, &["dead", "redrive", "1", "4711", "--json"])
        .await
        .expect(1)
        .json();
    insta::assert_json_snapshot!(did, @r#"
    {
      "duplicates": 0,
      "not_dead": 1,
      "redriven": 1
    }
    "#);
    assert_eq!(state(&queue, id).await.as_deref(), Some("ready"));
    rowlock(&queue, &["dead", "redrive", "1"]).await.expect(3);
}

#[tokio::test]
async fn redrive_by_filter_spreads_jobs_out() {
    let queue = TestQueue::new().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(dead(&queue, "mail", "email", "timeout").await);
    }
    let other = dead(&queue, "reports", "report", "timeout").await;
    let args = ["dead", "redrive", "-q", "mail", "--rate", "0.01"];
    let did = rowlock(&queue, &args).await.expect(0);
    assert_eq!(did.out, "3 jobs redriven, the last of them due in 3m 20s\n");
    assert_eq!(state(&queue, ids[0]).await.as_deref(), Some("ready"));
    assert_eq!(state(&queue, ids[2]).await.as_deref(), Some("scheduled"));
    assert_eq!(state(&queue, other).await.as_deref(), Some("dead"));
    let wrong = rowlock(&queue, &["dead", "redrive", "--all", "--rate", "0"])
        .await
        .expect(2);
    assert!(wrong.err.contains("out of range"), "{}", wrong.err);
}

#[tokio::test]
async fn tags_and_payloads_choose_among_the_dead() {
    let queue = TestQueue::new().await.unwrap();
    for error in ["timeout", "refused"] {
        dead(&queue, "mail", "email", error).await;
    }
    for (args, jobs) in [
        (["--payload", "error=timeout"], 1),
        (["--payload", "error=elsewhere"], 0),
        (["--tag", "vip"], 0),
        (["--metadata", "tenant=7"], 0),
    ] {
        let listed = rowlock(&queue, &[&["dead", "--json"][..], &args].concat()).await;
        assert_eq!(listed.json()["jobs"].as_array().unwrap().len(), jobs);
        let code = if jobs == 0 { 3 } else { 0 };
        let dry = [&["dead", "redrive", "--dry-run", "--json"][..], &args].concat();
        assert_eq!(
            rowlock(&queue, &dry).await.expect(code).json()["jobs"],
            jobs
        );
    }
    let did = rowlock(
        &queue,
        &["dead", "redrive", "--payload", "error=timeout", "--json"],
    )
    .await
    .expect(0);
    assert_eq!(did.json()["redriven"], 1);
    let discard = ["dead", "discard", "--payload", "error=refused", "--yes"];
    rowlock(&queue, &discard).await.expect(0);
    rowlock(&queue, &["dead", "redrive", "1", "--tag", "vip"])
        .await
        .expect(2);
    let left = rowlock(&queue, &["dead", "--json"]).await.json();
    assert_eq!(left["jobs"], serde_json::json!([]));
}

#[tokio::test]
async fn a_taken_unique_key_keeps_a_job_dead() {
    let queue = TestQueue::new().await.unwrap();
    let job = || {
        NewJob::new("email", &json!({"error": "no"}))
            .unwrap()
            .queue("mail")
            .max_attempts(1)
            .unique("only")
    };
    queue.client().enqueue_new(job()).await.unwrap();
    super::support::drain(&queue).await;
    queue.client().enqueue_new(job()).await.unwrap();
    let did = rowlock(&queue, &["dead", "redrive", "--all"])
        .await
        .expect(1);
    assert!(did.out.contains("1 stays dead"), "{}", did.out);
}

#[tokio::test]
async fn discard_asks_first() {
    let queue = TestQueue::new().await.unwrap();
    for _ in 0..2 {
        dead(&queue, "mail", "email", "no").await;
    }
    rowlock(&queue, &["dead", "discard"]).await.expect(2);
    let asked = rowlock(&queue, &["dead", "discard", "--all"])
        .await
        .expect(1);
    assert!(
        asked.err.contains("all dead jobs of all queues"),
        "{}",
        asked.err
    );
    assert_eq!(state(&queue, JobId(1)).await.as_deref(), Some("dead"));
    let dry = rowlock(
        &queue,
        &["dead", "discard", "-q", "mail", "--dry-run", "--json"],
    )
    .await;
    insta::assert_json_snapshot!(redacted(dry.expect(0).json()), @r#"
    {
      "dry_run": true,
      "jobs": 2,
      "more": false,
      "sample": [
        2,
        1
      ]
    }
    "#);
    let did = rowlock(&queue, &["dead", "discard", "-q", "mail", "--yes"])
        .await
        .expect(0);
    assert_eq!(did.out, "2 jobs discarded\n");
    rowlock(&queue, &["dead", "discard", "--all", "--yes"])
        .await
        .expect(3);
}
