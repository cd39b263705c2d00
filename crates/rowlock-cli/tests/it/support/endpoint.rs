//! An HTTP server on this machine that remembers what it was asked and answers what it was told.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use axum::serve::ListenerExt;
use tokio::net::TcpListener;

/// What to answer.
#[derive(Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// Whether there is an answer at all.
    silent: bool,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Reply {
        Reply {
            status,
            headers: Vec::new(),
            body: String::new(),
            silent: false,
        }
    }

    pub(crate) fn silence() -> Reply {
        Reply {
            silent: true,
            ..Reply::status(200)
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<String>) -> Reply {
        self.body = body.into();
        self
    }
}

/// One request as it came.
pub(crate) struct Request {
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |v| v.to_str().expect("text"))
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

#[derive(Default)]
struct Inner {
    requests: Mutex<Vec<Request>>,
    /// The last one is given again and again.
    replies: Mutex<VecDeque<Reply>>,
    connections: AtomicUsize,
}

pub(crate) struct Endpoint {
    inner: Arc<Inner>,
    pub(crate) url: String,
}

impl Endpoint {
    /// A server that gives these answers in turn, and then the last of them.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Endpoint {
        let inner = Arc::new(Inner {
            replies: Mutex::new(replies.into_iter().collect()),
            ..Inner::default()
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/jobs", listener.local_addr().expect("an address"));
        let counter = inner.clone();
        let listener = listener.tap_io(move |_| {
            counter.connections.fetch_add(1, Relaxed);
        });
        let router = Router::new().fallback(answer).with_state(inner.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Endpoint { inner, url }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.inner.requests.lock().expect("no panic"))
    }

    pub(crate) fn connections(&self) -> usize {
        self.inner.connections.load(Relaxed)
    }
}

async fn answer(
    State(inner): State<Arc<Inner>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let body = String::from_utf8_lossy(&body).into_owned();
    inner
        .requests
        .lock()
        .expect("no panic")
        .push(Request { headers, body });
    let reply = {
        let mut replies = inner.replies.lock().expect("no panic");
        if replies.len() > 1 {
            replies.pop_front()
        } else {
            replies.front().cloned()
        }
    };
    let reply = reply.expect("an answer");
    if reply.silent {
        std::future::pending::<()>().await;
    }
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(reply.body.into()).expect("an answer")
}
