use std::time::Duration;

use rowlock::manage::{JobState, KindSettings, QueueSettings};
use rowlock::{Backoff, Error};
use serde_json::json;

use super::{bench, job};

#[tokio::test]
async fn a_queue_tells_what_is_in_it() {
    let b = bench().await;
    assert!(b.client.queue("mail").await.unwrap().is_none());
    for _ in 0..3 {
        b.enqueue("mail", "k").await;
    }
    b.kill("mail", "boom").await;
    b.claim("mail", 1).await;
    b.enqueue_job(
        job("k", json!({}))
            .queue("mail")
            .delay(Duration::from_secs(60)),
    )
    .await;
    b.enqueue("aaa", "k").await;

    let mail = b.client.queue("mail").await.unwrap().unwrap();
    assert_eq!(
        (mail.ready, mail.running, mail.scheduled, mail.dead),
        (1, 1, 1, 1)
    );
    assert!(!mail.paused && !mail.capped);
    assert!(mail.oldest_ready_at.is_some() && mail.oldest_wait_ms.is_some());
    assert_eq!(mail.retention_ms, 7 * 86_400_000);
    assert_eq!(mail.backoff["type"], "exponential");
    let names: Vec<_> = b
        .client
        .queues()
        .await
        .unwrap()
        .into_iter()
        .map(|q| q.name)
        .collect();
    assert_eq!(names, ["aaa", "mail"]);
}

#[tokio::test]
async fn settings_that_are_not_named_stay() {
    let b = bench().await;
    let backoff = Backoff::fixed(Duration::from_secs(5));
    let first = QueueSettings::new()
        .lease(Duration::from_secs(90))
        .max_attempts(9)
        .max_crashes(2)
        .max_payload_bytes(4096)
        .backoff(backoff.clone())
        .retention(Duration::from_secs(30 * 86_400))
        .kind(
            "report",
            KindSettings::new()
                .max_attempts(2)
                .timeout(Duration::from_secs(60)),
        );
    let queue = b.client.set_queue("mail", first).await.unwrap();
    assert_eq!(
        (
            queue.lease_ms,
            queue.max_attempts,
            queue.max_crashes,
            queue.max_payload_bytes
        ),
        (90_000, 9, Some(2), 4096)
    );
    assert_eq!(queue.retention_ms, 30 * 86_400_000);
    assert_eq!(queue.backoff, serde_json::to_value(&backoff).unwrap());
    let report = &queue.kinds["report"];
    assert_eq!(
        (report.max_attempts, report.timeout_ms, report.paused),
        (Some(2), Some(60_000), false)
    );

    let second = QueueSettings::new()
        .max_crashes_as_attempts()
        .retention(Duration::ZERO)
        .kind("report", KindSettings::new().max_attempts(3));
    let queue = b.client.set_queue("mail", second).await.unwrap();
    assert_eq!(
        (
            queue.lease_ms,
            queue.max_attempts,
            queue.max_crashes,
            queue.retention_ms
        ),
        (90_000, 9, None, 0)
    );
    let report = &queue.kinds["report"];
    assert_eq!(
        (report.max_attempts, report.timeout_ms),
        (Some(3), Some(60_000))
    );
    let queue = b
        .client
        .set_queue("mail", QueueSettings::new().forget_kind("report"))
        .await
        .unwrap();
    assert!(queue.kinds.is_empty());
}

#[tokio::test]
async fn bad_settings_change_nothing() {
    let b = bench().await;
    for (name, settings) in [
        ("mail", QueueSettings::new().max_attempts(0)),
        ("mail", QueueSettings::new().lease(Duration::ZERO)),
        ("", QueueSettings::new()),
    ] {
        let e = b.client.set_queue(name, settings).await.unwrap_err();
        assert!(matches!(e, Error::Invalid(_)), "{e}");
    }
    assert!(b.client.queues().await.unwrap().is_empty());
    for e in [
        b.client.pause("").await.unwrap_err(),
        b.client.pause_kind("q", "").await.unwrap_err(),
    ] {
        assert!(matches!(e, Error::Invalid(_)), "{e}");
    }
}

#[tokio::test]
async fn pause_and_resume() {
    let b = bench().await;
    b.enqueue("mail", "a").await;
    b.enqueue("mail", "b").await;
    b.client.pause("mail").await.unwrap();
    assert!(b.client.queue("mail").await.unwrap().unwrap().paused);
    assert!(b.claim("mail", 10).await.is_empty());
    b.client.resume("mail").await.unwrap();
    b.client.pause_kind("mail", "a").await.unwrap();
    let queue = b.client.queue("mail").await.unwrap().unwrap();
    assert!(!queue.paused);
    assert_eq!(queue.paused_kinds, ["a"]);
    assert!(queue.kinds["a"].paused);
    assert_eq!(b.claim("mail", 10).await.len(), 1);
    b.client.resume_kind("mail", "a").await.unwrap();
    assert_eq!(b.claim("mail", 10).await.len(), 1);
}

#[tokio::test]
async fn a_purge_takes_what_waits_and_leaves_what_runs() {
    let b = bench().await;
    b.sql("select rowlock.enqueue('k', queue => 'mail') from generate_series(1, 1500) n")
        .await;
    b.sql("select rowlock.enqueue('other', queue => 'mail', delay => '1 hour') from generate_series(1, 5) n")
        .await;
    b.claim("mail", 2).await;
    let did = b.client.purge("mail").kind("none").await.unwrap();
    assert_eq!(did.purged, 0);
    let did = b
        .client
        .purge("mail")
        .state(JobState::Scheduled)
        .kind("other")
        .limit(2)
        .await
        .unwrap();
    assert_eq!(did.purged, 2);
    let mut told = 0;
    let did = b
        .client
        .purge("mail")
        .on_progress(|_| told += 1)
        .await
        .unwrap();
    assert_eq!(did.purged, 1501);
    assert!(told >= 2);
    let mail = b.client.queue("mail").await.unwrap().unwrap();
    assert_eq!((mail.ready, mail.scheduled, mail.running), (0, 0, 2));

    let e = b
        .client
        .purge("mail")
        .state(JobState::Running)
        .await
        .unwrap_err();
    assert!(
        e.to_string().contains("is no state of a waiting job"),
        "{e}"
    );
}
