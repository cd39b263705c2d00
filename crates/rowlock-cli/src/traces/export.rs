//! The way to the collector: OTLP over HTTP, by the client that the rest of the program uses, and said in the log when it is blocked.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    Protocol, SpanExporter as OtlpExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::runtime::Handle;

use crate::settings::TraceSettings;
use crate::tls;

/// How long one delivery may take, with all its tries.
const DELIVER_WITHIN: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How much of an answer is read: it says little.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// So often at most is said that nothing arrives.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// How it goes with the deliveries. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Deliveries(Arc<Mutex<Trouble>>);

#[derive(Debug, Default)]
struct Trouble {
    /// What went wrong the last time. The exporter does not pass it on.
    why: Option<String>,
    /// Spans that were lost since the last one that arrived.
    lost: usize,
    /// How many of those the log knows of, and when it was told last.
    said: usize,
    said_at: Option<Instant>,
}

impl Trouble {
    fn why(&self) -> &str {
        self.why.as_deref().unwrap_or("it does not answer")
    }
}

impl Deliveries {
    fn tried(&self, how: String) {
        self.lock().why = Some(how);
    }

    fn lost(&self, spans: usize) {
        let mut trouble = self.lock();
        trouble.lost += spans;
        if trouble.said_at.is_none_or(|at| at.elapsed() >= SAY_EVERY) {
            trouble.said_at = Some(Instant::now());
            trouble.said = trouble.lost;
            tracing::warn!(
                lost = trouble.lost,
                error = trouble.why(),
                "traces do not reach the collector; work goes on without them"
            );
        }
    }

    fn arrived(&self) {
        let mut trouble = self.lock();
        if trouble.said > 0 {
            tracing::info!(lost = trouble.lost, "traces reach the collector again");
        }
        // When it was said last stays: a collector that comes and goes must not fill the log.
        (trouble.lost, trouble.said) = (0, 0);
    }

    /// At the end: says what has not been said. `in_time`: whether all deliveries have ended.
    pub(super) fn end(&self, in_time: bool) {
        let trouble = self.lock();
        if trouble.lost > trouble.said || !in_time {
            tracing::warn!(
                lost = trouble.lost,
                error = trouble.why(),
                "the last traces have not reached the collector"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Trouble> {
        // What is behind the lock is whole at all times.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What sends spans to the collector that the settings name.
pub(super) fn exporter(settings: &TraceSettings) -> anyhow::Result<(Watched, Deliveries)> {
    let deliveries = Deliveries::default();
    let http = reqwest::Client::builder()
        .tls_backend_preconfigured(tls::config(settings.ca_file.as_deref())?)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_WITHIN)
        .timeout(DELIVER_WITHIN)
        .build()?;
    let client = Client {
        http,
        runtime: Handle::try_current()?,
        deliveries: deliveries.clone(),
    };
    let headers = settings.headers.iter();
    let headers = headers.map(|(name, value)| (name.clone(), value.reveal().to_owned()));
    let otlp = OtlpExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(settings.endpoint.reveal())
        .with_headers(headers.collect())
        .with_timeout(DELIVER_WITHIN)
        .build()?;
    let watched = Watched {
        otlp,
        deliveries: deliveries.clone(),
    };
    Ok((watched, deliveries))
}

/// Sends requests on the runtime of the program: spans are exported by a thread that has none.
struct Client {
    http: reqwest::Client,
    runtime: Handle,
    deliveries: Deliveries,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

type Answer = Result<Response<Bytes>, HttpError>;

impl HttpClient for Client {
    fn send_bytes<'client, 'answer>(
        &'client self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'answer>>
    where
        'client: 'answer,
        Self: 'answer,
    {
        let sent = self.runtime.spawn(send(self.http.clone(), request));
        Box::pin(async move {
            let answer = sent.await?;
            self.deliveries.tried(match &answer {
                Ok(answer) => format!("it answered {}", answer.status()),
                Err(error) => error.to_string(),
            });
            answer
        })
    }
}

async fn send(http: reqwest::Client, request: Request<Bytes>) -> Answer {
    let (parts, body) = request.into_parts();
    let sent = http
        .post(parts.uri.to_string())
        .headers(parts.headers)
        .body(body)
        .send();
    let mut answer = sent
        .await
        .map_err(|e| crate::say::chain(&e.without_url()))?;
    let mut response = Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        *headers = std::mem::take(answer.headers_mut());
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
        let room = ANSWER_BYTES_MAX - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            break;
        }
    }
    Ok(response.body(body.into())?)
}

/// An exporter that says when nothing arrives any more, and when it does again.
#[derive(Debug)]
pub(super) struct Watched {
    otlp: OtlpExporter,
    deliveries: Deliveries,
}

impl SpanExporter for Watched {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let exported = self.otlp.export(batch).await;
        match &exported {
            Ok(()) => self.deliveries.arrived(),
            Err(_) => self.deliveries.lost(spans),
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.otlp.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_that_comes_and_goes_is_said_once_in_a_while() {
        let deliveries = Deliveries::default();
        let told = |n: usize| {
            let trouble = deliveries.lock();
            assert_eq!(
                (trouble.lost, trouble.said),
                (n, if n == 5 { 5 } else { 0 })
            );
            trouble.said_at
        };
        deliveries.lost(5);
        let first = told(5);
        assert!(first.is_some());
        deliveries.arrived();
        deliveries.lost(2);
        assert_eq!(told(2), first, "not said again so soon");
    }
}
