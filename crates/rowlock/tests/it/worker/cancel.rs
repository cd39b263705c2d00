//! Cancelling: jobs that wait, jobs that run, by message and by renewal.

use std::time::Duration;

use rowlock::{Ctx, Outcome};
use serde_json::json;

use super::kit::{Bench, Note, SOON, Tally, errors, note, start, within};

async fn cancel(bench: &Bench, id: i64) -> String {
    bench
        .text(&format!("select answer from rowlock.cancel('{{{id}}}')"))
        .await
}

/// A handler that runs until it is told to stop, and then returns what the job's number says.
async fn until_told(job: Note, ctx: Ctx, told: Tally<String>) -> Outcome {
    told.add("started".into());
    let reason = ctx.cancelled().await;
    told.add(format!("{reason:?}"));
    match job.n {
        0 => Outcome::retry("stopped in the middle"),
        1 => Outcome::done(&"finished all the same"),
        _ => Outcome::Snooze(Duration::from_secs(3600)),
    }
}

async fn cancelled_while_it_runs(bench: &Bench, builder: rowlock::WorkerBuilder) {
    let told: Tally<String> = Tally::new();
    let tally = told.clone();
    let worker = start(builder.handle(move |job: Note, ctx: Ctx| {
        let told = tally.clone();
        async move { until_told(job, ctx, told).await }
    }))
    .await;
    let mut ids = Vec::new();
    for n in 0..3_usize {
        let id = bench.enqueue(note(n as i64)).await;
        told.reach(2 * n + 1).await;
        assert_eq!(cancel(bench, id).await, "asked");
        let all = told.reach(2 * n + 2).await;
        assert_eq!(all.last().map(String::as_str), Some("Cancelled"));
        ids.push(id);
    }
    bench.finish(&worker).await;
    let stopped = bench.finished(ids[0]).await;
    assert_eq!(
        (&stopped["outcome"], errors(&stopped)),
        (&json!("cancelled"), vec!["stopped in the middle"])
    );
    let done = bench.finished(ids[1]).await;
    assert_eq!(
        (&done["outcome"], &done["result"]),
        (&json!("done"), &json!("finished all the same"))
    );
    assert_eq!(
        bench.finished(ids[2]).await["outcome"],
        "cancelled",
        "one that wants to sleep is put away"
    );
}

#[tokio::test]
async fn a_running_job_is_told_by_a_message() {
    let bench = Bench::new().await;
    // The lease is so long that no renewal can have told it.
    let builder = bench.worker().lease(Duration::from_secs(3600));
    cancelled_while_it_runs(&bench, builder).await;
}

#[tokio::test]
async fn a_running_job_is_told_by_the_renewal_where_there_are_no_messages() {
    let bench = Bench::new().await;
    let builder = bench.worker().lease(Duration::from_secs(1)).poll_only();
    cancelled_while_it_runs(&bench, builder).await;
}

#[tokio::test]
async fn a_waiting_job_never_starts() {
    let bench = Bench::new().await;
    let id = bench.enqueue(note(1)).await;
    assert_eq!(cancel(&bench, id).await, "cancelled");
    assert_eq!(cancel(&bench, id).await, "not_live");
    let told = Tally::new();
    let tally = told.clone();
    let worker = start(bench.worker().handle(move |job: Note| {
        tally.add(job.n);
        async {}
    }))
    .await;
    bench.finish(&worker).await;
    assert_eq!(told.all(), [] as [i64; 0], "it was cancelled");
    let cancelled = bench.finished(id).await;
    assert_eq!(
        (&cancelled["outcome"], &cancelled["attempt"]),
        (&json!("cancelled"), &json!(0))
    );
}

/// Claimed ahead and cancelled before its turn: it must not start.
#[tokio::test]
async fn a_job_that_waits_in_the_worker_never_starts() {
    let bench = Bench::new().await;
    let told: Tally<String> = Tally::new();
    let tally = told.clone();
    // A batch handler claims more than it has slots for; the kind of the second job goes elsewhere, one at a time.
    let worker = start(
        bench
            .worker()
            .concurrency(1)
            .handle_batch(2, |_: Vec<rowlock::Item<Note>>| async {})
            .handle_kind("slow", move |_, ctx: Ctx| {
                let told = tally.clone();
                async move {
                    told.add(ctx.id().to_string());
                    ctx.cancelled().await;
                }
            }),
    )
    .await;
    let ids = bench
        .enqueue_all([super::kit::raw("slow"), super::kit::raw("slow")])
        .await;
    assert_eq!(told.reach(1).await, [ids[0].to_string()]);
    let claimed = format!("select attempt from rowlock.job where id = {}", ids[1]);
    bench
        .until(SOON, "the second waits in the worker", &claimed, "1")
        .await;
    assert_eq!(cancel(&bench, ids[1]).await, "asked");
    let marked = format!(
        "select cancel_at is not null from rowlock.job where id = {}",
        ids[1]
    );
    bench
        .until(SOON, "the second is marked", &marked, "true")
        .await;
    assert_eq!(cancel(&bench, ids[0]).await, "asked");
    bench.finish(&worker).await;
    assert_eq!(told.len(), 1, "the second must not start");
    let second = bench.finished(ids[1]).await;
    assert_eq!(
        (&second["outcome"], errors(&second)),
        (&json!("cancelled"), vec!["cancelled before it started"])
    );
    within(SOON, "the worker has stopped", worker.stopped()).await;
}
