//! The tests of the page "Testing your jobs": what is below is shown there word for word.

use rowlock::{Client, Done, Job};
use rowlock_testkit::TestQueue;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "email.welcome")]
struct Welcome {
    user: i64,
}

/// The code under test: it enqueues.
async fn sign_up(queue: &Client, user: i64) -> rowlock::Result<()> {
    queue
        .enqueue(Welcome { user })
        .delay(Duration::from_secs(3600))
        .await?;
    Ok(())
}

/// The code under test: it handles.
async fn send(job: Welcome) -> Result<Done<String>, String> {
    if job.user < 0 {
        Err("nobody".into())
    } else {
        Ok(Done(format!("sent to {}", job.user)))
    }
}

#[tokio::test]
async fn a_new_user_is_welcomed_after_an_hour() -> Result<(), Box<dyn std::error::Error>> {
    let queue = TestQueue::new().await?;
    sign_up(queue.client(), 7).await?;
    queue.assert_enqueued(&Welcome { user: 7 }).await;

    // Not yet.
    assert_eq!(queue.drain(|worker| worker.handle(send)).await?.handled, 0);
    // Everything in Rowlock asks one clock, and this moves it.
    queue.set_clock_ahead(Duration::from_secs(3601)).await?;
    assert_eq!(queue.drain(|worker| worker.handle(send)).await?.handled, 1);
    queue.assert_not_enqueued::<Welcome>().await;
    Ok(())
}

#[tokio::test]
async fn a_failure_is_tried_again() -> Result<(), Box<dyn std::error::Error>> {
    let queue = TestQueue::new().await?;
    let fate = queue
        .run_now(Welcome { user: -1 }, |worker| worker.handle(send))
        .await?;
    assert_eq!((&*fate.state, fate.failures), ("scheduled", 1));
    assert_eq!(fate.error.as_deref(), Some("nobody"));
    Ok(())
}
