use std::time::Duration;

use rowlock::JobId;
use rowlock::manage::Why;
use serde_json::json;

use super::{Bench, bench, job};

fn codes(why: &Why) -> Vec<&str> {
    why.reasons.iter().map(|r| &*r.code).collect()
}

/// A worker of the queue, with room for `concurrency` jobs of which `running` are taken.
async fn worker(b: &Bench, name: &str, queues: &str, kinds: &str, concurrency: i32, running: i32) {
    b.sql(&format!(
        "select rowlock.heartbeat(rowlock.register_worker('{name}', 'host', 7, '1.0', '{queues}', '{kinds}', {concurrency}), {running})"
    ))
    .await;
}

#[tokio::test]
async fn a_job_that_has_ended_says_how() {
    let b = bench().await;
    let why = b.client.why(JobId(404)).await.unwrap();
    assert_eq!(codes(&why), ["not_found"]);

    b.enqueue("q", "k").await;
    let done = b.finish("q").await;
    let why = b.client.why(done).await.unwrap();
    assert_eq!(codes(&why), ["done"]);
    assert!(why.reasons[0].sentence.contains("in attempt 1"), "{why}");

    b.enqueue("q", "k").await;
    let dead = b.kill("q", "boom\nwith a trace").await;
    let why = b.client.why(dead).await.unwrap();
    assert_eq!(codes(&why), ["dead"]);
    assert_eq!(why.reasons[0].detail["reason"], "refused");
    assert_eq!(why.reasons[0].detail["error"], "boom\nwith a trace");
    assert!(why.to_string().contains("Its last error: boom."), "{why}");

    let cancelled = b.enqueue("q", "k").await;
    b.client.cancel(&[cancelled]).await.unwrap();
    assert_eq!(
        codes(&b.client.why(cancelled).await.unwrap()),
        ["cancelled"]
    );

    let expired = b
        .enqueue_job(
            job("k", json!({}))
                .queue("q")
                .expires_in(Duration::from_secs(60)),
        )
        .await;
    b.sql("update rowlock.job set expires_at = clock_timestamp() - interval '1 minute'")
        .await;
    worker(&b, "w", "{q}", "{}", 1, 0).await;
    assert_eq!(
        codes(&b.client.why(expired).await.unwrap()),
        ["expiry_passed"]
    );
    b.claim("q", 1).await;
    assert_eq!(codes(&b.client.why(expired).await.unwrap()), ["expired"]);
}

#[tokio::test]
async fn a_running_job_says_who_has_it() {
    let b = bench().await;
    let id = b.enqueue("q", "k").await;
    worker(&b, "bee", "{q}", "{}", 1, 1).await;
    b.sql("select rowlock.claim('{q}', 1, worker => (select id from rowlock.worker))")
        .await;
    let why = b.client.why(id).await.unwrap();
    assert_eq!(codes(&why), ["running"]);
    let detail = &why.reasons[0].detail;
    assert_eq!(
        (
            &detail["worker_name"],
            &detail["worker_pid"],
            &detail["worker_alive"]
        ),
        (&json!("bee"), &json!(7), &json!(true))
    );
    assert!(detail["lease_until"].is_string() && detail["started_at"].is_string());
    assert!(why.to_string().contains("worker bee on host"), "{why}");

    b.client.cancel(&[id]).await.unwrap();
    b.sql("update rowlock.worker set seen_at = seen_at - interval '5 minutes'")
        .await;
    let why = b.client.why(id).await.unwrap();
    assert_eq!(codes(&why), ["running", "cancel_asked"]);
    assert!(why.to_string().contains("last seen 5 minutes ago"), "{why}");
}

#[tokio::test]
async fn paused_scheduled_and_without_a_worker() {
    let b = bench().await;
    let id = b
        .enqueue_job(
            job("k", json!({}))
                .queue("q")
                .delay(Duration::from_secs(3600)),
        )
        .await;
    b.client.pause("q").await.unwrap();
    b.client.pause_kind("q", "k").await.unwrap();
    let why = b.client.why(id).await.unwrap();
    assert_eq!(
        codes(&why),
        ["queue_paused", "kind_paused", "scheduled", "no_worker"]
    );
    assert!(
        why.reason("scheduled")
            .unwrap()
            .sentence
            .contains("in 59 minutes"),
        "{why}"
    );

    b.client.resume("q").await.unwrap();
    b.client.resume_kind("q", "k").await.unwrap();
    worker(&b, "w", "{other,p*}", "{}", 5, 0).await;
    assert_eq!(
        codes(&b.client.why(id).await.unwrap()),
        ["scheduled", "no_worker"]
    );
    worker(&b, "w", "{q*}", "{}", 5, 0).await;
    assert_eq!(codes(&b.client.why(id).await.unwrap()), ["scheduled"]);
    b.client.retry(&[id]).await.unwrap();
    let why = b.client.why(id).await.unwrap();
    assert_eq!(codes(&why), ["ready"]);
    assert_eq!(why.reasons[0].detail["free"], 5);
}

#[tokio::test]
async fn a_failed_job_waits_for_its_next_attempt() {
    let b = bench().await;
    let id = b.enqueue("q", "k").await;
    let (_, token) = b.claim("q", 1).await[0];
    b.sql(&format!(
        "select rowlock.fail('q', '{{{id}}}', '{{{token}}}', '{{boom}}')"
    ))
    .await;
    let why = b.client.why(id).await.unwrap();
    let reason = why.reason("scheduled").unwrap();
    assert_eq!(
        (&reason.detail["failures"], &reason.detail["error"]),
        (&json!(1), &json!("boom"))
    );
    assert!(
        reason
            .sentence
            .contains("it failed 1 time, of 5 that it may"),
        "{why}"
    );
}

#[tokio::test]
async fn workers_that_do_not_know_it_or_have_no_room() {
    let b = bench().await;
    let id = b.enqueue("q", "k").await;
    worker(&b, "a", "{q}", "{x,y}", 5, 0).await;
    let why = b.client.why(id).await.unwrap();
    assert_eq!(codes(&why), ["no_worker_for_kind"]);
    assert_eq!(why.reasons[0].detail["kinds"], json!(["x", "y"]));

    worker(&b, "b", "{q}", "{k}", 5, 5).await;
    let why = b.client.why(id).await.unwrap();
    assert_eq!(codes(&why), ["workers_full"]);
    assert_eq!(
        why.reasons[0].detail,
        json!({"workers": 1, "running": 5, "concurrency": 5})
    );

    // Those that are shutting down, or dead, do not count.
    b.sql("select rowlock.heartbeat(id, 0, 'draining') from rowlock.worker")
        .await;
    let why = b.client.why(id).await.unwrap();
    assert_eq!(codes(&why), ["no_worker"]);
    assert!(why.to_string().contains("2 are shutting down"), "{why}");
    b.sql("update rowlock.worker set seen_at = seen_at - interval '5 minutes'")
        .await;
    let why = b.client.why(id).await.unwrap();
    assert_eq!(codes(&why), ["no_worker"]);
    assert!(why.to_string().contains("seen 5 minutes ago"), "{why}");
}

#[tokio::test]
async fn behind_others_by_the_order_of_claiming() {
    let b = bench().await;
    worker(&b, "w", "{q}", "{}", 5, 0).await;
    let first = b.enqueue("q", "k").await;
    for _ in 0..3 {
        b.enqueue("q", "k").await;
    }
    let last = b.enqueue("q", "k").await;
    let low = b
        .enqueue_job(job("k", json!({})).queue("q").priority(-1))
        .await;
    b.enqueue_job(job("k", json!({})).queue("q").priority(3))
        .await;
    b.enqueue_job(
        job("k", json!({}))
            .queue("q")
            .priority(4)
            .delay(Duration::from_secs(60)),
    )
    .await;
    b.enqueue("other", "k").await;
    let ahead = async |id| {
        let why = b.client.why(id).await.unwrap();
        assert_eq!(codes(&why), ["behind"]);
        why.reasons[0].detail["jobs"].as_i64().unwrap()
    };
    assert_eq!(ahead(first).await, 1);
    assert_eq!(ahead(last).await, 5);
    assert_eq!(ahead(low).await, 6);
    b.claim("q", 2).await;
    assert_eq!(ahead(low).await, 4, "what runs is not in the way");
}

#[tokio::test]
async fn the_count_of_those_before_it_is_bounded() {
    let b = bench().await;
    b.sql("insert into rowlock.job (queue, kind, payload) select 'q', 'k', '{}' from generate_series(1, 30000)")
        .await;
    let id = b.enqueue("q", "k").await;
    let (rows, fetched, scanned) = b
        .counting(&format!(
            "select detail from rowlock.why({id}) where code = 'behind'"
        ))
        .await;
    assert_eq!(
        rows[0].get::<_, serde_json::Value>(0),
        json!({"jobs": 10000, "capped": true})
    );
    assert_eq!(scanned, 0);
    assert!(fetched <= 20_100, "{fetched}");
}

#[tokio::test]
async fn an_expired_lease_awaits_its_taking_over() {
    let b = bench().await;
    worker(&b, "w", "{q}", "{}", 5, 0).await;
    b.sql("select rowlock.set_queue('q', '{\"max_crashes\": 2}')")
        .await;
    let id = b.enqueue("q", "k").await;
    b.claim("q", 1).await;
    let expire = "update rowlock.job set lease_until = clock_timestamp() - interval '1 minute'";
    b.sql(expire).await;
    let why = b.client.why(id).await.unwrap();
    assert_eq!(codes(&why), ["lease_expired"]);
    assert_eq!(
        (
            &why.reasons[0].detail["crashes"],
            &why.reasons[0].detail["max_crashes"]
        ),
        (&json!(1), &json!(2))
    );
    assert!(why.to_string().contains("takes it over"), "{why}");

    b.claim("q", 1).await;
    b.client.cancel(&[id]).await.unwrap();
    b.sql(expire).await;
    let why = b.client.why(id).await.unwrap();
    assert_eq!(codes(&why), ["cancel_pending", "lease_expired"]);
    assert!(why.to_string().contains("as poison"), "{why}");
}

#[tokio::test]
async fn a_locked_row_names_its_holder() {
    let b = bench().await;
    worker(&b, "w", "{q}", "{}", 5, 0).await;
    let id = b.enqueue("q", "k").await;
    let mut other = b.db.connect().await.unwrap();
    let pid: i32 = other
        .query_one("select pg_backend_pid()", &[])
        .await
        .unwrap()
        .get(0);
    let tx = other.transaction().await.unwrap();
    tx.execute("select from rowlock.job where id = $1 for update", &[&id.0])
        .await
        .unwrap();
    let why = b.client.why(id).await.unwrap();
    assert_eq!(codes(&why), ["locked"]);
    let detail = &why.reasons[0].detail;
    assert_eq!(detail["pid"], pid);
    assert_eq!(detail["state"], "idle in transaction");
    assert!(detail["query"].as_str().unwrap().contains("for update"));
    tx.rollback().await.unwrap();
    assert_eq!(codes(&b.client.why(id).await.unwrap()), ["ready"]);

    // Two that share it.
    let tx = other.transaction().await.unwrap();
    let share = "select from rowlock.job where id = $1 for share";
    tx.execute(share, &[&id.0]).await.unwrap();
    let mut third = b.db.connect().await.unwrap();
    let tx3 = third.transaction().await.unwrap();
    tx3.execute(share, &[&id.0]).await.unwrap();
    let why = b.client.why(id).await.unwrap();
    assert_eq!(codes(&why), ["locked"]);
    assert!(why.reasons[0].detail["pid"].is_number(), "{why:?}");
}

/// The question itself holds nothing up, however long the transaction goes on in which it is asked.
#[tokio::test]
async fn asking_locks_nothing() {
    let b = bench().await;
    let id = b.enqueue("q", "k").await;
    let mut other = b.db.connect().await.unwrap();
    let tx = other.transaction().await.unwrap();
    tx.query("select * from rowlock.why($1)", &[&id.0])
        .await
        .unwrap();
    assert_eq!(b.claim("q", 1).await.len(), 1);
    tx.rollback().await.unwrap();

    // And where nothing may be locked, the answer comes without that part.
    b.sql("begin read only").await;
    let code: String =
        b.pg.query_one("select code from rowlock.why($1)", &[&id.0])
            .await
            .unwrap()
            .get(0);
    b.sql("rollback").await;
    assert_eq!(code, "running");
}
