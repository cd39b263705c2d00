use std::time::Duration;

use rowlock::JobId;
use rowlock::manage::{CancelAnswer, DeadReason, DeleteAnswer, JobState, Place, RetryAnswer};
use serde_json::json;

use super::{bench, job};

#[tokio::test]
async fn a_job_is_found_wherever_it_is() {
    let b = bench().await;
    assert!(b.client.job(JobId(404)).await.unwrap().is_none());

    let id = b
        .enqueue_job(
            job("mail", json!({"to": "a"}))
                .queue("q")
                .priority(2)
                .tag("t")
                .metadata("tenant", 7)
                .unique("k")
                .max_attempts(3)
                .delay(Duration::from_secs(60)),
        )
        .await;
    let found = b.client.job(id).await.unwrap().unwrap();
    assert_eq!(
        (found.place, found.state),
        (Place::Live, JobState::Scheduled)
    );
    assert_eq!(
        (&*found.queue, &*found.kind, found.priority),
        ("q", "mail", 2)
    );
    assert_eq!(found.max_attempts, Some(3));
    assert_eq!(found.tags, ["t"]);
    assert_eq!(found.unique_key.as_deref(), Some("k"));
    assert_eq!(found.payload.get(), r#"{"to": "a"}"#);
    assert_eq!(found.metadata.unwrap().get(), r#"{"tenant": 7}"#);
    assert!(found.run_at > found.created_at);

    b.client.retry(&[id]).await.unwrap();
    let (_, token) = b.claim("q", 1).await[0];
    let found = b.client.job(id).await.unwrap().unwrap();
    assert_eq!(
        (found.state, found.attempt, found.worker),
        (JobState::Running, 1, None)
    );
    assert!(found.lease_until > found.started_at);

    b.sql(&format!(
        "select rowlock.fail('q', '{{{id}}}', '{{{token}}}', '{{boom}}', fates => '{{refused}}')"
    ))
    .await;
    let found = b.client.job(id).await.unwrap().unwrap();
    assert_eq!((found.place, found.state), (Place::Dead, JobState::Dead));
    assert_eq!(found.reason, Some(DeadReason::Refused));
    let error = found.last_error().unwrap();
    assert_eq!((error.attempt, &*error.error), (1, "boom"));
    assert!(error.at >= found.created_at);

    b.client.retry(&[id]).await.unwrap();
    b.finish("q").await;
    let found = b.client.job(id).await.unwrap().unwrap();
    assert_eq!(
        (found.place, found.state),
        (Place::Finished, JobState::Done)
    );
    assert!(found.ended_at >= found.started_at);
}

/// The names in the JSON are a promise: the columns of `rowlock.find_job`.
#[tokio::test]
async fn a_job_as_json_has_the_words_of_the_database() {
    let b = bench().await;
    let id = b.enqueue("q", "k").await;
    let job = b.client.job(id).await.unwrap().unwrap();
    let json = serde_json::to_value(&job).unwrap();
    let row =
        b.pg.query_one("select * from rowlock.find_job($1)", &[&id.0])
            .await
            .unwrap();
    let mut columns: Vec<&str> = row.columns().iter().map(|c| c.name()).collect();
    let mut names: Vec<&str> = json
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    columns.sort_unstable();
    names.sort_unstable();
    assert_eq!(names, columns);
}

#[tokio::test]
async fn a_number_that_no_type_takes_does_not_spoil_a_list() {
    let b = bench().await;
    b.sql(r#"select rowlock.enqueue('k', '{"n": 1e400}')"#)
        .await;
    b.enqueue("default", "k").await;
    let page = b.client.jobs(&Default::default()).await.unwrap();
    assert_eq!(page.jobs.len(), 2);
    assert!(page.jobs[1].payload.get().len() > 400);
    assert!(
        serde_json::to_string(&page)
            .unwrap()
            .contains("\"n\": 1000")
    );
    page.jobs[1]
        .payload_as::<serde_json::Value>()
        .expect_err("such a number");
}

#[tokio::test]
async fn cancel_answers_for_each_job() {
    let b = bench().await;
    let running = b.enqueue("q", "k").await;
    b.claim("q", 1).await;
    let waiting = b.enqueue("q", "k").await;
    let busy = b.enqueue("q", "k").await;
    let mut other = b.db.connect().await.unwrap();
    let lock = other.transaction().await.unwrap();
    lock.execute(
        "select from rowlock.job where id = $1 for update",
        &[&busy.0],
    )
    .await
    .unwrap();

    let asked = [JobId(404), busy, waiting, running, waiting];
    let answers = b.client.cancel(&asked).await.unwrap();
    let got: Vec<_> = answers.iter().map(|a| (a.id, a.answer)).collect();
    assert_eq!(
        got,
        [
            (JobId(404), CancelAnswer::NotLive),
            (busy, CancelAnswer::Busy),
            (waiting, CancelAnswer::Cancelled),
            (running, CancelAnswer::Asked),
            (waiting, CancelAnswer::Cancelled),
        ]
    );
    let found = b.client.job(running).await.unwrap().unwrap();
    assert!(found.state == JobState::Running && found.cancel_at.is_some());
    assert!(b.client.cancel(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn retry_answers_for_each_job() {
    let b = bench().await;
    b.enqueue("done", "k").await;
    let done = b.finish("done").await;
    b.enqueue("dead", "k").await;
    let dead = b.kill("dead", "boom").await;
    let ready = b.enqueue("q", "k").await;
    let later = b
        .enqueue_job(job("k", json!({})).delay(Duration::from_secs(60)))
        .await;

    let answers = b
        .client
        .retry(&[done, dead, ready, later, JobId(404)])
        .await
        .unwrap();
    let got: Vec<_> = answers.iter().map(|a| a.answer).collect();
    assert_eq!(
        got,
        [
            RetryAnswer::Copied,
            RetryAnswer::Revived,
            RetryAnswer::Ready,
            RetryAnswer::Hastened,
            RetryAnswer::NotFound
        ]
    );
    let copy = b
        .client
        .job(answers[0].new_id.unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(copy.state, JobState::Ready);
    assert_eq!(
        copy.metadata.unwrap().get(),
        format!("{{\"retry_of\": {done}}}")
    );
    assert_eq!(answers[1].new_id, Some(dead));
    assert_eq!(answers[4].new_id, None);
}

#[tokio::test]
async fn delete_answers_for_each_job_and_leaves_no_trace() {
    let b = bench().await;
    b.enqueue("done", "k").await;
    let done = b.finish("done").await;
    b.enqueue("dead", "k").await;
    let dead = b.kill("dead", "boom").await;
    let running = b.enqueue("q", "k").await;
    b.claim("q", 1).await;
    let waiting = b.enqueue("q", "k").await;
    let busy = b.enqueue("q", "k").await;
    let mut other = b.db.connect().await.unwrap();
    let lock = other.transaction().await.unwrap();
    lock.execute(
        "select from rowlock.job where id = $1 for update",
        &[&busy.0],
    )
    .await
    .unwrap();

    let all = [done, dead, running, waiting, busy, JobId(404)];
    let answers = b.client.delete(&all).await.unwrap();
    let got: Vec<_> = answers.iter().map(|a| a.answer).collect();
    assert_eq!(
        got,
        [
            DeleteAnswer::Deleted,
            DeleteAnswer::Deleted,
            DeleteAnswer::Running,
            DeleteAnswer::Deleted,
            DeleteAnswer::Busy,
            DeleteAnswer::NotFound
        ]
    );
    lock.rollback().await.unwrap();
    let mut left = Vec::new();
    for id in all {
        if b.client.job(id).await.unwrap().is_some() {
            left.push(id);
        }
    }
    assert_eq!(left, [running, busy]);
}

/// Everything works under another name of the schema, beside the first.
#[tokio::test]
async fn a_queue_in_another_schema() {
    let b = bench().await;
    b.enqueue("q", "k").await;
    let info = rowlock::ConnInfo::parse(b.db.url()).unwrap();
    let other = rowlock::Client::builder()
        .schema("other")
        .lazy(info)
        .unwrap();
    other.migrate().await.unwrap();
    assert!(
        other
            .jobs(&Default::default())
            .await
            .unwrap()
            .jobs
            .is_empty()
    );
    let id = other.enqueue_new(job("k", json!({}))).await.unwrap().id;
    assert_eq!(other.jobs(&Default::default()).await.unwrap().jobs.len(), 1);
    assert_eq!(other.why(id).await.unwrap().reasons[0].code, "no_worker");
    assert_eq!(other.queues().await.unwrap()[0].name, "default");
    assert!(other.workers().await.unwrap().is_empty());
    let now = other.clock().await.unwrap();
    let all = other.archive_to(tokio::io::sink(), now).with_dead();
    assert_eq!(all.await.unwrap().archived, 0);
    let answers = other.delete(&[id]).await.unwrap();
    assert_eq!(answers[0].answer, DeleteAnswer::Deleted);
    assert_eq!(b.number("select count(*) from rowlock.job").await, 1);
}

#[tokio::test]
async fn more_ids_than_one_call_takes() {
    let b = bench().await;
    let first = b.enqueue("q", "k").await;
    let mut ids: Vec<JobId> = (1..=10_000).map(|n| JobId(1_000_000 + n)).collect();
    ids.push(first);
    ids.insert(0, first);
    let answers = b.client.cancel(&ids).await.unwrap();
    assert_eq!(answers.len(), 10_002);
    assert_eq!(answers[0].answer, CancelAnswer::Cancelled);
    assert_eq!(answers[10_001].answer, CancelAnswer::Cancelled);
    assert!(
        answers[1..10_001]
            .iter()
            .all(|a| a.answer == CancelAnswer::NotLive)
    );
}
