//! `rowlock why`.

use rowlock_testkit::TestQueue;
use serde_json::json;

use super::support::{enqueue, redacted, rowlock};

#[tokio::test]
async fn reasons_come_with_their_evidence() {
    let queue = TestQueue::new().await.unwrap();
    let id = enqueue(&queue, "mail", "email", json!({})).await;
    queue.client().pause("mail").await.unwrap();
    let why = rowlock(&queue, &["why", &id.to_string()]).await.expect(0);
    assert!(why.out.contains("Its queue mail is paused."), "{}", why.out);
    assert!(why.out.contains("queue_paused: queue=mail"), "{}", why.out);
    assert!(
        why.out.contains("No live worker serves queue mail"),
        "{}",
        why.out
    );
    let json = rowlock(&queue, &["why", "1", "--json"])
        .await
        .expect(0)
        .json();
    insta::assert_json_snapshot!(redacted(json));
}

#[tokio::test]
async fn an_unknown_job_is_told_by_the_exit_code() {
    let queue = TestQueue::new().await.unwrap();
    let why = rowlock(&queue, &["why", "4711"]).await.expect(3);
    assert!(why.out.contains("no job 4711"), "{}", why.out);
    let json = rowlock(&queue, &["why", "4711", "--json"])
        .await
        .expect(3)
        .json();
    assert_eq!(json["reasons"][0]["code"], "not_found");
    rowlock(&queue, &["why", "seven"]).await.expect(2);
}
