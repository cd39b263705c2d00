//! An HTTP endpoint as a handler: the job or row as JSON in a signed POST; the status or the body of the answer decides.

use std::time::{Duration, SystemTime};

use anyhow::Context;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use reqwest::{Client, Response, StatusCode, Url};
use rowlock::{CancelReason, Outcome};
use serde_json::value::RawValue;

use super::retry_after::retry_after;
use super::signature::Signer;
use super::task::Task;
use super::verdict::{by_code, explicit};
use crate::settings::{Codes, HttpSettings};
use crate::tls;
use crate::traces::{AttemptSpan, CallSpan};
use crate::units::duration_text;

/// How much of an answer's body is quoted in the error of the job.
const QUOTE_BYTES_MAX: usize = 2 * 1024;

/// A client for one endpoint. Keeps its connections.
pub(super) struct Endpoint {
    client: Client,
    url: Url,
    /// The address without what may be secret in it.
    shown: Url,
    headers: HeaderMap,
    signer: Option<Signer>,
    timeout: Duration,
    response_max: usize,
    status: Codes,
}

/// What an endpoint answered.
struct Answer {
    status: StatusCode,
    wait: Option<Duration>,
    body: Vec<u8>,
    /// Whether the body is longer than what was read of it.
    cut: bool,
}

impl Endpoint {
    pub(super) fn new(settings: &HttpSettings, timeout: Option<Duration>) -> anyhow::Result<Self> {
        // The settings have been checked; these only say so once more.
        let url = Url::parse(settings.url.reveal()).context("the url cannot be read")?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("rowlock/", env!("CARGO_PKG_VERSION"))),
        );
        for (name, value) in &settings.headers {
            let mut value = HeaderValue::from_str(value.reveal())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_bytes(name.as_bytes())?, value);
        }
        let secret = settings.secret.as_ref().map(|s| Signer::new(s.reveal()));
        let client = Client::builder()
            .tls_backend_preconfigured(tls::config(settings.ca_file.as_deref())?)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(settings.connect_timeout)
            .build()?;
        Ok(Self {
            client,
            shown: shown(&url),
            url,
            headers,
            signer: secret.transpose().map_err(anyhow::Error::msg)?,
            timeout: timeout.unwrap_or(Duration::MAX),
            response_max: settings.response_max,
            status: settings.status.clone(),
        })
    }

    /// Calls the endpoint for one job or row. What is under way when it is told to stop is dropped, and its connection closed.
    pub(super) async fn run(&self, task: &impl Task, span: &AttemptSpan) -> Outcome {
        let failed = |error: String| Outcome::Retry { error, after: None };
        tokio::select! {
            answer = tokio::time::timeout(self.timeout, self.call_in_span(task, span)) => match answer {
                Ok(Ok(answer)) => self.judge(&answer),
                Ok(Err(e)) => failed(format!("cannot POST to {}: {e}", self.shown)),
                Err(_) => failed(format!("{} did not answer within {}", self.shown, duration_text(self.timeout))),
            },
            reason = task.told_to_stop() => failed(match reason {
                CancelReason::Cancelled => "cancelled while it ran".into(),
                CancelReason::Shutdown => "stopped because the worker shuts down".into(),
                _ => "stopped because its lease was lost".into(),
            }),
        }
    }

    async fn call_in_span(
        &self,
        task: &impl Task,
        attempt: &AttemptSpan,
    ) -> Result<Answer, String> {
        let span = CallSpan::begin(attempt, &self.shown);
        let trace = span.traceparent();
        let answer = self.call(task, trace.as_deref().or(task.trace())).await;
        match &answer {
            Ok(answer) => span.end(Ok(answer.status.as_u16())),
            Err(error) => span.end(Err(error)),
        }
        answer
    }

    async fn call(&self, task: &impl Task, trace: Option<&str>) -> Result<Answer, String> {
        let body = task
            .body()
            .map_err(|e| format!("what is to be done cannot be written as JSON: {e}"))?;
        let (id, now) = (task.key(), jiff::Timestamp::now().as_second());
        let mut request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .header("webhook-id", &id)
            .header("webhook-timestamp", now)
            .header("idempotency-key", &id);
        if let Some(signer) = &self.signer {
            request = request.header("webhook-signature", signer.sign(&id, now, &body));
        }
        if let Some(trace) = trace {
            request = request.header("traceparent", trace);
        }
        let response = request.body(body).send().await.map_err(chain)?;
        self.read(response).await.map_err(chain)
    }

    /// Reads as much of the answer as is allowed.
    async fn read(&self, mut response: Response) -> reqwest::Result<Answer> {
        let status = response.status();
        let wait = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|header| header.to_str().ok())
            .and_then(|header| retry_after(header, SystemTime::now()));
        let mut body = Vec::new();
        let mut cut = false;
        while let Some(chunk) = response.chunk().await? {
            let room = self.response_max - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                cut = true;
                break;
            }
        }
        Ok(Answer {
            status,
            wait,
            body,
            cut,
        })
    }

    fn judge(&self, answer: &Answer) -> Outcome {
        let text = String::from_utf8_lossy(&answer.body);
        let text = text.trim();
        if let Some(outcome) = explicit(text).filter(|_| !answer.cut) {
            return outcome;
        }
        match by_code(
            self.status.reaction(answer.status.as_u16()),
            self.error(answer, text),
            answer.wait,
        ) {
            Outcome::Done(_) => self.done(answer, text),
            outcome => outcome,
        }
    }

    /// The work is done, whatever the body is; a result is a gift.
    fn done(&self, answer: &Answer, text: &str) -> Outcome {
        if answer.cut {
            tracing::warn!(
                endpoint = %self.shown,
                limit = self.response_max,
                "the answer is too large to be kept as a result"
            );
            return Outcome::Done(None);
        }
        match serde_json::from_str::<Box<RawValue>>(text) {
            Ok(result) => Outcome::done(&result),
            Err(_) => Outcome::Done(None),
        }
    }

    fn error(&self, answer: &Answer, text: &str) -> String {
        let mut end = text.len().min(QUOTE_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let said = if text.is_empty() {
            String::new()
        } else {
            format!(": {}", &text[..end])
        };
        let note = if answer.status.is_redirection() {
            " (redirects are not followed)"
        } else {
            ""
        };
        format!("{} answered {}{note}{said}", self.shown, answer.status)
    }
}

/// An address without user, password, query and fragment.
fn shown(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Fails only for addresses that can have none.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// An error with its causes, without the address.
fn chain(error: reqwest::Error) -> String {
    crate::say::chain(&error.without_url())
}
