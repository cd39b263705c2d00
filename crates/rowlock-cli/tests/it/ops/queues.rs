//! `rowlock queues`.

use rowlock_testkit::TestQueue;
use serde_json::json;

use super::support::{enqueue, redacted, rowlock};

#[tokio::test]
async fn queues_are_listed_and_shown() {
    let queue = TestQueue::new().await.unwrap();
    let none = rowlock(&queue, &["queues"]).await.expect(0);
    assert_eq!(none.out, "there is no queue yet: the first job makes one\n");
    enqueue(&queue, "mail", "email", json!({})).await;
    super::support::drain(&queue).await;
    enqueue(&queue, "mail", "email", json!({})).await;

    let listed = rowlock(&queue, &["queues", "--json"])
        .await
        .expect(0)
        .json();
    insta::assert_json_snapshot!(redacted(listed));
    let shown = rowlock(&queue, &["queues", "--json", "show", "mail"])
        .await
        .expect(0)
        .json();
    assert_eq!(shown["ready"], 1);
    let shown = rowlock(&queue, &["queues", "show", "mail"]).await.expect(0);
    assert!(shown.out.contains("1 in the last minute"), "{}", shown.out);
}

#[tokio::test]
async fn a_slip_makes_no_queue() {
    let queue = TestQueue::new().await.unwrap();
    enqueue(&queue, "mail", "email", json!({})).await;
    enqueue(&queue, "reports", "report", json!({})).await;
    for args in [
        &["queues", "pause", "mail", "reprots"][..],
        &["queues", "resume", "reprots"],
        &["queues", "show", "reprots"],
        &["queues", "purge", "reprots", "--yes"],
    ] {
        let ran = rowlock(&queue, args).await.expect(3);
        assert!(
            ran.err
                .contains("there is no queue \"reprots\"; there are reports, mail"),
            "{}",
            ran.err
        );
    }
    let queues = queue.client().queues().await.unwrap();
    assert_eq!(queues.len(), 2);
    assert!(queues.iter().all(|q| !q.paused), "half of it was done");
}

#[tokio::test]
async fn queues_and_kinds_are_paused_and_resumed() {
    let queue = TestQueue::new().await.unwrap();
    enqueue(&queue, "mail", "email", json!({})).await;
    let paused = async || queue.client().queue("mail").await.unwrap().unwrap();

    let ran = rowlock(&queue, &["queues", "pause", "mail"])
        .await
        .expect(0);
    assert_eq!(ran.out, "queue mail is paused\n");
    assert!(paused().await.paused);
    let ran = rowlock(&queue, &["queues", "pause", "mail"])
        .await
        .expect(0);
    assert_eq!(ran.out, "queue mail was paused already\n");
    rowlock(&queue, &["queues", "pause", "mail", "--kind", "email"])
        .await
        .expect(0);
    assert_eq!(paused().await.paused_kinds, ["email"]);
    let ran = rowlock(&queue, &["queues", "resume", "--all"])
        .await
        .expect(0);
    assert_eq!(ran.out, "queue mail goes on; still paused in it: email\n");
    let ran = rowlock(
        &queue,
        &["queues", "resume", "mail", "-k", "email", "--json"],
    )
    .await
    .expect(0);
    insta::assert_json_snapshot!(ran.json(), @r#"
    {
      "queues": [
        {
          "changed": true,
          "kind": "email",
          "paused": false,
          "queue": "mail"
        }
      ]
    }
    "#);
}

#[tokio::test]
async fn settings_are_changed_and_said() {
    let queue = TestQueue::new().await.unwrap();
    let args = [
        "queues",
        "set",
        "mail",
        "retention=3 days",
        "lease=10s",
        "max-attempts=3",
        "backoff=exponential:1s",
    ];
    let ran = rowlock(&queue, &args).await.expect(0);
    assert!(ran.out.starts_with("queue mail was made\n"), "{}", ran.out);
    let set = queue.client().queue("mail").await.unwrap().unwrap();
    assert_eq!(
        (set.lease_ms, set.max_attempts, set.retention_ms),
        (10_000, 3, 3 * 86_400_000)
    );
    assert_eq!(set.backoff["base_ms"], 1000);

    let ran = rowlock(
        &queue,
        &["queues", "set", "mail", "lease=20s", "max-attempts=3"],
    )
    .await
    .expect(0);
    assert_eq!(ran.out, "  lease: 10s → 20s\n");
    let ran = rowlock(
        &queue,
        &["queues", "set", "mail", "--kind", "news", "timeout=5m"],
    )
    .await
    .expect(0);
    assert_eq!(ran.out, "  timeout: 5m\n");
    rowlock(
        &queue,
        &["queues", "set", "mail", "--kind", "news", "--forget"],
    )
    .await
    .expect(0);
    assert!(
        queue
            .client()
            .queue("mail")
            .await
            .unwrap()
            .unwrap()
            .kinds
            .is_empty()
    );

    for (pair, wanted) in [
        ("leese=1s", "did you mean lease?"),
        ("lease=1ms", "must be a whole number from 1000 to 86400000"),
        ("backoff=often", "exponential:1s"),
    ] {
        let ran = rowlock(&queue, &["queues", "set", "mail", "max-attempts=9", pair])
            .await
            .expect(2);
        assert!(ran.err.contains(wanted), "{}", ran.err);
    }
    assert_eq!(
        queue
            .client()
            .queue("mail")
            .await
            .unwrap()
            .unwrap()
            .max_attempts,
        3
    );
}

#[tokio::test]
async fn purge_asks_and_leaves_the_others() {
    let queue = TestQueue::new().await.unwrap();
    for _ in 0..3 {
        enqueue(&queue, "mail", "email", json!({})).await;
    }
    enqueue(&queue, "mail", "report", json!({})).await;
    let asked = rowlock(&queue, &["queues", "purge", "mail"])
        .await
        .expect(1);
    assert!(
        asked
            .err
            .contains("delete 4 waiting jobs of queue mail for good"),
        "{}",
        asked.err
    );
    let ran = rowlock(
        &queue,
        &["queues", "purge", "mail", "--kind", "email", "--yes"],
    )
    .await
    .expect(0);
    assert_eq!(ran.out, "3 jobs purged\n");
    assert_eq!(
        queue.client().queue("mail").await.unwrap().unwrap().ready,
        1
    );
    rowlock(
        &queue,
        &["queues", "purge", "mail", "--state", "scheduled", "--yes"],
    )
    .await
    .expect(3);
}
