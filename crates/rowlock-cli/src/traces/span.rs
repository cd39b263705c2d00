//! Spans of attempts and calls. Without a tracer they are nothing, and everything here does nothing.

use std::collections::HashMap;

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span as _, SpanContext, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::Span;
use rowlock::Outcome;

use super::TRACER;

const TRACEPARENT: &str = "traceparent";
/// How much of an error is sent.
const ERROR_CHARS_MAX: usize = 1000;

/// What a span is about.
pub(crate) struct Facts {
    /// One of few: no id belongs here.
    pub(crate) name: String,
    pub(crate) attributes: Vec<KeyValue>,
}

/// One attempt at a job or a row.
pub(crate) struct AttemptSpan(Open);

impl AttemptSpan {
    /// Begins it, as a child of whoever enqueued the job if that is known.
    pub(crate) fn begin(facts: impl FnOnce() -> Facts, parent: Option<&str>) -> Self {
        Self(Open::begin(SpanKind::Consumer, facts, || {
            let headers: HashMap<String, String> = parent
                .map(|parent| (TRACEPARENT.to_owned(), parent.to_owned()))
                .into_iter()
                .collect();
            TraceContextPropagator::new().extract_with_context(&Context::new(), &headers)
        }))
    }

    /// The W3C traceparent for what the attempt starts; `None` without a tracer.
    pub(crate) fn traceparent(&self) -> Option<String> {
        self.0.traceparent()
    }

    /// Ends it. `given_back`: it was stopped, and that counts neither for nor against it.
    pub(crate) fn end(self, outcome: &Outcome, given_back: bool) {
        self.0.end(|span| {
            let (word, error) = match outcome {
                Outcome::Retry { .. } if given_back => ("given back", None),
                Outcome::Done(_) => ("done", None),
                Outcome::Retry { error, .. } => ("retry", Some(error)),
                Outcome::Snooze(_) => ("snooze", None),
                Outcome::Cancel(_) => ("cancel", None),
                Outcome::Dead(error) => ("dead", Some(error)),
                _ => ("other", None),
            };
            span.set_attribute(KeyValue::new("rowlock.outcome", word));
            if let Some(error) = error {
                span.set_status(failed(error));
            }
        });
    }
}

/// One call of an endpoint, within an attempt.
pub(crate) struct CallSpan(Open);

impl CallSpan {
    /// Begins it. The address must have no secrets.
    pub(crate) fn begin(within: &AttemptSpan, address: &reqwest::Url) -> Self {
        let facts = || Facts {
            name: "POST".into(),
            attributes: vec![
                KeyValue::new("http.request.method", "POST"),
                KeyValue::new("url.full", address.to_string()),
                KeyValue::new(
                    "server.address",
                    address.host_str().unwrap_or_default().to_owned(),
                ),
                KeyValue::new(
                    "server.port",
                    i64::from(address.port_or_known_default().unwrap_or_default()),
                ),
            ],
        };
        let parent = || match within.0.context() {
            Some(context) => Context::new().with_remote_span_context(context),
            None => Context::new(),
        };
        Self(Open::begin(SpanKind::Client, facts, parent))
    }

    /// The W3C traceparent for the endpoint; `None` without a tracer.
    pub(crate) fn traceparent(&self) -> Option<String> {
        self.0.traceparent()
    }

    /// Ends it with the status of the answer, or with why there was none.
    pub(crate) fn end(self, answered: Result<u16, &str>) {
        self.0.end(|span| match answered {
            Ok(status) => {
                span.set_attribute(KeyValue::new(
                    "http.response.status_code",
                    i64::from(status),
                ));
                if status >= 400 {
                    span.set_status(Status::error(format!("answered {status}")));
                }
            }
            Err(error) => span.set_status(failed(error)),
        });
    }
}

fn failed(error: &str) -> Status {
    Status::error(error.chars().take(ERROR_CHARS_MAX).collect::<String>())
}

/// A span that has begun. One that is dropped was stopped in the middle.
struct Open(Option<Span>);

impl Open {
    fn begin(
        kind: SpanKind,
        facts: impl FnOnce() -> Facts,
        parent: impl FnOnce() -> Context,
    ) -> Self {
        Self(TRACER.get().map(|tracer| {
            let Facts { name, attributes } = facts();
            let builder = tracer
                .span_builder(name)
                .with_kind(kind)
                .with_attributes(attributes);
            tracer.build_with_context(builder, &parent())
        }))
    }

    fn context(&self) -> Option<SpanContext> {
        self.0.as_ref().map(|span| span.span_context().clone())
    }

    fn traceparent(&self) -> Option<String> {
        let context = self.context().filter(SpanContext::is_valid)?;
        let mut headers = HashMap::new();
        let context = Context::new().with_remote_span_context(context);
        TraceContextPropagator::new().inject_context(&context, &mut headers);
        headers.remove(TRACEPARENT)
    }

    fn end(mut self, how: impl FnOnce(&mut Span)) {
        if let Some(mut span) = self.0.take() {
            how(&mut span);
            span.end();
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(mut span) = self.0.take() {
            span.set_attribute(KeyValue::new("rowlock.outcome", "stopped"));
            span.set_status(Status::error("stopped before it had ended"));
            span.end();
        }
    }
}
