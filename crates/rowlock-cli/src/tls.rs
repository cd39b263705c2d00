//! TLS for calls: the roots of the system, and more where a configuration names them.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// What a client trusts.
pub(crate) fn config(ca_file: Option<&Path>) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "cannot read some of the system's certificates");
    }
    roots.add_parsable_certificates(native.certs);
    if let Some(file) = ca_file {
        let doing = || format!("cannot read the certificates in {}", file.display());
        for cert in CertificateDer::pem_file_iter(file).with_context(doing)? {
            roots.add(cert.with_context(doing)?).with_context(doing)?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
