//! What a running worker serves: `/livez`, `/readyz` and `/metrics`.
//!
//! `/livez`: the process answers. `/readyz`: it works, the database answers, and it is not stopping. `/metrics`: what the library counts
//! (`recorder`) and what is read from the database (`scrape`).

mod recorder;
mod scrape;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use rowlock::Client;
use tokio::sync::Mutex;

use crate::settings::Settings;

/// How long the database may take to answer, for both sorts of question.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// For so long an answer is good enough: probes of several orchestrators do not become load.
const READY_FOR: Duration = Duration::from_secs(1);

/// How the worker is.
pub(crate) struct Health {
    metrics: Option<PrometheusHandle>,
    /// Asks on connections of its own, so that neither waits for the other's. `None`: the worker has not started.
    client: RwLock<Option<Client>>,
    draining: AtomicBool,
    checked: Mutex<Option<(Instant, Result<(), String>)>>,
    scraped: scrape::Cache,
}

impl Health {
    /// Counts from now on, if somebody is to be told.
    pub(crate) fn new(settings: &Settings) -> anyhow::Result<Arc<Self>> {
        let metrics = settings
            .http
            .address
            .map(|_| recorder::install())
            .transpose()?;
        Ok(Arc::new(Self {
            metrics,
            client: RwLock::default(),
            draining: AtomicBool::new(false),
            checked: Mutex::default(),
            scraped: scrape::Cache::default(),
        }))
    }

    /// The worker works, with this database.
    pub(crate) fn ready(&self, like: &Client) {
        let client = Client::builder()
            .schema(like.schema().as_str())
            .connections(2)
            .wait(ANSWER_WITHIN)
            .lazy(like.conninfo().clone());
        *self.client.write().unwrap_or_else(|e| e.into_inner()) = client.ok();
    }

    /// The worker stops: it should get no more traffic, as far as it has any.
    pub(crate) fn draining(&self) {
        self.draining.store(true, Relaxed);
    }

    /// Serves until the process ends.
    pub(crate) async fn serve(self: &Arc<Self>, address: SocketAddr) -> anyhow::Result<()> {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot serve on http.address {address}"))?;
        tracing::info!(address = %listener.local_addr()?, "serving health and metrics");
        let router = Router::new()
            .route("/livez", get(async || "alive\n"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self.clone());
        tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "health and metrics are no longer served");
            }
        });
        if let Some(metrics) = self.metrics.clone() {
            tokio::spawn(recorder::keep_up(metrics));
        }
        Ok(())
    }

    fn client(&self) -> Option<Client> {
        self.client
            .read()
            .unwrap_or_else(|e| e.into_inner())
            .clone()
    }

    async fn is_ready(&self) -> Result<(), String> {
        if self.draining.load(Relaxed) {
            return Err("draining".into());
        }
        let Some(client) = self.client() else {
            return Err("starting".into());
        };
        let mut checked = self.checked.lock().await;
        if let Some((at, result)) = &*checked {
            if at.elapsed() < READY_FOR {
                return result.clone();
            }
        }
        let result = match tokio::time::timeout(ANSWER_WITHIN, client.check()).await {
            Ok(answer) => answer.map_err(|e| e.to_string()),
            Err(_) => Err(format!(
                "the database did not answer within {ANSWER_WITHIN:?}"
            )),
        };
        *checked = Some((Instant::now(), result.clone()));
        result
    }
}

async fn readyz(State(health): State<Arc<Health>>) -> Response {
    match health.is_ready().await {
        Ok(()) => "ready\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn metrics(State(health): State<Arc<Health>>) -> Response {
    let counted = health
        .metrics
        .as_ref()
        .map_or_else(String::new, PrometheusHandle::render);
    let read = match health.client() {
        Some(client) => health.scraped.get(&client, ANSWER_WITHIN).await,
        None => String::new(),
    };
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (kind, format!("{counted}{read}")).into_response()
}
