//! Traces: a span for each attempt at a job or row, and one for each call of an endpoint, sent to a collector by OTLP over HTTP.
//!
//! `span` is what a handler begins and ends; `export` is the way to the collector.
//!
//! They are begun here, and not made from the spans that the library has for the log: the log's level would decide about them, and
//! those have begun before anybody can say whose children they are.
//!
//! Promises: a collector that is slow or gone never slows or stops work: spans wait in a bounded queue for a thread of their own, and what
//! does not fit is dropped. Off, they cost next to nothing.

mod export;
mod span;

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

pub(crate) use span::{AttemptSpan, CallSpan, Facts};

use crate::settings::TraceSettings;

/// How long the end of the program waits for the last spans to be taken.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);

/// What begins spans; empty while nobody wants them.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// The traces of a long-running command.
pub(crate) struct Traces(Option<(SdkTracerProvider, export::Deliveries)>);

impl Traces {
    /// Starts tracing, if that is wanted. Once for each process, within the runtime.
    pub(crate) fn start(settings: Option<&TraceSettings>) -> anyhow::Result<Self> {
        let Some(settings) = settings else {
            return Ok(Self(None));
        };
        let (exporter, deliveries) =
            export::exporter(settings).context("[traces] cannot be used")?;
        let sampler = Sampler::TraceIdRatioBased(settings.sample);
        let instance = format!("{:032x}", rand::random::<u128>());
        let resource = Resource::builder()
            .with_service_name(settings.service_name.clone())
            .with_attribute(KeyValue::new("service.instance.id", instance))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(sampler)))
            .with_resource(resource)
            .build();
        let scope = InstrumentationScope::builder("rowlock")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        // A second start would be a mistake of ours; the first tracer stays.
        let _ = TRACER.set(provider.tracer_with_scope(scope));
        Ok(Self(Some((provider, deliveries))))
    }

    /// Sends the last spans, and waits a little for that.
    pub(crate) async fn flush(&self) {
        let Some((provider, deliveries)) = self.0.clone() else {
            return;
        };
        // It blocks, and what it waits for needs this runtime.
        let flush = move || provider.shutdown_with_timeout(FLUSH_WITHIN);
        let flushed = tokio::task::spawn_blocking(flush).await;
        deliveries.end(matches!(flushed, Ok(Ok(()))));
    }
}
