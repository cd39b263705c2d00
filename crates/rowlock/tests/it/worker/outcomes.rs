//! What becomes of an attempt, and what is written down about it.

use std::time::Duration;

use rowlock::{Backoff, CancelReason, Ctx, Done, Fail, NewJob, Outcome, RawJob};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::kit::{Bench, Note, SOON, Tally, errors, note, raw, start, within};

/// In how many ms the job is due, by the database's clock.
async fn due_in_ms(bench: &Bench, id: i64) -> i64 {
    let sql = format!(
        "select (extract(epoch from run_at - clock_timestamp()) * 1000)::bigint from rowlock.job where id = {id}"
    );
    bench.number(&sql).await
}

#[tokio::test]
async fn a_result_is_kept_in_the_history() {
    let bench = Bench::new().await;
    let id = bench.enqueue(note(4)).await;
    let worker = start(bench.worker().handle(|job: Note| async move {
        Ok::<_, Fail>(Done(json!({"square": job.n * job.n, "text": "ü\\u0000"})))
    }))
    .await;
    bench.finish(&worker).await;
    let done = bench.finished(id).await;
    assert_eq!(done["result"], json!({"square": 16, "text": "ü\\u0000"}));
    assert_eq!(done["errors"], Value::Null);
}

#[derive(Debug, thiserror::Error)]
#[error("cannot send the mail")]
struct Mail(#[source] std::io::Error);

#[tokio::test]
async fn a_failure_is_retried_by_its_policy_until_its_attempts_are_used_up() {
    let bench = Bench::new().await;
    let policy = Backoff::list([Duration::ZERO, Duration::from_secs(100)]).jitter(0.0);
    let id = bench.enqueue(note(1).max_attempts(3).backoff(policy)).await;
    let worker = start(bench.worker().handle(|_: Note, ctx: Ctx| async move {
        assert_eq!(ctx.is_last_attempt(), ctx.failures() == 2);
        Err::<(), _>(Mail(std::io::Error::other("the server is gone")))
    }))
    .await;
    // The first retry is at once, the second in 100 s.
    within(SOON, "both attempts are over", worker.drained()).await;
    let job = bench.live(id).await.expect("it has one attempt left");
    assert_eq!(
        (&job["failures"], &job["attempt"], &job["token"]),
        (&json!(2), &json!(2), &json!(0))
    );
    let due = due_in_ms(&bench, id).await;
    assert!((60_000..=100_000).contains(&due), "due in {due} ms");

    let now = format!("update rowlock.job set run_at = clock_timestamp() where id = {id}");
    bench.sql.batch_execute(&now).await.unwrap();
    bench.finish(&worker).await;
    let dead = bench.dead(id).await;
    assert_eq!(
        (&dead["reason"], &dead["failures"]),
        (&json!("failed"), &json!(3))
    );
    assert_eq!(
        errors(&dead),
        ["cannot send the mail: the server is gone"; 3]
    );
}

#[tokio::test]
async fn an_error_may_say_when_to_try_again_or_that_it_is_no_use() {
    let bench = Bench::new().await;
    let ids = bench
        .enqueue_all(["later", "snooze", "cancel", "dead", "outcome"].map(raw))
        .await;
    let worker = start(bench.worker().handle_any(|job: RawJob, _: Ctx| async move {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        match &*job.kind {
            "later" => Err(Fail::retry_after("wait", minutes(5))),
            "snooze" => Err(Fail::snooze("not yet", minutes(7))),
            "cancel" => Err(Fail::cancel("nobody wants it")),
            "dead" => Err(Fail::dead("broken for good")),
            _ => Ok(Outcome::Snooze(minutes(9))),
        }
    }))
    .await;
    bench.finish(&worker).await;

    let later = bench.live(ids[0]).await.expect("it is tried again");
    assert_eq!(
        (&later["failures"], errors(&later)),
        (&json!(1), vec!["wait"])
    );
    for (id, minutes) in [(ids[0], 5), (ids[1], 7), (ids[4], 9)] {
        let due = due_in_ms(&bench, id).await;
        assert!(
            (minutes * 60_000 - 40_000..=minutes * 60_000).contains(&due),
            "due in {due} ms, not in {minutes} min"
        );
    }
    for id in [ids[1], ids[4]] {
        let snoozed = bench.live(id).await.expect("it is run again");
        assert_eq!(
            (&snoozed["failures"], &snoozed["attempt"]),
            (&json!(0), &json!(1))
        );
        assert_eq!(snoozed["errors"], Value::Null);
    }
    let cancelled = bench.finished(ids[2]).await;
    assert_eq!(
        (&cancelled["outcome"], errors(&cancelled)),
        (&json!("cancelled"), vec!["nobody wants it"])
    );
    let dead = bench.dead(ids[3]).await;
    assert_eq!(
        (&dead["reason"], errors(&dead)),
        (&json!("refused"), vec!["broken for good"])
    );
}

#[tokio::test]
async fn panics_are_failures_with_their_text_wherever_they_happen() {
    let bench = Bench::new().await;
    let jobs = ["early", "late", "odd"].map(|kind| raw(kind).max_attempts(1));
    let ids = bench.enqueue_all(jobs).await;
    let worker = start(
        bench
            .worker()
            // Before there is a future at all.
            .handle_kind("early", |job: RawJob, _: Ctx| {
                assert!(job.kind.is_empty(), "in the function");
                async {}
            })
            .handle_kind("late", |_: RawJob, _: Ctx| async {
                tokio::task::yield_now().await;
                let text = String::from("in the future");
                assert!(text.is_empty(), "{text}");
            })
            .handle_kind("odd", |job: RawJob, _: Ctx| async move {
                if &*job.kind == "odd" {
                    std::panic::panic_any(7);
                }
            }),
    )
    .await;
    bench.finish(&worker).await;
    for (id, text) in ids.iter().zip([
        "panicked: in the function",
        "panicked: in the future",
        "panicked: without a text",
    ]) {
        assert_eq!(errors(&bench.dead(*id).await), [text]);
    }
}

/// A payload that panics when it is read.
#[derive(Debug)]
struct Mine;

impl<'de> serde::Deserialize<'de> for Mine {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("in the decoding")
    }
}

impl rowlock::Job for Mine {
    const KIND: &'static str = "mine";
}

impl serde::Serialize for Mine {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Trapped {}

impl rowlock::Job for Trapped {
    const KIND: &'static str = "trap";
}

/// An argument that panics when it is built.
struct Trap;

impl rowlock::FromParts for Trap {
    fn from_parts(_: &rowlock::Parts<'_>) -> Self {
        panic!("in an argument")
    }
}

/// What comes before there is a future at all, with a middleware around it and without.
#[tokio::test]
async fn a_panic_on_the_way_to_the_handler_is_a_failure_of_that_job_alone() {
    for middleware in [false, true] {
        let bench = Bench::new().await;
        let jobs = ["mine", "trap", "note"].map(|kind| {
            let job = NewJob::new(kind, &json!({"n": 1})).unwrap();
            job.max_attempts(1)
        });
        let ids = bench.enqueue_all(jobs).await;
        let mut builder = bench.worker();
        if middleware {
            builder = builder.middleware(|_: Ctx, next| next.run());
        }
        let worker = start(
            builder
                .handle(|_: Mine| async {})
                .handle(|_: Trapped, _: Trap| async {})
                .handle(|job: Note| {
                    assert!(job.n == 0, "in the function");
                    async {}
                }),
        )
        .await;
        bench.finish(&worker).await;
        for (id, text) in ids.iter().zip([
            "panicked: in the decoding",
            "panicked: in an argument",
            "panicked: in the function",
        ]) {
            assert_eq!(errors(&bench.dead(*id).await), [text]);
        }
    }
}

/// The task ended without an answer, and the job was held, and its lease renewed, for as long as the worker ran.
#[tokio::test]
async fn a_handler_that_panics_while_it_is_dropped_fails_like_any_other() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "in its drop");
        }
    }
    let bench = Bench::new().await;
    let jobs = (0..5).map(|n| note(n).max_attempts(1).timeout(Duration::from_millis(20)));
    let ids = bench.enqueue_all(jobs).await;
    let worker = start(
        bench
            .worker()
            .concurrency(1)
            .handle(|job: Note| async move {
                let _bomb = (job.n < 4).then(|| Bomb);
                if job.n < 4 {
                    std::future::pending::<()>().await;
                }
            }),
    )
    .await;
    bench.finish(&worker).await;
    for id in &ids[..4] {
        let dead = bench.dead(*id).await;
        assert!(errors(&dead)[0].contains("panicked"), "{dead}");
    }
    assert_eq!(bench.finished(ids[4]).await["outcome"], "done");
}

#[tokio::test]
async fn a_timeout_is_a_failure_and_the_handler_is_told() {
    let bench = Bench::new().await;
    let told: Tally<CancelReason> = Tally::new();
    let job = note(1).max_attempts(1).timeout(Duration::from_millis(50));
    let id = bench.enqueue(job).await;
    let tally = told.clone();
    let worker = start(bench.worker().handle(move |_: Note, ctx: Ctx| {
        let told = tally.clone();
        async move {
            // The handler itself is dropped; what it started elsewhere is told.
            tokio::spawn(async move { told.add(ctx.cancelled().await) });
            std::future::pending::<()>().await;
        }
    }))
    .await;
    assert_eq!(told.reach(1).await, [CancelReason::Timeout]);
    bench.finish(&worker).await;
    assert_eq!(errors(&bench.dead(id).await), ["timed out after 50ms"]);
}

#[tokio::test]
async fn the_timeout_of_a_kind_holds_and_a_blocking_handler_is_told() {
    let bench = Bench::new().await;
    bench
        .set_queue(json!({"kinds": {"note": {"timeout_ms": 50, "max_attempts": 1}}}))
        .await;
    let told: Tally<CancelReason> = Tally::new();
    let id = bench.enqueue(note(1)).await;
    let tally = told.clone();
    let worker = start(bench.worker().handle_blocking(move |_: Note, ctx: Ctx| {
        let token = ctx.cancel_token();
        let deadline = std::time::Instant::now() + SOON;
        while !token.is_cancelled() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        tally.add(ctx.cancel_reason().expect("it was told"));
    }))
    .await;
    assert_eq!(told.reach(1).await, [CancelReason::Timeout]);
    bench.finish(&worker).await;
    assert_eq!(errors(&bench.dead(id).await), ["timed out after 50ms"]);
}

#[tokio::test]
async fn a_payload_that_does_not_fit_the_type_is_a_failure_that_says_so() {
    let bench = Bench::new().await;
    let bad = NewJob::new("note", &json!({"n": "a secret"})).unwrap();
    let id = bench.enqueue(bad.max_attempts(1)).await;
    let worker = start(bench.worker().handle(|_: Note| async {})).await;
    bench.finish(&worker).await;
    let dead = bench.dead(id).await;
    let text = errors(&dead)[0];
    assert!(
        text.contains("\"note\"") && text.contains("expected i64"),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
}

fn json_text(text: impl Into<String>) -> Outcome {
    Outcome::Done(Some(RawValue::from_string(text.into()).unwrap()))
}

#[tokio::test]
async fn an_outcome_that_cannot_be_stored_never_blocks_the_others() {
    let bench = Bench::new().await;
    let ids = bench
        .enqueue_all((0..40).map(|n| note(n).max_attempts(1)))
        .await;
    let started: Tally = Tally::new();
    let tally = started.clone();
    let worker = start(bench.worker().handle(move |job: Note| {
        let started = tally.clone();
        async move {
            // All end together, so that they are acknowledged together.
            started.add(job.n);
            started.reach(40).await;
            match job.n {
                1 => Outcome::done(&"\0"),
                // Made by hand, past our own checks.
                2 => json_text("\"\\u0000\""),
                3 => json_text("1e999999"),
                4 => json_text(format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000))),
                5 => json_text("\"\\ud800\""),
                6 => Outcome::retry("a\0b"),
                7 => Outcome::Dead("x".repeat(10 * 1024 * 1024)),
                8 => Outcome::Cancel("\0".repeat(20_000)),
                9 => Outcome::Snooze(Duration::MAX),
                10 => Outcome::retry_after("never", Duration::MAX),
                n => Outcome::done(&n),
            }
        }
    }))
    .await;
    bench.finish(&worker).await;
    for (n, id) in ids.iter().enumerate().skip(11) {
        assert_eq!(bench.finished(*id).await["result"], json!(n));
    }
    for (n, id) in ids.iter().enumerate().skip(1).take(5) {
        let dead = bench.dead(*id).await;
        let text = errors(&dead)[0].to_owned();
        assert!(
            text.contains("stored") || text.contains("NUL"),
            "{n}: {text}"
        );
        assert_eq!(dead["reason"], "refused", "the work is done: {text}");
    }
    assert_eq!(errors(&bench.dead(ids[6]).await), ["a\u{fffd}b"]);
    let long = bench.dead(ids[7]).await;
    assert!(
        errors(&long)[0].len() < 20_000 && errors(&long)[0].contains("[cut: 10485760 bytes]"),
        "{} bytes",
        errors(&long)[0].len()
    );
    assert_eq!(bench.finished(ids[8]).await["outcome"], "cancelled");
    let snoozed = bench.live(ids[9]).await.expect("it sleeps");
    assert_eq!(snoozed["failures"], 0);
    assert_eq!(bench.dead(ids[10]).await["reason"], "failed");
    assert_eq!(bench.counts().await.0, 1);
}

/// A result of many megabytes is stored, and holds nobody up.
#[tokio::test]
async fn a_large_result_is_kept() {
    let bench = Bench::new().await;
    let id = bench.enqueue(note(1)).await;
    let worker = start(
        bench
            .worker()
            .handle(|_: Note| async { Done("x".repeat(8 << 20)) }),
    )
    .await;
    bench.finish(&worker).await;
    let length = format!("select length(result #>> '{{}}') from rowlock.finished where id = {id}");
    assert_eq!(bench.number(&length).await, 8 << 20);
}
