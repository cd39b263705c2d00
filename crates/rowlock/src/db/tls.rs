//! TLS: from `sslmode` and its files to something the driver can connect with.
//!
//! Promises: each mode checks what libpq checks. Without root certificates nothing is verified; with them the chain is
//! verified in every mode, and `verify-full` also the name. An error names the file and what is wrong with it.
//! Must not: decide whether to use TLS at all, or fall back from it; `connect` does.
//!
//! Stricter than libpq in two ways: a root certificate file that is named but missing is an error in every mode (libpq
//! would go on unverified), and names count only as subject alternative names, never as the common name.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::conninfo::{ClientCert, Roots, SslMode, TlsSettings};

/// Why TLS cannot be set up with the files at hand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file that cannot be used.
    #[error("{what} {}: {problem}", .file.display())]
    File {
        /// What the file is for.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The operating system has no root certificates.
    #[error("sslrootcert=system: {0}")]
    SystemRoots(String),
    /// Certificate and key do not fit together, or are of a kind that is not supported.
    #[error("client certificate {} with key {}: {problem}", .cert.display(), .key.display())]
    ClientCert {
        /// The certificate.
        cert: PathBuf,
        /// Its key.
        key: PathBuf,
        /// What is wrong with them.
        problem: String,
    },
    /// The TLS library refused its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Provider(String),
}

const ROOT_FILE: &str = "root certificate file";
const CERT_FILE: &str = "client certificate file";
const KEY_FILE: &str = "client key file";

/// Reads the files that the settings name. Done for every connection, so that renewed certificates are picked up.
pub(super) fn connector(settings: &TlsSettings) -> Result<MakeRustlsConnect, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier {
        trusted: trusted(&settings.roots)?,
        check_name: settings.mode == SslMode::VerifyFull,
        algorithms: provider.signature_verification_algorithms,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Provider(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match &settings.client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let (chain, key) = client_files(client)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| TlsError::ClientCert {
                    cert: client.cert.clone(),
                    key: client.key.clone(),
                    problem: error.to_string(),
                })?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

// --- Files -----------------------------------------------------------------------------------------------------------

fn trusted(roots: &Roots) -> Result<Option<Trusted>, TlsError> {
    match roots {
        Roots::None => Ok(None),
        Roots::System => system_roots().map(Some),
        Roots::File(file) => {
            let certs = read_certs(ROOT_FILE, file)?;
            let mut store = RootCertStore::empty();
            for cert in &certs {
                store
                    .add(cert.clone())
                    .map_err(|error| wrong(ROOT_FILE, file, error))?;
            }
            Ok(Some(Trusted { store, certs }))
        }
    }
}

fn system_roots() -> Result<Trusted, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    let (usable, _) = store.add_parsable_certificates(found.certs);
    if usable == 0 {
        let reason = found.errors.first().map(ToString::to_string);
        return Err(TlsError::SystemRoots(reason.unwrap_or_else(|| {
            "the operating system has no root certificates".to_owned()
        })));
    }
    Ok(Trusted {
        store,
        certs: Vec::new(),
    })
}

fn client_files(
    client: &ClientCert,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = read_certs(CERT_FILE, &client.cert)?;
    refuse_open_key(&client.key)?;
    let text = read(KEY_FILE, &client.key)?;
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let encrypted = text.windows(9).any(|window| window == b"ENCRYPTED");
        match error {
            _ if encrypted => wrong(
                KEY_FILE,
                &client.key,
                "it is encrypted, which is not supported; decrypt it",
            ),
            pem::Error::NoItemsFound => wrong(
                KEY_FILE,
                &client.key,
                "it holds no private key in PEM format",
            ),
            error => wrong(KEY_FILE, &client.key, error),
        }
    })?;
    Ok((chain, key))
}

fn read_certs(what: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(what, file)?;
    let certs = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| wrong(what, file, error))?;
    if certs.is_empty() {
        return Err(wrong(what, file, "it holds no certificate in PEM format"));
    }
    Ok(certs)
}

fn read(what: &'static str, file: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(file).map_err(|error| wrong(what, file, format_args!("cannot be read: {error}")))
}

/// As libpq: a key is for its owner, or for the group if root owns it.
#[cfg(unix)]
fn refuse_open_key(file: &Path) -> Result<(), TlsError> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(file)
        .map_err(|error| wrong(KEY_FILE, file, format_args!("cannot be read: {error}")))?;
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & forbidden != 0 {
        return Err(wrong(
            KEY_FILE,
            file,
            "it is open to group or others (chmod 0600 makes it right)",
        ));
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_open_key(_file: &Path) -> Result<(), TlsError> {
    Ok(())
}

fn wrong(what: &'static str, file: &Path, problem: impl fmt::Display) -> TlsError {
    TlsError::File {
        what,
        file: file.to_owned(),
        problem: problem.to_string(),
    }
}

// --- Verification ----------------------------------------------------------------------------------------------------

/// Checks a server's certificate as far as the mode asks for. Whatever the mode, the server must prove that it holds
/// the key of the certificate it shows.
#[derive(Debug)]
struct Verifier {
    /// `None` accepts any certificate.
    trusted: Option<Trusted>,
    check_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct Trusted {
    store: RootCertStore,
    /// The certificates of the root file themselves, to recognise a server that uses one of them as its own.
    certs: Vec<CertificateDer<'static>>,
}

impl Trusted {
    fn verify_chain(
        &self,
        server: &CertificateDer<'_>,
        parsed: &ParsedCertificate<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), rustls::Error> {
        let outcome = verify_server_cert_signed_by_trust_anchor(
            parsed,
            &self.store,
            intermediates,
            now,
            algorithms.all,
        );
        match outcome {
            // `openssl req -x509` makes self-signed certificates that are authorities as well. Such a one is fine as
            // a server's own if it is, byte for byte, what the user trusts. Its dates were checked before this.
            Err(error)
                if is_authority_as_server(&error)
                    && self.certs.contains(&server.clone().into_owned()) =>
            {
                Ok(())
            }
            outcome => outcome,
        }
    }
}

fn is_authority_as_server(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => {
            inner.to_string() == "CaUsedAsEndEntity"
        }
        _ => false,
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(trusted) = &self.trusted {
            let parsed = ParsedCertificate::try_from(end_entity)?;
            trusted.verify_chain(end_entity, &parsed, intermediates, now, &self.algorithms)?;
            if self.check_name {
                verify_server_name(&parsed, server_name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A failed handshake in words that say what to do.
pub(super) fn explain(error: &rustls::Error, settings: &TlsSettings) -> String {
    let roots = match &settings.roots {
        Roots::File(file) => file.display().to_string(),
        Roots::System | Roots::None => "the system's root certificates".to_owned(),
    };
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            format!("the server's certificate is not signed by any certificate in {roots}")
        }
        rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected,
            presented,
        }) => {
            let expected = expected.to_str();
            if presented.is_empty() {
                return format!(
                    "the server's certificate names no host (subject alternative name), so it is not for {expected}"
                );
            }
            format!(
                "the server's certificate is for {}, not for {expected}",
                presented.join(", ")
            )
        }
        rustls::Error::InvalidCertificate(CertificateError::Other(_))
            if is_authority_as_server(error) =>
        {
            format!(
                "the server's certificate is an authority's (CA:TRUE) and not itself in {roots}"
            )
        }
        rustls::Error::AlertReceived(alert) if settings.client.is_some() => {
            format!(
                "the server ended the handshake ({alert:?}); it may not accept the client certificate"
            )
        }
        rustls::Error::AlertReceived(alert) => {
            format!("the server ended the handshake ({alert:?})")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// A certificate as `openssl req -x509` makes it: its own authority.
    fn self_signed(change: fn(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["db.example".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .into()
    }

    fn verify(
        trusted: &CertificateDer<'static>,
        shown: &CertificateDer<'static>,
        name: &str,
    ) -> Result<(), String> {
        let mut store = RootCertStore::empty();
        store.add(trusted.clone()).unwrap();
        let verifier = Verifier {
            trusted: Some(Trusted {
                store,
                certs: vec![trusted.clone()],
            }),
            check_name: true,
            algorithms: ring::default_provider().signature_verification_algorithms,
        };
        let name = ServerName::try_from(name).unwrap();
        verifier
            .verify_server_cert(shown, &[], &name, &[], UnixTime::now())
            .map(|_| ())
            .map_err(|error| explain(&error, &TlsSettings::default()))
    }

    #[test]
    fn a_self_signed_certificate_is_trusted_if_it_is_the_root_itself() {
        let ours = self_signed(|_| {});
        assert_eq!(verify(&ours, &ours, "db.example"), Ok(()));
        let error = verify(&ours, &ours, "other.example").unwrap_err();
        assert!(
            error.contains("db.example") && error.contains("not for other.example"),
            "{error}"
        );
        let other = self_signed(|_| {});
        let error = verify(&ours, &other, "db.example").unwrap_err();
        assert!(error.contains("CA:TRUE"), "{error}");
    }

    #[test]
    fn a_trusted_certificate_still_has_its_dates() {
        let expired = self_signed(|params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        });
        let error = verify(&expired, &expired, "db.example").unwrap_err();
        assert!(error.contains("expired"), "{error}");
    }

    #[test]
    fn a_certificate_without_names_is_for_nobody() {
        let nameless = self_signed(|params| params.subject_alt_names.clear());
        let error = verify(&nameless, &nameless, "db.example").unwrap_err();
        assert!(error.contains("names no host"), "{error}");
    }
}
