//! Every `sslmode` against servers with and without TLS.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::server::{Postgres, SCRAM_PASSWORD};
use super::*;

fn roots(file: &Path, mode: &str) -> String {
    format!("sslmode={mode} sslrootcert='{}'", file.display())
}

#[track_caller]
fn assert_tls_error(error: &ConnectError, text: &str) {
    assert!(matches!(error, ConnectError::Tls { .. }), "{error:?}");
    assert!(error.to_string().contains(text), "{error}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn each_mode_encrypts_as_libpq_would() {
    let server = Postgres::shared();
    for (mode, encrypted) in [
        ("disable", false),
        ("allow", false),
        ("prefer", true),
        ("require", true),
    ] {
        let connection = server.connect(&format!("sslmode={mode}")).await;
        assert_eq!(connection.is_encrypted().await, encrypted, "{mode}");
        assert!(connection.direct, "{mode}");
    }
    for mode in ["verify-ca", "verify-full"] {
        let connection = server.connect(&roots(&server.certs.ca, mode)).await;
        assert!(connection.is_encrypted().await, "{mode}");
    }
}

#[tokio::test]
async fn a_server_without_tls_suits_only_the_modes_that_do_not_insist() {
    let primary = Postgres::shared();
    let server = shared_standby(&primary);
    for mode in ["disable", "allow", "prefer"] {
        assert!(
            !server
                .connect(&format!("sslmode={mode}"))
                .await
                .is_encrypted()
                .await,
            "{mode}"
        );
    }
    assert_tls_error(
        &server.refusal("sslmode=require").await,
        "server does not support TLS",
    );
    assert_tls_error(
        &server
            .refusal(&roots(&server.certs.ca, "verify-full"))
            .await,
        "server does not support TLS",
    );
}

#[tokio::test]
async fn modes_fall_back_where_the_server_wants_the_other_kind() {
    let server = Postgres::shared();
    assert!(
        server
            .connect("user=tls_only sslmode=allow")
            .await
            .is_encrypted()
            .await
    );
    assert!(
        server
            .connect("user=tls_only sslmode=prefer")
            .await
            .is_encrypted()
            .await
    );
    assert!(
        !server
            .connect("user=plain_only sslmode=prefer")
            .await
            .is_encrypted()
            .await
    );
    for more in [
        "user=tls_only sslmode=disable",
        "user=plain_only sslmode=require",
        "user=nobody sslmode=prefer",
    ] {
        let error = server.refusal(more).await;
        assert!(
            matches!(error, ConnectError::AuthenticationFailed { .. }),
            "{more}: {error:?}"
        );
    }
}

#[tokio::test]
async fn the_name_counts_only_in_verify_full() {
    let server = Postgres::shared();
    let by_address = |mode: &str| {
        let text = format!(
            "host=127.0.0.1 port={} user=postgres {}",
            server.port,
            roots(&server.certs.ca, mode)
        );
        ConnInfo::for_test(&text)
    };
    let connection = connect(&by_address("verify-ca"), &ConnectOptions::default())
        .await
        .unwrap();
    assert!(connection.is_encrypted().await);
    let error = connect(&by_address("verify-full"), &ConnectOptions::default())
        .await
        .unwrap_err();
    assert_tls_error(&error, "localhost");
    assert_tls_error(&error, "not for 127.0.0.1");
}

#[tokio::test]
async fn a_certificate_of_a_stranger_is_refused_wherever_roots_are_known() {
    let server = Postgres::shared();
    for mode in ["require", "verify-ca", "verify-full"] {
        let error = server.refusal(&roots(&server.certs.strange_ca, mode)).await;
        assert_tls_error(&error, "not signed by any certificate in");
        assert!(error.to_string().contains("strange_ca.crt"), "{error}");
    }
    // As with libpq, prefer prefers a plain connection to one with an impostor.
    let connection = server
        .connect(&roots(&server.certs.strange_ca, "prefer"))
        .await;
    assert!(!connection.is_encrypted().await);
    // And where plain is refused, the failed check is the news.
    let error = server
        .refusal(&format!(
            "user=tls_only {}",
            roots(&server.certs.strange_ca, "prefer")
        ))
        .await;
    assert_tls_error(&error, "not signed by");
}

#[tokio::test]
async fn the_system_does_not_trust_our_test_authority() {
    let server = Postgres::shared();
    let error = server.refusal("sslrootcert=system").await;
    assert!(
        matches!(error, ConnectError::Tls { .. } | ConnectError::TlsSetup(_)),
        "{error:?}"
    );
}

#[tokio::test]
async fn client_certificates_let_in_whom_they_name() {
    let server = Postgres::shared();
    let certs = &server.certs;
    let with = |cert: &Path, key: &Path| {
        format!(
            "user=cert_user {} sslcert='{}' sslkey='{}'",
            roots(&certs.ca, "verify-full"),
            cert.display(),
            key.display()
        )
    };
    let connection = server
        .connect(&with(&certs.client_cert, &certs.client_key))
        .await;
    assert_eq!(connection.value("select current_user").await, "cert_user");

    let error = server.refusal("user=cert_user sslmode=require").await;
    assert!(
        matches!(error, ConnectError::AuthenticationFailed { .. }),
        "{error:?}"
    );
    let error = server
        .refusal(&with(&certs.strange_cert, &certs.strange_key))
        .await;
    assert_tls_error(&error, "client certificate");
    let error = server
        .refusal(&with(&certs.client_cert, &certs.strange_key))
        .await;
    assert!(matches!(error, ConnectError::TlsSetup(_)), "{error:?}");
}

#[tokio::test]
async fn channel_binding_binds_over_tls_and_only_there() {
    let server = Postgres::shared();
    let scram = |more: &str| {
        server
            .info(&format!("user=scram {more}"))
            .with_password(SCRAM_PASSWORD)
    };
    for more in [
        "channel_binding=require sslmode=require",
        "channel_binding=disable sslmode=require",
    ] {
        connect(&scram(more), &ConnectOptions::default())
            .await
            .unwrap_or_else(|error| panic!("{more}: {error}"));
    }
    let info = scram("channel_binding=require sslmode=disable");
    let error = connect(&info, &ConnectOptions::default())
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::AuthenticationFailed { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("channel binding"), "{error}");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_before_anything_is_tried() {
    let server = Postgres::shared();
    let certs = &server.certs;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, mode: u32, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let key = fs::read_to_string(&certs.client_key).unwrap();
    let open_key = file("open.key", 0o644, &key);
    let locked_key = file(
        "locked.key",
        0o600,
        &key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"),
    );
    let empty = file("empty.pem", 0o600, "");
    let garbled = file(
        "garbled.pem",
        0o600,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    let cert = certs.client_cert.display();
    for (more, expected) in [
        (
            "sslrootcert=/nowhere/ca.pem".to_owned(),
            "/nowhere/ca.pem: cannot be read",
        ),
        (
            format!("sslrootcert={empty}"),
            "empty.pem: it holds no certificate",
        ),
        (format!("sslrootcert={garbled}"), "garbled.pem: "),
        (
            format!("sslcert={cert} sslkey={open_key}"),
            "open.key: it is open to group or others",
        ),
        (
            format!("sslcert={cert} sslkey={locked_key}"),
            "locked.key: it is encrypted",
        ),
        (
            format!("sslcert={cert} sslkey={empty}"),
            "empty.pem: it holds no private key",
        ),
        (
            format!("sslcert={empty} sslkey={empty}"),
            "empty.pem: it holds no certificate",
        ),
        (
            format!("sslcert={cert} sslkey=/nowhere/key"),
            "/nowhere/key: cannot be read",
        ),
    ] {
        let error = server.refusal(&format!("sslmode=require {more}")).await;
        assert!(
            matches!(error, ConnectError::TlsSetup(_)),
            "{more}: {error:?}"
        );
        assert!(error.to_string().contains(expected), "{more}: {error}");
    }
}
