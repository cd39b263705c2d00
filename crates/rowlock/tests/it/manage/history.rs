use jiff::ToSpan;
use rowlock::Error;
use rowlock::manage::{JobFilter, JobState};

use super::bench;

#[tokio::test]
async fn a_replay_runs_finished_jobs_again() {
    let b = bench().await;
    let begin = b.client.clock().await.unwrap();
    for kind in ["a", "a", "b"] {
        b.enqueue("q", kind).await;
        b.finish("q").await;
    }
    let waiting = b.enqueue("q", "a").await;
    b.client.cancel(&[waiting]).await.unwrap();

    let did = b.client.replay("q", begin).kind("a").await.unwrap();
    assert_eq!((did.replayed, did.duplicates), (2, 0));
    let ready = JobFilter::new().queue("q").state(JobState::Ready);
    let copies = b.client.jobs(&ready).await.unwrap();
    assert_eq!(copies.jobs.len(), 2);
    for copy in copies {
        assert!(copy.metadata.unwrap().get().contains("replay_of"));
    }
    b.client.purge("q").await.unwrap();

    let did = b
        .client
        .replay("q", begin)
        .outcome(JobState::Cancelled)
        .await
        .unwrap();
    assert_eq!(did.replayed, 1);
    let did = b
        .client
        .replay("q", begin)
        .any_outcome()
        .limit(3)
        .rate(1.0)
        .await
        .unwrap();
    assert_eq!(did.replayed, 3);
    let did = b
        .client
        .replay("q", begin - 1.hour())
        .finished_before(begin)
        .await
        .unwrap();
    assert_eq!(did.replayed, 0);
}

#[tokio::test]
async fn a_bad_replay_is_refused() {
    let b = bench().await;
    let now = b.client.clock().await.unwrap();
    for e in [
        b.client.replay("", now).await.unwrap_err(),
        b.client
            .replay("q", now)
            .outcome(JobState::Dead)
            .await
            .unwrap_err(),
        b.client
            .replay("q", now)
            .finished_before(now)
            .await
            .unwrap_err(),
        b.client.replay("q", now).rate(-1.0).await.unwrap_err(),
    ] {
        assert!(matches!(e, Error::Invalid(_)), "{e}");
    }
}

#[tokio::test]
async fn maintenance_says_what_it_did() {
    let b = bench().await;
    let steps = b.client.maintain().await.unwrap();
    let names: Vec<_> = steps.iter().map(|s| &*s.step).collect();
    assert!(
        names.contains(&"retain") && names.contains(&"drop_partitions"),
        "{names:?}"
    );
    for step in &steps {
        assert!(
            !step.detail.as_deref().unwrap_or("").starts_with("failed"),
            "{step:?}"
        );
    }
}

#[tokio::test]
async fn old_days_go_into_the_archive_table() {
    let b = bench().await;
    b.sql(
        "insert into rowlock.finished_default (id, created_at, run_at, finished_at, worker, attempt, failures, crashes, priority, queue, kind, outcome, payload)
         select n, now(), now(), now() - interval '6 days', 0, 1, 0, 0, 0, 'q', 'k', 'done', '{}' from generate_series(1, 50) n;
         select rowlock.make_partitions();
         insert into rowlock.queue (name, retention) values ('q', '1 day');",
    )
    .await;
    let e = b
        .client
        .drop_partitions(Some("nowhere.none"))
        .await
        .unwrap_err();
    assert!(matches!(e, Error::Invalid(_)), "{e}");
    b.client.start_archive().await.unwrap();
    b.client.start_archive().await.unwrap();
    let steps = b.client.drop_partitions(None).await.unwrap();
    assert!(
        steps
            .iter()
            .any(|s| s.answer == "dropped, and 50 rows archived"),
        "{steps:?}"
    );
    assert_eq!(b.number("select count(*) from rowlock.archive").await, 50);
    assert!(b.client.drop_partitions(None).await.unwrap().is_empty());
}
