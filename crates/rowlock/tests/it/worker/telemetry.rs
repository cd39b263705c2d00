//! What a worker tells about itself: metrics, and a span around each attempt.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use rowlock::{Backoff, Ctx};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use super::kit::{Bench, Gate, Note, Tally, note, start};

/// The one recorder of this process.
fn recorder() -> PrometheusHandle {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).expect("no other test counts");
    handle
}

/// The value of a sample.
fn sample(handle: &PrometheusHandle, name: &str) -> Option<f64> {
    let text = handle.render();
    let line = text.lines().find(|l| l.starts_with(&format!("{name} ")))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn what_happens_is_counted_once() {
    let handle = recorder();
    let bench = Bench::new().await;
    let gate = Gate::closed();
    let told: Tally = Tally::new();
    let (door, tally) = (gate.clone(), told.clone());
    // A queue of its own name: other tests of this process may count too.
    let in_queue = |n| {
        note(n)
            .queue("counted")
            .backoff(Backoff::fixed(Duration::ZERO))
    };
    bench.enqueue_all((1..=3).map(in_queue)).await;
    let worker = start(
        bench
            .worker()
            .queue("counted")
            .handle(move |job: Note, ctx: Ctx| {
                let (gate, told) = (door.clone(), tally.clone());
                async move {
                    told.add(job.n);
                    gate.pass().await;
                    match (job.n, ctx.attempt()) {
                        (1, 1) => Err("once more"),
                        _ => Ok(()),
                    }
                }
            }),
    )
    .await;
    told.reach(3).await;
    assert_eq!(sample(&handle, "rowlock_running"), Some(3.0), "at once");
    gate.let_through(4);
    told.reach(4).await;
    bench.finish(&worker).await;
    for (name, value) in [
        ("rowlock_running", 0.0),
        ("rowlock_claimed_total{queue=\"counted\"}", 4.0),
        (
            "rowlock_finished_total{queue=\"counted\",outcome=\"done\"}",
            3.0,
        ),
        (
            "rowlock_finished_total{queue=\"counted\",outcome=\"failed\"}",
            1.0,
        ),
        ("rowlock_wait_seconds_count{queue=\"counted\"}", 4.0),
        ("rowlock_run_seconds_count{queue=\"counted\"}", 4.0),
    ] {
        assert_eq!(sample(&handle, name), Some(value), "{name}");
    }
    assert!(sample(&handle, "rowlock_claim_seconds_count") >= Some(1.0));
    assert!(sample(&handle, "rowlock_ack_batch_sum") >= Some(4.0));
    what_became_of_it_is_counted(&handle).await;
}

/// Not what its handler said: of one that was cancelled, or taken away, an error is no failure.
async fn what_became_of_it_is_counted(handle: &PrometheusHandle) {
    let bench = Bench::new().await;
    let told: Tally = Tally::new();
    let tally = told.clone();
    let worker = bench.worker().queue("taken").lease(Duration::from_secs(1));
    let worker = start(worker.handle(move |job: Note, ctx: Ctx| {
        let told = tally.clone();
        async move {
            told.add(job.n);
            if ctx.attempt() == 2 {
                return Ok(());
            }
            ctx.cancelled().await;
            Err("stopped in the middle")
        }
    }))
    .await;
    let cancelled = bench.enqueue(note(1).queue("taken")).await;
    told.reach(1).await;
    let ask = format!("select answer from rowlock.cancel('{{{cancelled}}}')");
    assert_eq!(bench.text(&ask).await, "asked");
    let lost = bench.enqueue(note(2).queue("taken")).await;
    told.reach(2).await;
    let take = format!("update rowlock.job set token = 1 where id = {lost}");
    bench.sql.batch_execute(&take).await.unwrap();
    told.reach(3).await;
    bench.finish(&worker).await;
    for (name, value) in [
        ("rowlock_lost_total{queue=\"taken\"}", 1.0),
        (
            "rowlock_finished_total{queue=\"taken\",outcome=\"cancelled\"}",
            1.0,
        ),
        (
            "rowlock_finished_total{queue=\"taken\",outcome=\"done\"}",
            1.0,
        ),
    ] {
        assert_eq!(sample(handle, name), Some(value), "{name}");
    }
    let failed = "rowlock_finished_total{queue=\"taken\",outcome=\"failed\"}";
    assert_eq!(sample(handle, failed).unwrap_or_default(), 0.0);
}

/// Remembers the spans that are made, with their fields, and in which one something is said.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut fields = Fields(span.metadata().name().to_owned());
        span.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        if let Some(span) = context.event_span(event) {
            let said = format!("in {}:{}", span.name(), fields.0);
            self.0.lock().unwrap().push(said);
        }
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

#[tokio::test]
async fn a_span_surrounds_each_attempt() {
    let spans = Spans::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    // This runtime has one thread, so the tasks of the worker are on it too.
    let _default = tracing::subscriber::set_default(subscriber);
    let bench = Bench::new().await;
    let id = bench.enqueue(note(1)).await;
    let told: Tally = Tally::new();
    let tally = told.clone();
    let worker = start(bench.worker().handle(move |job: Note| {
        let told = tally.clone();
        async move {
            tracing::info!("hello from the handler");
            told.add(job.n);
        }
    }))
    .await;
    told.reach(1).await;
    bench.finish(&worker).await;
    let spans = spans.0.lock().unwrap().clone();
    let span = spans.iter().find(|s| s.starts_with("job "));
    let span = span.unwrap_or_else(|| panic!("no span of a job in {spans:#?}"));
    for field in [
        format!(" id={id}"),
        " kind=note".to_owned(),
        " queue=default".to_owned(),
        " attempt=1".to_owned(),
    ] {
        assert!(span.contains(&field), "{field} is not in {span}");
    }
    let said = "in job: message=hello from the handler";
    assert!(spans.iter().any(|s| s == said), "{spans:#?}");
    assert!(
        spans.iter().all(|s| !s.contains("payload")),
        "payloads stay out: {spans:#?}"
    );
}
