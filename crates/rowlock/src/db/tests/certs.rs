//! Certificates for the tests: an authority, a server for `localhost`, a client, and strangers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// PEM files, readable by everyone but for the keys.
pub(super) struct Certs {
    pub(super) ca: PathBuf,
    /// Signed by `ca`, for the name `localhost` only.
    pub(super) server_cert: PathBuf,
    pub(super) server_key: PathBuf,
    /// Signed by `ca`, for the role `cert_user`.
    pub(super) client_cert: PathBuf,
    pub(super) client_key: PathBuf,
    /// An authority that signed nothing of the above.
    pub(super) strange_ca: PathBuf,
    /// Signed by `strange_ca`, for the role `cert_user`.
    pub(super) strange_cert: PathBuf,
    pub(super) strange_key: PathBuf,
}

impl Certs {
    pub(super) fn generate(directory: &Path) -> Self {
        fs::create_dir_all(directory).unwrap();
        let write = |name: &str, mode: u32, text: &str| {
            let file = directory.join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            file
        };
        let ours = Authority::new("Rowlock test authority");
        let strangers = Authority::new("Some other authority");
        let (server_cert, server_key) = ours.sign("server", &["localhost"]);
        let (client_cert, client_key) = ours.sign("cert_user", &[]);
        let (strange_cert, strange_key) = strangers.sign("cert_user", &[]);
        Self {
            ca: write("ca.crt", 0o644, &ours.pem),
            server_cert: write("server.crt", 0o644, &server_cert),
            server_key: write("server.key", 0o600, &server_key),
            client_cert: write("client.crt", 0o644, &client_cert),
            client_key: write("client.key", 0o600, &client_key),
            strange_ca: write("strange_ca.crt", 0o644, &strangers.pem),
            strange_cert: write("strange.crt", 0o644, &strange_cert),
            strange_key: write("strange.key", 0o600, &strange_key),
        }
    }
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    fn sign(&self, name: &str, hosts: &[&str]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let cert = named(name, hosts).signed_by(&key, &self.issuer).unwrap();
        (cert.pem(), key.serialize_pem())
    }
}

pub(super) fn named(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
