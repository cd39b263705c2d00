//! Handlers: their arguments, their kinds, what surrounds them, and what is refused before anything runs.

use std::time::Duration;

use rowlock::{
    Client, ConnInfo, Ctx, Fail, FromParts, Job, NewJob, Outcome, Parts, RawJob, State, States,
    Worker, WorkerBuilder,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kit::{Bench, Note, SOON, Tally, note, raw, start, within};

#[derive(Clone)]
struct Greeting(&'static str);

/// An extractor that a team could write: built from two others.
struct Signature(String);

impl FromParts for Signature {
    fn from_parts(parts: &Parts<'_>) -> Self {
        let State(greeting) = State::<Greeting>::from_parts(parts);
        Self(format!("{} {}", greeting.0, Ctx::from_parts(parts).id()))
    }

    fn check(states: &States) -> Result<(), String> {
        State::<Greeting>::check(states)
    }
}

#[tokio::test]
async fn a_handler_gets_its_job_its_state_and_its_context() {
    let bench = Bench::new().await;
    let told: Tally<String> = Tally::new();
    let handler = |job: Note,
                   State(told): State<Tally<String>>,
                   ctx: Ctx,
                   Signature(signature): Signature| async move {
        told.add(format!(
            "{} {} {} {} {} {:?} {} {} {}",
            job.n,
            ctx.queue(),
            ctx.kind(),
            ctx.attempt(),
            ctx.priority(),
            ctx.tags(),
            ctx.metadata()["tenant"],
            ctx.max_attempts(),
            signature
        ));
        assert!(ctx.run_at().is_some() && ctx.created_at().is_some());
        assert_eq!((ctx.failures(), ctx.crashes()), (0, 0));
        assert_eq!(ctx.cancel_reason(), None);
        assert!(!ctx.is_last_attempt());
        assert!(ctx.time_left().is_some_and(|t| t > Duration::from_secs(50)));
        assert_eq!(ctx.key(), format!("rowlock-{}", ctx.id()));
    };
    let job = note(7)
        .priority(3)
        .tag("a")
        .metadata("tenant", 5)
        .max_attempts(9)
        .timeout(Duration::from_secs(60));
    let id = bench.enqueue(job).await;
    let worker = start(
        bench
            .worker()
            .state(told.clone())
            .state(Greeting("hello"))
            .handle(handler),
    )
    .await;
    bench.finish(&worker).await;
    assert_eq!(
        told.all(),
        [format!("7 default note 1 3 [\"a\"] 5 9 hello {id}")]
    );
    let done = bench.finished(id).await;
    assert_eq!(
        (&done["outcome"], &done["attempt"], &done["failures"]),
        (&json!("done"), &json!(1), &json!(0))
    );
    assert_eq!(done["worker"], json!(worker.id()));
}

/// A builder whose client never connects.
fn builder() -> WorkerBuilder {
    let nowhere = ConnInfo::parse("postgres://nobody@127.0.0.1:1/nothing").unwrap();
    Worker::builder(Client::builder().lazy(nowhere).unwrap()).queue("default")
}

fn refusal(builder: WorkerBuilder) -> String {
    match builder.build() {
        Ok(_) => panic!("it should have been refused"),
        Err(e) => e.to_string(),
    }
}

async fn plain(_: Note) {}

#[tokio::test]
async fn a_missing_state_is_found_when_the_worker_is_built() {
    async fn wants(_: Note, _: State<Greeting>) {}
    async fn wants_many(_: Vec<rowlock::Item<Note>>, _: State<Greeting>) {}
    fn wants_blocking(_: Note, _: Signature) {}
    for refused in [
        refusal(builder().handle(wants)),
        refusal(builder().handle_batch(5, wants_many)),
        refusal(builder().handle_blocking(wants_blocking)),
    ] {
        assert!(
            refused.contains("\"note\"") && refused.contains("Greeting"),
            "{refused}"
        );
        assert!(refused.contains(".state("), "it says what to do: {refused}");
    }
    assert!(builder().state(Greeting("x")).handle(wants).build().is_ok());
}

#[tokio::test]
async fn two_handlers_for_one_kind_are_refused() {
    #[derive(Serialize, Deserialize)]
    struct Memo {}
    impl Job for Memo {
        const KIND: &'static str = "memo";
    }
    async fn memo(_: Memo) {}
    async fn any(_: RawJob, _: Ctx) {}

    let refused = refusal(builder().handle(plain).handle(plain));
    assert!(refused.contains("\"note\""), "{refused}");
    let refused = refusal(builder().handle(plain).handle_kind("note", any));
    assert!(refused.contains("\"note\""), "{refused}");
    // An alias is a kind too.
    let refused = refusal(builder().handle(plain).handle(memo));
    assert!(refused.contains("\"memo\""), "{refused}");
    let refused = refusal(builder().handle_any(any).handle_any(any));
    assert!(refused.contains("any kind"), "{refused}");
}

#[tokio::test]
async fn a_worker_without_queues_or_handlers_is_refused() {
    let refused = refusal(builder());
    assert!(refused.contains("no handlers"), "{refused}");
    let nowhere = ConnInfo::parse("postgres://nobody@127.0.0.1:1/nothing").unwrap();
    let client = Client::builder().lazy(nowhere).unwrap();
    let refused = refusal(Worker::builder(client).handle(plain));
    assert!(refused.contains("no queues"), "{refused}");
}

#[tokio::test]
async fn settings_out_of_range_are_refused_by_name() {
    use rowlock::Queue;
    for (builder, name) in [
        (builder().concurrency(0), "concurrency"),
        (builder().lease(Duration::from_millis(999)), "lease"),
        (builder().poll(Duration::from_secs(3601)), "poll"),
        (
            builder().statement_timeout(Duration::ZERO),
            "statement_timeout",
        ),
        (builder().ahead(100_001), "ahead"),
        (builder().name(""), "worker"),
        (builder().queue(""), "queue"),
        (
            builder().queue(Queue::named("q").concurrency(0)),
            "concurrency",
        ),
        (builder().queue(Queue::named("q").weight(0)), "weight"),
        (builder().handle_kind("a\nb", |_, _| async {}), "kind"),
        (
            builder().handle_batch(0, |_: Vec<rowlock::Item<Note>>| async {}),
            "0 jobs",
        ),
    ] {
        let refused = refusal(builder.handle_kind("other", |_, _| async {}));
        assert!(refused.contains(name), "{name}: {refused}");
    }
}

#[tokio::test]
async fn a_worker_does_not_start_without_its_database_or_its_schema() {
    let worker = builder().handle(plain).build().unwrap();
    let refused = within(SOON, "the start fails", worker.start())
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("127.0.0.1"), "{refused}");

    let db = rowlock_testkit::TestDb::new().await.unwrap();
    let worker = Worker::builder(crate::support::lazy(&db))
        .queue("default")
        .handle(plain)
        .build()
        .unwrap();
    let refused = within(SOON, "the start fails", worker.start())
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("rowlock migrate"), "{refused}");
}

#[tokio::test]
async fn blocking_handlers_run_beside_each_other_and_may_panic() {
    let bench = Bench::new().await;
    let met = std::sync::Arc::new(std::sync::Barrier::new(2));
    let told = Tally::new();
    bench.enqueue_all([note(0), note(1)]).await;
    let bad = bench.enqueue(note(-1).max_attempts(1)).await;
    let tally = told.clone();
    let worker = start(bench.worker().handle_blocking(move |job: Note, ctx: Ctx| {
        assert!(job.n >= 0, "a negative note: {}", job.n);
        // Each waits for the other, so both must be running.
        met.wait();
        tally.add(job.n);
        assert_eq!(ctx.kind(), "note");
    }))
    .await;
    told.reach(2).await;
    bench.finish(&worker).await;
    let dead = bench.dead(bad).await;
    assert_eq!(super::kit::errors(&dead), ["panicked: a negative note: -1"]);
    assert_eq!(bench.counts().await, (0, 2, 1));
}

#[tokio::test]
async fn kinds_by_name_any_kind_and_former_names_find_their_handlers() {
    let bench = Bench::new().await;
    let told: Tally<String> = Tally::new();
    let jobs = [note(1), raw("report"), raw("whatever")];
    let memo = NewJob::new("memo", &json!({"n": 2})).unwrap();
    bench.enqueue_all(jobs.into_iter().chain([memo])).await;
    let (typed, named, any) = (told.clone(), told.clone(), told.clone());
    let worker = start(
        bench
            .worker()
            .handle(move |job: Note, ctx: Ctx| {
                typed.add(format!("typed {} {}", ctx.kind(), job.n));
                async {}
            })
            .handle_kind("report", move |job: RawJob, _: Ctx| {
                named.add(format!("named {} {}", job.kind, job.payload));
                async {}
            })
            .handle_any(move |job: RawJob, _: Ctx| {
                any.add(format!("any {}", job.kind));
                async {}
            }),
    )
    .await;
    bench.finish(&worker).await;
    let mut told = told.all();
    told.sort();
    assert_eq!(
        told,
        [
            "any whatever",
            "named report {}",
            "typed memo 2",
            "typed note 1"
        ]
    );
    bench.assert_all_done(4).await;
}

#[tokio::test]
async fn middleware_goes_from_the_outside_in_and_may_end_a_job_itself() {
    let bench = Bench::new().await;
    let told: Tally<String> = Tally::new();
    let passed = bench.enqueue(note(1)).await;
    let stopped = bench.enqueue(note(2)).await;
    let (outer, inner, handler) = (told.clone(), told.clone(), told.clone());
    let worker = start(
        bench
            .worker()
            .concurrency(1)
            .middleware(move |ctx: Ctx, next| {
                let told = outer.clone();
                async move {
                    told.add(format!("outer in {}", ctx.id()));
                    let outcome = next.run().await;
                    let name = if matches!(outcome, Outcome::Done(_)) {
                        "done"
                    } else {
                        "other"
                    };
                    told.add(format!("outer out {name}"));
                    outcome
                }
            })
            .middleware(move |ctx: Ctx, next| {
                let told = inner.clone();
                async move {
                    told.add("inner in".into());
                    if ctx.id().0 == stopped {
                        return Outcome::Cancel("the middleware said so".into());
                    }
                    let outcome = next.run().await;
                    told.add("inner out".into());
                    outcome
                }
            })
            .handle(move |job: Note| {
                handler.add(format!("handler {}", job.n));
                async {}
            }),
    )
    .await;
    bench.finish(&worker).await;
    assert_eq!(
        told.all(),
        [
            &format!("outer in {passed}"),
            "inner in",
            "handler 1",
            "inner out",
            "outer out done",
            &format!("outer in {stopped}"),
            "inner in",
            "outer out other"
        ]
    );
    assert_eq!(bench.finished(stopped).await["outcome"], "cancelled");
}

#[tokio::test]
async fn unknown_kinds_are_left_for_a_worker_that_knows_them() {
    let bench = Bench::new().await;
    let foreign = bench.enqueue(raw("foreign")).await;
    let known = bench.enqueue(note(1)).await;
    let worker = start(bench.worker().handle(plain)).await;
    bench.finish(&worker).await;
    assert_eq!(bench.finished(known).await["outcome"], "done");
    let untouched = bench.live(foreign).await.expect("it is still there");
    assert_eq!(
        (&untouched["attempt"], &untouched["lease_until"]),
        (&json!(0), &json!("-infinity"))
    );

    let worker = start(bench.worker().handle_kind("foreign", |_, _| async {})).await;
    bench.finish(&worker).await;
    assert_eq!(bench.finished(foreign).await["attempt"], 1);
}

/// The claim looked back by a second each time, to the same two thousand jobs of another worker, as fast as it could.
#[tokio::test]
async fn a_flood_of_unknown_kinds_does_not_hide_a_known_job() {
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let told = Tally::new();
    let tally = told.clone();
    let worker = start(
        bench
            .worker()
            .poll(Duration::from_secs(3600))
            .handle(move |job: Note| {
                tally.add(job.n);
                async {}
            }),
    )
    .await;
    bench.until_armed(&worker).await;
    let foreign = "insert into rowlock.job (kind, payload, run_at) \
                   select 'foreign', '{}', clock_timestamp() from generate_series(1, 5000)";
    for round in 0..3 {
        // In one transaction with the job, so that the worker sees all of it at once.
        bench.sql.batch_execute("begin").await.unwrap();
        bench.sql.batch_execute(foreign).await.unwrap();
        let enqueue = format!("select rowlock.enqueue('note', '{{\"n\": {round}}}')");
        bench.sql.batch_execute(&enqueue).await.unwrap();
        bench.sql.batch_execute("commit").await.unwrap();
        told.reach_within(Duration::from_secs(10), round + 1).await;
    }
    within(SOON, "the worker stops", worker.shutdown()).await;
}

#[tokio::test]
async fn errors_of_the_worker_go_to_the_job_and_not_to_others() {
    let bench = Bench::new().await;
    let bad = bench.enqueue(note(0).max_attempts(1)).await;
    let good = bench.enqueue(note(1)).await;
    let worker = start(bench.worker().handle(|job: Note| async move {
        if job.n == 0 {
            return Err(Fail::dead("not this one"));
        }
        Ok(())
    }))
    .await;
    bench.finish(&worker).await;
    assert_eq!(bench.dead(bad).await["reason"], "refused");
    assert_eq!(bench.finished(good).await["outcome"], "done");
}

/// A queue without history has its jobs deleted by place and transaction; jobs that said how far they are go another way, without the others.
#[tokio::test]
async fn untouched_jobs_take_the_short_way_and_the_others_do_not_keep_them_from_it() {
    let bench = Bench::new().await;
    let told = "select rowlock.set_queue('default', '{\"retention\": \"0\"}'); \
                create sequence public.short; create sequence public.long; \
                create schema kept; alter function rowlock.complete_untouched set schema kept; \
                create function rowlock.complete_untouched(queue text, tids tid[], runs integer[], tokens bigint[], marks bigint[], closed bigint[]) returns boolean \
                  language plpgsql as $$ declare v_done boolean := kept.complete_untouched(queue, tids, runs, tokens, marks, closed); begin \
                  perform nextval(case when v_done then 'public.short' else 'public.long' end) from unnest(tids); return v_done; end $$";
    bench.sql.batch_execute(told).await.unwrap();
    // With an expiry, which keeps them out of bundles.
    let hour = Duration::from_secs(3600);
    bench
        .enqueue_all((0..40).map(|n| note(n).expires_in(hour)))
        .await;
    let worker = start(
        bench
            .worker()
            .concurrency(20)
            .handle(|job: Note, ctx: Ctx| async move {
                if job.n % 4 == 0 {
                    ctx.progress(&json!({"n": job.n})).await.unwrap();
                }
            }),
    )
    .await;
    bench.finish(&worker).await;
    let taken = "select coalesce(pg_sequence_last_value('short'), 0) || ' ' || coalesce(pg_sequence_last_value('long'), 0)";
    assert_eq!(bench.text(taken).await, "30 0");
    assert_eq!(bench.number("select count(*) from rowlock.job").await, 0);
}
