//! The queue of a test: assertions, running, time.

use std::time::Duration;

use rowlock::{Done, Job};
use rowlock_testkit::TestQueue;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "double")]
struct Double {
    n: i32,
}

async fn double(job: Double) -> Result<Done<i32>, String> {
    if job.n < 0 {
        Err("negative".into())
    } else {
        Ok(Done(job.n * 2))
    }
}

#[tokio::test]
async fn what_was_enqueued_is_seen_and_run() {
    let queue = TestQueue::new().await.unwrap();
    queue.assert_not_enqueued::<Double>().await;
    queue.client().enqueue(Double { n: 4 }).await.unwrap();
    queue.assert_enqueued(&Double { n: 4 }).await;
    assert_eq!(queue.drain(|w| w.handle(double)).await.unwrap().handled, 1);
    queue.assert_not_enqueued::<Double>().await;
}

#[tokio::test]
#[should_panic(
    expected = "no live job of kind \"double\" is Double { n: 5 }; there are [Double { n: 4 }]"
)]
async fn a_missing_job_fails_the_test_and_tells_what_is_there() {
    let queue = TestQueue::new().await.unwrap();
    queue.client().enqueue(Double { n: 4 }).await.unwrap();
    queue.assert_enqueued(&Double { n: 5 }).await;
}

#[tokio::test]
async fn running_now_tells_what_became_of_it() {
    let queue = TestQueue::new().await.unwrap();
    let done = queue
        .run_now(Double { n: 21 }, |w| w.handle(double))
        .await
        .unwrap();
    assert_eq!((&*done.state, done.result), ("done", Some(42.into())));
    let failed = queue
        .run_now(Double { n: -1 }, |w| w.handle(double))
        .await
        .unwrap();
    assert_eq!((&*failed.state, failed.failures), ("scheduled", 1));
    assert_eq!(failed.error.as_deref(), Some("negative"));
}

#[tokio::test]
async fn time_moves_when_told_to() {
    let queue = TestQueue::new().await.unwrap();
    let id = queue
        .client()
        .enqueue(Double { n: 1 })
        .delay(Duration::from_secs(3600))
        .await
        .unwrap()
        .id;
    assert_eq!(queue.drain(|w| w.handle(double)).await.unwrap().handled, 0);
    assert_eq!(queue.fate(id).await.unwrap().unwrap().state, "scheduled");
    queue
        .set_clock_ahead(Duration::from_secs(3601))
        .await
        .unwrap();
    assert_eq!(queue.drain(|w| w.handle(double)).await.unwrap().handled, 1);
    assert_eq!(queue.fate(id).await.unwrap().unwrap().state, "done");
}
