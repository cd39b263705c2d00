//! Asking a server on this machine.

/// The status and the body of its answer.
pub(crate) async fn get(address: &str, path: &str) -> (u16, String) {
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_backend_preconfigured(no_tls())
        .build()
        .unwrap();
    let response = client.get(format!("{address}{path}")).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

fn no_tls() -> rustls::ClientConfig {
    rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_root_certificates(rustls::RootCertStore::empty())
    .with_no_client_auth()
}

/// Waits until a worker says that it is ready: a moment after it says in its log that it has started.
pub(crate) async fn until_ready(address: &str) {
    let ready = async {
        while get(address, "/readyz").await.0 != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let ready = tokio::time::timeout(super::DEADLINE, ready).await;
    ready.expect("the worker becomes ready");
}
