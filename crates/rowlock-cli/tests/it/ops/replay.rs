//! `rowlock replay`.

use rowlock_testkit::TestQueue;
use serde_json::json;

use super::support::{drain, enqueue, rowlock};

#[tokio::test]
async fn finished_jobs_of_a_window_run_again() {
    let queue = TestQueue::new().await.unwrap();
    for _ in 0..3 {
        enqueue(&queue, "mail", "email", json!({})).await;
    }
    enqueue(&queue, "mail", "report", json!({})).await;
    drain(&queue).await;

    let dry = rowlock(&queue, &["replay", "mail", "--since", "1h", "--dry-run"])
        .await
        .expect(0);
    assert_eq!(dry.out, "4 jobs would be enqueued again\n");
    let asked = rowlock(&queue, &["replay", "mail", "--since", "1h"])
        .await
        .expect(1);
    assert!(
        asked.err.contains("run all jobs of queue mail again"),
        "{}",
        asked.err
    );
    assert_eq!(
        queue.client().queue("mail").await.unwrap().unwrap().ready,
        0
    );

    let args = [
        "replay", "mail", "--since", "1h", "--kind", "email", "--rate", "0.01", "--yes",
    ];
    let did = rowlock(&queue, &args).await.expect(0);
    assert_eq!(
        did.out,
        "3 jobs enqueued again, the last of them due in 3m 20s\n"
    );
    let after = queue.client().queue("mail").await.unwrap().unwrap();
    assert_eq!((after.ready, after.scheduled), (1, 2));

    let json = rowlock(
        &queue,
        &[
            "replay", "mail", "--since", "1h", "--limit", "1", "--yes", "--json",
        ],
    )
    .await;
    assert_eq!(
        json.expect(0).json(),
        json!({"replayed": 1, "duplicates": 0})
    );
    rowlock(
        &queue,
        &["replay", "mail", "--since", "2h", "--until", "1h", "--yes"],
    )
    .await
    .expect(3);
    rowlock(
        &queue,
        &[
            "replay",
            "mail",
            "--since",
            "1h",
            "--outcome",
            "cancelled",
            "--dry-run",
        ],
    )
    .await
    .expect(3);
    let wrong = rowlock(
        &queue,
        &["replay", "mail", "--since", "1h", "--until", "2h", "--yes"],
    )
    .await
    .expect(2);
    assert!(wrong.err.contains("does not come after"), "{}", wrong.err);
}
