//! Traces: what a collector gets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message;

use crate::support::{Endpoint, Place, Reply, Running, run};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A collector on this machine.
struct Collector {
    got: Arc<Mutex<Vec<Delivery>>>,
    url: String,
}

struct Delivery {
    path: String,
    headers: HeaderMap,
    request: ExportTraceServiceRequest,
}

impl Collector {
    async fn start() -> Collector {
        let got: Arc<Mutex<Vec<Delivery>>> = Arc::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(take).with_state(got.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Collector { got, url }
    }

    fn deliveries(&self) -> Vec<Delivery> {
        std::mem::take(&mut self.got.lock().unwrap())
    }
}

async fn take(
    State(got): State<Arc<Mutex<Vec<Delivery>>>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return StatusCode::BAD_REQUEST;
    };
    got.lock().unwrap().push(Delivery {
        path: uri.path().to_owned(),
        headers,
        request,
    });
    StatusCode::OK
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    all.iter()
        .map(|a| {
            let value = a.value.as_ref().and_then(|v| v.value.as_ref());
            let text = match value {
                Some(Value::StringValue(text)) => text.clone(),
                Some(Value::IntValue(number)) => number.to_string(),
                other => panic!("{other:?}"),
            };
            (a.key.clone(), text)
        })
        .collect()
}

fn spans(deliveries: &[Delivery]) -> Vec<Span> {
    let resources = deliveries.iter().flat_map(|d| &d.request.resource_spans);
    let scopes = resources.flat_map(|r| &r.scope_spans);
    scopes.flat_map(|s| s.spans.clone()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn status(span: &Span) -> (SpanStatus, String) {
    let status = span.status.clone().unwrap_or_default();
    (status.code(), status.message)
}

#[tokio::test]
async fn an_attempt_is_a_span_of_the_trace_that_its_job_came_with() {
    let (collector, endpoint) = (
        Collector::start().await,
        Endpoint::start([Reply::status(204)]).await,
    );
    let config = format!(
        "[traces]\nendpoint = \"{}\"\nservice_name = \"mailer\"\n\
         headers = {{ authorization = {{ env = \"TOKEN\" }}, x-team = \"mail\" }}\n\
         [handler.k]\nurl = \"{}?token=hunter2\"\n",
        collector.url, endpoint.url
    );
    let place = Place::new(&config).await;
    let trace = format!("00-{TRACE}-{PARENT}-01");
    let id = place
        .enqueue(&["k", "{}", "--queue", "mail", "--trace", &trace])
        .await;
    let mut command = place.rowlock(&["work", "--drain"]);
    command
        .env("TOKEN", "Bearer abc")
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-team=post%20room,x-more=1");
    let ran = run(command).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);

    // Whoever has ended has delivered.
    let deliveries = collector.deliveries();
    assert_eq!(deliveries.len(), 1);
    let delivery = &deliveries[0];
    assert_eq!(delivery.path, "/v1/traces");
    for (name, value) in [
        ("authorization", "Bearer abc"),
        ("x-team", "post room"),
        ("x-more", "1"),
        ("content-type", "application/x-protobuf"),
    ] {
        assert_eq!(delivery.headers[name], value);
    }
    let resource = &delivery.request.resource_spans[0];
    let about = attributes(&resource.resource.as_ref().unwrap().attributes);
    assert_eq!(about["service.name"], "mailer");
    assert_eq!(
        resource.scope_spans[0].scope.as_ref().unwrap().name,
        "rowlock"
    );

    let spans = spans(&deliveries);
    assert_eq!(spans.len(), 2);
    let of_kind = |kind: SpanKind| spans.iter().find(|s| s.kind() == kind).unwrap();
    let (attempt, call) = (of_kind(SpanKind::Consumer), of_kind(SpanKind::Client));
    assert_eq!(attempt.name, "process k");
    assert_eq!(
        (hex(&attempt.trace_id), hex(&attempt.parent_span_id)),
        (TRACE.to_owned(), PARENT.to_owned())
    );
    let said = attributes(&attempt.attributes);
    for (key, value) in [
        ("messaging.system", "rowlock"),
        ("messaging.destination.name", "mail"),
        ("messaging.message.id", &id.to_string()),
        ("rowlock.kind", "k"),
        ("rowlock.attempt", "1"),
        ("rowlock.outcome", "done"),
    ] {
        assert_eq!(said[key], value, "{key}");
    }
    assert_eq!(status(attempt).0, SpanStatus::Unset);

    assert_eq!(
        (&call.trace_id, &call.parent_span_id),
        (&attempt.trace_id, &attempt.span_id)
    );
    let said = attributes(&call.attributes);
    assert_eq!(said["http.response.status_code"], "204");
    assert_eq!(said["url.full"], endpoint.url, "without the query");
    let wanted = format!("00-{TRACE}-{}-01", hex(&call.span_id));
    assert_eq!(endpoint.requests()[0].header("traceparent"), wanted);
    assert!(attempt.start_time_unix_nano <= call.start_time_unix_nano);
    assert!(call.end_time_unix_nano <= attempt.end_time_unix_nano);
}

#[tokio::test]
async fn failures_commands_and_rows_have_spans_too_and_the_environment_is_enough() {
    let collector = Collector::start().await;
    let config = "[handler.k]\ncommand = \"echo $TRACEPARENT > DIR/job; echo oh no >&2; exit 1\"\n\
                  [handler.later]\ncommand = \"exit 2\"\nexit = { 2 = \"snooze 1h\" }\n\
                  [table.items]\ncommand = \"echo $TRACEPARENT > DIR/row\"\non_done = \"delete\"\n";
    let place = Place::new(config).await;
    place
        .sql("create table items (id int primary key); insert into items values (7)")
        .await;
    place.enqueue(&["k"]).await;
    place.enqueue(&["later"]).await;
    let mut command = place.rowlock(&["work", "--drain"]);
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .env("OTEL_SERVICE_NAME", "from-outside");
    let ran = run(command).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);

    let deliveries = collector.deliveries();
    let resource = deliveries[0].request.resource_spans[0].resource.clone();
    assert_eq!(
        attributes(&resource.unwrap().attributes)["service.name"],
        "from-outside"
    );
    let spans = spans(&deliveries);
    assert_eq!(spans.len(), 3);
    let named = |name: &str| spans.iter().find(|s| s.name == name).unwrap();
    for (name, file, outcome) in [
        ("process k", Some("job"), "retry"),
        ("process items", Some("row"), "done"),
        ("process later", None, "snooze"),
    ] {
        let span = named(name);
        assert_eq!(attributes(&span.attributes)["rowlock.outcome"], outcome);
        assert_eq!(span.parent_span_id, Vec::<u8>::new(), "nobody is above it");
        if let Some(file) = file {
            let told = std::fs::read_to_string(place.path(file)).unwrap();
            let wanted = format!("00-{}-{}-01\n", hex(&span.trace_id), hex(&span.span_id));
            assert_eq!(told, wanted);
        }
    }
    let (code, message) = status(named("process k"));
    assert_eq!(code, SpanStatus::Error);
    assert_eq!(message, "exited with code 1: oh no");
    let row = attributes(&named("process items").attributes);
    assert_eq!(
        (&*row["rowlock.table"], &*row["messaging.message.id"]),
        ("items", "7")
    );
    assert_eq!(status(named("process later")).0, SpanStatus::Unset);
}

#[tokio::test]
async fn who_enqueued_decides_about_sampling_and_else_the_share() {
    let (collector, endpoint) = (
        Collector::start().await,
        Endpoint::start([Reply::status(204)]).await,
    );
    let place = Place::new(&format!(
        "[traces]\nendpoint = \"{}/v1/traces\"\nsample = 0.0\n[handler.k]\nurl = \"{}\"\n",
        collector.url, endpoint.url
    ))
    .await;
    place
        .enqueue(&["k", "{}", "--trace", &format!("00-{TRACE}-{PARENT}-00")])
        .await;
    place.drain().await;
    // Not recorded, but passed on with that decision.
    let request = &endpoint.requests()[0];
    let told = request.header("traceparent");
    assert!(
        told.starts_with(&format!("00-{TRACE}-")) && told.ends_with("-00"),
        "{told}"
    );
    place.enqueue(&["k", "{}"]).await;
    // What is no trace begins one of its own.
    place.enqueue(&["k", "{}", "--trace", "nonsense"]).await;
    place.drain().await;
    assert_eq!(spans(&collector.deliveries()), []);
    place
        .enqueue(&["k", "{}", "--trace", &format!("00-{TRACE}-{PARENT}-01")])
        .await;
    place.drain().await;
    let spans = spans(&collector.deliveries());
    assert_eq!(spans.len(), 2);
    assert!(spans.iter().all(|s| hex(&s.trace_id) == TRACE));
}

#[tokio::test]
async fn an_attempt_that_is_stopped_in_the_middle_has_a_span_that_says_so() {
    let collector = Collector::start().await;
    let endpoint = Endpoint::start([Reply::silence()]).await;
    let place = Place::new(&format!(
        "[traces]\nendpoint = \"{}\"\n[handler.k]\nurl = \"{}\"\n",
        collector.url, endpoint.url
    ))
    .await;
    place.enqueue(&["k", "{}", "--timeout", "10ms"]).await;
    place.drain().await;
    let spans = spans(&collector.deliveries());
    assert_eq!(spans.len(), 2);
    for span in spans {
        let why = "stopped before it had ended".to_owned();
        assert_eq!(status(&span), (SpanStatus::Error, why), "{}", span.name);
    }
}

#[tokio::test]
async fn without_traces_the_trace_of_a_job_is_passed_on_as_it_is() {
    let endpoint = Endpoint::start([Reply::status(204)]).await;
    let config = format!("[handler.k]\nurl = \"{}\"\n", endpoint.url);
    let place = Place::new(&config).await;
    let trace = format!("00-{TRACE}-{PARENT}-01");
    place.enqueue(&["k", "{}", "--trace", &trace]).await;
    place.enqueue(&["k", "{}"]).await;
    place.drain().await;
    let mut told: Vec<String> = endpoint
        .requests()
        .iter()
        .map(|r| r.header("traceparent").to_owned())
        .collect();
    told.sort();
    assert_eq!(told, [String::new(), trace]);
}

#[tokio::test]
async fn a_collector_that_is_gone_stops_nothing_and_is_said_once() {
    let silent = Endpoint::start([Reply::silence()]).await;
    for (url, why) in [
        ("http://hunter2:hunter2@127.0.0.1:1", "Connection refused"),
        (silent.url.as_str(), "it does not answer"),
    ] {
        let place = Place::new(&format!(
            "[traces]\nendpoint = \"{url}\"\n[handler.k]\ncommand = \"true\"\n"
        ))
        .await;
        for _ in 0..3 {
            place.enqueue(&["k"]).await;
        }
        let mut command = place.rowlock(&["work", "--drain"]);
        // Deliveries that fail while it works, not only the last one.
        command.env("OTEL_BSP_SCHEDULE_DELAY", "1");
        let (status, log) = Running::spawn(command).ended().await;
        assert!(status.success(), "{log:?}");
        let done = place.ask("select count(*)::text from rowlock.finished");
        assert_eq!(done.await.as_deref(), Some("3"));
        // At most once while it works, and once at its end.
        let said = |text: &str| log.iter().filter(|l| l.contains(text)).count();
        assert!(said("traces do not reach the collector") <= 1, "{log:?}");
        assert!(said("the last traces have not reached") <= 1, "{log:?}");
        let last = log.iter().rfind(|l| l.contains("the collector"));
        assert!(last.is_some_and(|l| l.contains(why)), "{log:?}");
        assert!(!log.join("\n").contains("hunter2"), "{log:?}");
    }
}

#[tokio::test]
async fn a_collector_that_refuses_is_said_and_one_that_is_back_as_well() {
    let collector = Endpoint::start([Reply::status(401), Reply::status(200)]).await;
    let config = format!(
        "[worker]\nconcurrency = 1\n[traces]\nendpoint = \"{}\"\n[handler.k]\ncommand = \"true\"\n",
        collector.url
    );
    let place = Place::new(&config).await;
    let mut command = place.rowlock(&["work"]);
    command.env("OTEL_BSP_SCHEDULE_DELAY", "1");
    let mut worker = Running::spawn(command);
    place.enqueue(&["k"]).await;
    let line = worker.wait_for("traces do not reach the collector").await;
    assert!(
        line.contains("it answered 401") && line.contains("lost=1"),
        "{line}"
    );
    place.enqueue(&["k"]).await;
    worker.wait_for("traces reach the collector again").await;
    worker.signal(rustix::process::Signal::TERM);
    assert!(worker.ended().await.0.success());
}

#[tokio::test]
async fn a_change_of_the_collector_is_for_the_next_start() {
    let collector = Collector::start().await;
    let config = |url: &str| {
        format!("[traces]\nendpoint = \"{url}\"\n[handler.k]\ncommand = \"echo up > DIR/up\"\n")
    };
    let place = Place::new(&config(&collector.url)).await;
    let up = place.fifo("up");
    let mut worker = Running::start(&place, &[]).await;
    place.configure(&config("http://127.0.0.1:1"));
    worker.signal(rustix::process::Signal::HUP);
    worker.wait_for("[traces] has changed").await;
    worker.wait_for("working by the new configuration").await;
    place.enqueue(&["k"]).await;
    up.read().await;
    worker.signal(rustix::process::Signal::TERM);
    let (status, log) = worker.ended().await;
    assert!(status.success(), "{log:?}");
    assert_eq!(spans(&collector.deliveries()).len(), 1);
}
