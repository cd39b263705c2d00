//! HTTP endpoints as handlers.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};

use crate::support::{Endpoint, Place, Reply};

fn handler(endpoint: &Endpoint, more: &str) -> String {
    format!(
        "[handler.k]\nurl = \"{}?token=hunter2\"\n{more}\n",
        endpoint.url
    )
}

/// Minutes until the one live job is due.
async fn due_in(place: &Place) -> f64 {
    let seconds = place
        .ask("select extract(epoch from run_at - clock_timestamp())::text from rowlock.job")
        .await;
    seconds.unwrap().parse::<f64>().unwrap() / 60.0
}

#[tokio::test]
async fn a_job_is_posted_signed_and_its_answer_kept() {
    let endpoint =
        Endpoint::start([Reply::status(200).body(r#"{"sent": 12345678901234567890}"#)]).await;
    let config = handler(
        &endpoint,
        "secret = { env = \"JOBS_SECRET\" }\nheaders = { Authorization = { file = \"DIR/token\" } }",
    );
    let place = Place::new(&config).await;
    std::fs::write(place.path("token"), "Bearer abc\n").unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let id = place
        .enqueue(&["k", r#"{"to": "x"}"#, "--tag", "t", "--trace", trace])
        .await;
    let mut command = place.rowlock(&["work", "--drain"]);
    command.env("JOBS_SECRET", "whsec_aGVsbG8=");
    let ran = crate::support::run(command).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);

    let fate = place.fate(id).await;
    assert_eq!(fate.state, "done", "{fate:?}");
    assert_eq!(
        fate.result.unwrap().to_string(),
        r#"{"sent":12345678901234567890}"#
    );
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    let body = request.json();
    assert_eq!(body["payload"], serde_json::json!({"to": "x"}));
    assert_eq!(
        (&body["id"], &body["kind"], &body["attempt"]),
        (&id.0.into(), &"k".into(), &1.into())
    );
    assert_eq!(body["tags"], serde_json::json!(["t"]));
    assert_eq!(request.header("authorization"), "Bearer abc");
    assert_eq!(request.header("traceparent"), trace);
    assert_eq!(request.header("content-type"), "application/json");

    let (webhook, time) = (
        request.header("webhook-id"),
        request.header("webhook-timestamp"),
    );
    assert_eq!(webhook, body["key"].as_str().unwrap());
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"hello").unwrap();
    mac.update(format!("{webhook}.{time}.{}", request.body).as_bytes());
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(request.header("webhook-signature"), expected);
}

#[tokio::test]
async fn an_endpoint_that_fails_for_an_hour_is_tried_again_with_backoff() {
    let endpoint = Endpoint::start([Reply::status(500).body("the database is down")]).await;
    let place = Place::new(&handler(&endpoint, "")).await;
    let id = place
        .enqueue(&[
            "k",
            "{}",
            "--backoff",
            "exponential 10m, jitter 0",
            "--max-attempts",
            "10",
        ])
        .await;
    let mut waits = Vec::new();
    for ahead in [0, 600, 1800, 4200] {
        place
            .queue
            .set_clock_ahead(Duration::from_secs(ahead))
            .await
            .unwrap();
        place.drain().await;
        let now = Duration::from_secs(ahead).as_secs_f64() / 60.0;
        waits.push((due_in(&place).await - now).round());
    }
    assert_eq!(waits, [10.0, 20.0, 40.0, 80.0]);
    let fate = place.fate(id).await;
    assert_eq!(fate.failures, 4);
    let error = fate.error.unwrap();
    assert!(
        error.ends_with("/jobs answered 500 Internal Server Error: the database is down"),
        "{error}"
    );
    assert!(!error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn retry_after_is_honoured_in_seconds_and_as_a_date() {
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(7200));
    for (status, header, minutes) in [(429, "1800".to_owned(), 30.0), (503, date, 120.0)] {
        let endpoint = Endpoint::start([Reply::status(status).header("retry-after", header)]).await;
        let place = Place::new(&handler(&endpoint, "")).await;
        let fate = place.run_job(&["k"]).await;
        assert_eq!((fate.state.as_str(), fate.failures), ("scheduled", 1));
        assert_eq!(due_in(&place).await.round(), minutes, "{status}");
    }
}

#[tokio::test]
async fn the_status_decides() {
    for (status, settings, state, failures) in [
        (204, "", "done", 0),
        (409, "", "scheduled", 1),
        (410, "", "cancelled", 0),
        (422, "", "dead", 1),
        (404, "", "scheduled", 1),
        (404, "status = { 4xx = \"dead\" }", "dead", 1),
        (409, "status = { 409 = \"done\" }", "done", 0),
        (429, "status = { 429 = \"snooze 1h\" }", "scheduled", 0),
        (
            500,
            "status = { 5xx = \"dead\", 500 = \"cancel\" }",
            "cancelled",
            0,
        ),
    ] {
        let endpoint = Endpoint::start([Reply::status(status)]).await;
        let place = Place::new(&handler(&endpoint, settings)).await;
        let fate = place.run_job(&["k"]).await;
        assert_eq!(fate.state, state, "{status} {settings}: {fate:?}");
        if state != "cancelled" {
            assert_eq!(fate.failures, failures, "{status} {settings}: {fate:?}");
        }
    }
}

#[tokio::test]
async fn the_body_can_say_the_outcome() {
    let body = r#"{"rowlock": {"outcome": "snooze", "after": "3h"}}"#;
    let endpoint = Endpoint::start([Reply::status(200).body(body)]).await;
    let place = Place::new(&handler(&endpoint, "")).await;
    let fate = place.run_job(&["k"]).await;
    assert_eq!((fate.state.as_str(), fate.failures), ("scheduled", 0));
    assert_eq!(due_in(&place).await.round(), 180.0);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let endpoint = Endpoint::start([Reply::status(307).header("location", "/elsewhere")]).await;
    let place = Place::new(&handler(&endpoint, "")).await;
    let fate = place.run_job(&["k"]).await;
    assert!(
        fate.error
            .unwrap()
            .contains("307 Temporary Redirect (redirects are not followed)")
    );
    assert_eq!(endpoint.requests().len(), 1);
}

#[tokio::test]
async fn an_endpoint_that_never_answers_times_out() {
    let endpoint = Endpoint::start([Reply::silence()]).await;
    let place = Place::new(&handler(&endpoint, "timeout = \"300ms\"")).await;
    let fate = place.run_job(&["k"]).await;
    let error = fate.error.unwrap();
    assert!(error.ends_with("did not answer within 300ms"), "{error}");
}

#[tokio::test]
async fn nobody_at_the_address_is_a_failure_with_its_reason() {
    let place = Place::new("[handler.k]\nurl = \"http://127.0.0.1:1/\"\n").await;
    let fate = place.run_job(&["k"]).await;
    let error = fate.error.unwrap();
    assert!(
        error.starts_with("cannot POST to http://127.0.0.1:1/: ")
            && error.contains("Connection refused"),
        "{error}"
    );
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_done_without_a_result() {
    let endpoint =
        Endpoint::start([Reply::status(200).body(format!("\"{}\"", "x".repeat(100_000)))]).await;
    let place = Place::new(&handler(&endpoint, "response_max = \"1KiB\"")).await;
    let fate = place.run_job(&["k"]).await;
    assert_eq!((fate.state.as_str(), fate.result), ("done", None));
}

#[tokio::test]
async fn connections_are_used_again() {
    let endpoint = Endpoint::start([Reply::status(200)]).await;
    let place = Place::new(&format!(
        "[worker]\nconcurrency = 1\n{}",
        handler(&endpoint, "")
    ))
    .await;
    for _ in 0..5 {
        place.enqueue(&["k"]).await;
    }
    place.drain().await;
    assert_eq!((endpoint.requests().len(), endpoint.connections()), (5, 1));
}

#[tokio::test]
async fn tls_is_checked_against_the_roots() {
    let (url, ca) = tls_server().await;
    let place = Place::new(&format!("[handler.k]\nurl = \"{url}\"\n")).await;
    let fate = place.run_job(&["k"]).await;
    let error = fate.error.unwrap();
    assert!(error.contains("invalid peer certificate"), "{error}");
    std::fs::write(place.path("ca.pem"), ca).unwrap();
    place.configure(&format!(
        "[handler.k]\nurl = \"{url}\"\nca_file = \"DIR/ca.pem\"\n"
    ));
    let fate = place.run_job(&["k"]).await;
    assert_eq!(fate.state, "done", "{fate:?}");
}

/// An HTTPS server with a certificate that nobody knows; its address, and the certificate.
async fn tls_server() -> (String, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cert = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(cert.signing_key.serialize_der()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "https://localhost:{}/",
        listener.local_addr().unwrap().port()
    );
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut request = vec![0; 65_536];
            let _ = stream.read(&mut request).await;
            let _ = stream
                .write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
                .await;
            let _ = stream.shutdown().await;
        }
    });
    (url, cert.cert.pem())
}
