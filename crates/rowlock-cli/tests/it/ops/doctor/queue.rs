//! What hurts the queues.

use std::time::Duration;

use rowlock_testkit::TestQueue;
use serde_json::json;

use super::super::support::{enqueue, sql};
use super::{findings, the};

const A_WORKER: &str =
    "select rowlock.register_worker('w', 'host-w', 7, '0.1.0', '{mail*}', '{}', 10)";

#[tokio::test]
async fn stuck_leases_are_found_with_who_locks_them() {
    let queue = TestQueue::new().await.unwrap();
    let id = enqueue(&queue, "mail.eu", "email", json!({})).await;
    sql(&queue, "select * from rowlock.claim('{mail.eu}', 1)").await;
    queue
        .set_clock_ahead(Duration::from_secs(3600))
        .await
        .unwrap();
    let (_, found) = findings(&queue, "leases", &[]).await;
    assert!(
        found.is_empty(),
        "without a worker nobody can take over: {found:#?}"
    );

    sql(&queue, A_WORKER).await;
    let holder = queue.db().connect().await.unwrap();
    holder
        .batch_execute("begin; select from rowlock.job for update")
        .await
        .unwrap();
    let (code, found) = findings(&queue, "leases", &[]).await;
    assert_eq!(code, 20);
    let evidence = &the(&found, "leases_stuck")["evidence"];
    assert_eq!(evidence["queue"], "mail.eu");
    assert_eq!(evidence["ids"], json!([id]));
    assert!(
        evidence["why"].as_str().unwrap().contains("process"),
        "{evidence}"
    );
}

#[tokio::test]
async fn lost_workers_are_found() {
    let queue = TestQueue::new().await.unwrap();
    sql(&queue, A_WORKER).await;
    let (code, _) = findings(&queue, "workers", &[]).await;
    assert_eq!(code, 0);
    queue
        .set_clock_ahead(Duration::from_secs(600))
        .await
        .unwrap();
    let (code, found) = findings(&queue, "workers", &[]).await;
    assert_eq!(code, 10);
    let evidence = &the(&found, "worker_lost")["evidence"];
    assert_eq!(
        (&evidence["host"], &evidence["pid"]),
        (&"host-w".into(), &7.into())
    );
    sql(
        &queue,
        "select rowlock.unregister_worker(id) from rowlock.worker",
    )
    .await;
    queue
        .set_clock_ahead(Duration::from_secs(6000))
        .await
        .unwrap();
    let (code, found) = findings(&queue, "workers", &[]).await;
    assert_eq!(
        (code, found.len()),
        (0, 0),
        "a worker that stopped is not lost: {found:#?}"
    );
}

#[tokio::test]
async fn a_queue_that_nobody_serves_is_found() {
    let queue = TestQueue::new().await.unwrap();
    enqueue(&queue, "reports", "report", json!({})).await;
    enqueue(&queue, "mail.eu", "email", json!({})).await;
    sql(&queue, A_WORKER).await;
    let (code, found) = findings(&queue, "backlog", &[]).await;
    assert_eq!(code, 10, "it is young yet");
    assert_eq!(
        the(&found, "queue_unserved")["evidence"]["queue"],
        "reports"
    );

    queue
        .set_clock_ahead(Duration::from_secs(120))
        .await
        .unwrap();
    sql(
        &queue,
        "update rowlock.worker set seen_at = rowlock.clock()",
    )
    .await;
    let (code, found) = findings(&queue, "backlog", &[]).await;
    assert_eq!(code, 20);
    assert!(
        the(&found, "queue_unserved")["evidence"]["oldest_wait_ms"]
            .as_u64()
            .unwrap()
            >= 120_000
    );

    queue.client().pause("reports").await.unwrap();
    let (code, found) = findings(&queue, "backlog", &[]).await;
    assert_eq!(code, 10);
    assert_eq!(
        the(&found, "queue_paused")["advice"],
        "if that is not meant: rowlock queues resume reports"
    );
}

#[tokio::test]
async fn a_kind_that_no_worker_knows_is_found() {
    let queue = TestQueue::new().await.unwrap();
    for kind in ["email", "emial", "emial"] {
        enqueue(&queue, "mail.eu", kind, json!({})).await;
    }
    let (_, found) = findings(&queue, "backlog", &[]).await;
    assert!(
        found.iter().all(|f| f["code"] != "kind_unknown"),
        "without a worker it is the queue that is not served: {found:#?}"
    );
    let worker = "select rowlock.register_worker('w', 'host-w', 7, '0.1.0', '{mail*}', '{email, report}', 10)";
    sql(&queue, worker).await;
    let (code, found) = findings(&queue, "backlog", &[]).await;
    assert_eq!(code, 10, "it is young yet: {found:#?}");
    let evidence = &the(&found, "kind_unknown")["evidence"];
    assert_eq!(evidence["kind"], "emial");
    assert_eq!(evidence["jobs"], 2);
    assert_eq!(evidence["kinds_known"], json!(["email", "report"]));

    queue
        .set_clock_ahead(Duration::from_secs(120))
        .await
        .unwrap();
    let seen = "update rowlock.worker set seen_at = rowlock.clock()";
    sql(&queue, seen).await;
    let (code, _) = findings(&queue, "backlog", &[]).await;
    assert_eq!(code, 20, "it has waited long enough");

    // Somebody paused it: that is why, and meant.
    sql(
        &queue,
        "select rowlock.set_queue('mail.eu', '{\"kinds\": {\"emial\": {\"paused\": true}}}')",
    )
    .await;
    let (code, found) = findings(&queue, "backlog", &[]).await;
    assert_eq!((code, found.len()), (0, 0), "{found:#?}");
    sql(
        &queue,
        "select rowlock.set_queue('mail.eu', '{\"kinds\": {\"emial\": null}}')",
    )
    .await;
    // One that takes any kind will do.
    sql(&queue, A_WORKER).await;
    let (code, found) = findings(&queue, "backlog", &[]).await;
    assert_eq!((code, found.len()), (0, 0), "{found:#?}");
}

#[tokio::test]
async fn a_growing_backlog_is_found() {
    let queue = TestQueue::new().await.unwrap();
    sql(&queue, A_WORKER).await;
    // What has waited for long does not grow.
    sql(
        &queue,
        "insert into rowlock.job (queue, kind, payload, created_at, run_at)
         select 'mail.old', 'k', '{}', now() - interval '1 hour', now() - interval '1 hour' from generate_series(1, 3000);
         select rowlock.heal_queues()",
    )
    .await;
    let (_, found) = findings(&queue, "backlog", &[]).await;
    assert!(found.is_empty(), "{found:#?}");
    sql(
        &queue,
        "insert into rowlock.job (queue, kind, payload) select 'mail.new', 'k', '{}' from generate_series(1, 1500);
         select rowlock.heal_queues()",
    )
    .await;
    let (code, found) = findings(&queue, "backlog", &[]).await;
    assert_eq!(code, 10);
    let evidence = &the(&found, "queue_grows")["evidence"];
    assert_eq!(
        (&evidence["queue"], &evidence["grew_by"]),
        (&"mail.new".into(), &1500.into())
    );
    // As many that were there before have gone since: it is only busy.
    sql(
        &queue,
        "insert into rowlock.finished (id, created_at, run_at, finished_at, worker, attempt, failures, crashes, priority, queue, kind, outcome, payload)
         select -n, now() - interval '1 hour', now(), now(), 0, 1, 0, 0, 0, 'mail.new', 'k', 'done', '{}' from generate_series(1, 1500) n",
    )
    .await;
    let (code, found) = findings(&queue, "backlog", &[]).await;
    assert_eq!((code, found.len()), (0, 0), "{found:#?}");
}

#[tokio::test]
async fn days_of_history_are_checked() {
    let queue = TestQueue::new().await.unwrap();
    let (code, found) = findings(&queue, "history", &[]).await;
    assert_eq!((code, found.len()), (0, 0), "{found:#?}");
    sql(
        &queue,
        "do $$ begin
           execute format('drop table rowlock.%I', 'finished_' || to_char((now() at time zone 'UTC')::date + 1, 'YYYYMMDD'));
         end $$;
         select rowlock.make_partition('2020-01-01', 0);
         insert into rowlock.finished (id, created_at, run_at, finished_at, worker, attempt, failures, crashes, priority, queue, kind, outcome, payload)
         values (1, '2019-01-01', '2019-01-01', '2019-01-01', 0, 1, 0, 0, 0, 'mail', 'k', 'done', '{}')",
    )
    .await;
    let (code, found) = findings(&queue, "history", &[]).await;
    assert_eq!(code, 10);
    assert_eq!(
        the(&found, "partitions_missing")["evidence"]["days"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        the(&found, "partitions_old")["evidence"]["partitions"],
        json!(["finished_20200101"])
    );
    assert_eq!(the(&found, "rows_in_default")["evidence"]["rows"], 1);
    // The advice helps.
    sql(&queue, "select * from rowlock.maintain()").await;
    let (code, found) = findings(&queue, "history", &[]).await;
    assert_eq!((code, found.len()), (0, 0), "{found:#?}");
}
