//! Who is let in, how the session starts, and what is said when it does not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::fake::{self, Answer};
use super::server::{Postgres, SCRAM_PASSWORD, free_port};
use super::*;

#[tokio::test]
async fn a_straight_connection_is_direct_and_reads_committed() {
    let server = Postgres::shared();
    let connection = server
        .connect("user=repeater application_name=straight")
        .await;
    assert!(connection.direct);
    assert!(connection.server_version_num >= 140_000);
    assert_eq!(
        connection.value("show default_transaction_isolation").await,
        "read committed"
    );
    assert_eq!(connection.value("show application_name").await, "straight");
    assert_eq!(connection.value("show client_encoding").await, "UTF8");
    assert!(connection.server.contains("localhost") && connection.server.contains("127.0.0.1"));
}

#[tokio::test]
async fn options_of_the_user_are_kept() {
    let server = Postgres::shared();
    let connection = server
        .connect(r"options='-c my.note=a\\\ b -c work_mem=123kB'")
        .await;
    assert_eq!(connection.value("show my.note").await, "a b");
    assert_eq!(connection.value("show work_mem").await, "123kB");
    assert!(connection.direct);
}

#[tokio::test]
async fn a_socket_works_without_encryption_whatever_sslmode_says() {
    let server = Postgres::shared();
    let text = format!(
        "host={} port={} user=postgres sslmode=require",
        server.socket_directory().display(),
        server.port
    );
    let connection = connect(&ConnInfo::for_test(&text), &ConnectOptions::default())
        .await
        .unwrap();
    assert!(connection.direct);
    assert!(!connection.is_encrypted().await);
    assert!(connection.server.contains(".s.PGSQL."));
}

#[tokio::test]
async fn the_right_password_is_let_in() {
    let server = Postgres::shared();
    let info = server.info("user=scram").with_password(SCRAM_PASSWORD);
    let connection = connect(&info, &ConnectOptions::default()).await.unwrap();
    assert_eq!(connection.value("select current_user").await, "scram");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let server = Postgres::shared();
    let error = server.refusal("user=scram password=hunter2").await;
    assert!(
        matches!(error, ConnectError::AuthenticationFailed { .. }),
        "{error:?}"
    );
    assert!(!error.is_retryable());
    assert!(!format!("{error} {error:?}").contains("hunter2"));

    let error = server.refusal("user=scram").await;
    assert!(
        matches!(error, ConnectError::AuthenticationFailed { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("none was given"), "{error}");
}

#[tokio::test]
async fn the_password_file_is_used_if_it_is_private() {
    let server = Postgres::shared();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("passfile");
    let escaped = SCRAM_PASSWORD.replace('\\', r"\\").replace(':', r"\:");
    fs::write(
        &file,
        format!(
            "# passwords\nother:*:*:*:wrong\nlocalhost:{}:*:scram:{escaped}\n",
            server.port
        ),
    )
    .unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let text = format!(
        "host=localhost hostaddr=127.0.0.1 port={} user=scram dbname=postgres sslmode=disable passfile={}",
        server.port,
        file.display()
    );
    let connection = connect(&ConnInfo::parse(&text).unwrap(), &ConnectOptions::default())
        .await
        .unwrap();
    assert_eq!(connection.value("select current_user").await, "scram");

    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let error = connect(&ConnInfo::parse(&text).unwrap(), &ConnectOptions::default())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("none was given"), "{error}");
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let server = Postgres::shared();
    let error = server.refusal("dbname=nowhere").await;
    assert!(
        matches!(&error, ConnectError::DatabaseMissing { database, .. } if database == "nowhere"),
        "{error:?}"
    );
    let error = server
        .refusal("user=scram password=x dbname=postgres")
        .await;
    assert!(
        matches!(error, ConnectError::AuthenticationFailed { .. }),
        "{error:?}"
    );
    let error = server.refusal("user=nobody").await;
    assert!(
        matches!(error, ConnectError::AuthenticationFailed { .. }),
        "{error:?}"
    );
    let error = server.refusal("user=reader dbname=private").await;
    assert!(
        matches!(error, ConnectError::PermissionDenied { .. }),
        "{error:?}"
    );
    assert!(!error.is_retryable());
    let error = server.refusal("user=limited").await;
    assert!(
        matches!(error, ConnectError::TooManyConnections { .. }),
        "{error:?}"
    );
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_bad_option_is_refused_with_its_reason() {
    let server = Postgres::shared();
    let error = server.refusal("options='-c work_mem=lots'").await;
    assert!(
        matches!(&error, ConnectError::Refused { code, .. } if code == "22023"),
        "{error:?}"
    );
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_in_time() {
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let port = silent.local_addr().unwrap().port();
    let info = ConnInfo::for_test(&format!(
        "host=127.0.0.1 port={port} user=postgres connect_timeout=1"
    ));
    let error = connect(&info, &ConnectOptions::default())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ConnectError::Timeout { after, attempts }
        if *after == Duration::from_secs(1) && attempts.len() == 1),
        "{error:?}"
    );
    assert!(error.is_retryable());
}

#[tokio::test]
async fn nobody_listening_is_unreachable() {
    let info = ConnInfo::for_test(&format!(
        "host=127.0.0.1 port={} user=postgres",
        free_port()
    ));
    let error = connect(&info, &ConnectOptions::default())
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::Unreachable { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn notifications_arrive_if_they_are_asked_for() {
    let server = Postgres::shared();
    let mut listener = connect(
        &server.info(""),
        &ConnectOptions {
            notifications: true,
        },
    )
    .await
    .unwrap();
    let mut notifications = listener.notifications.take().unwrap();
    listener.client.batch_execute("listen bell").await.unwrap();
    let ringer = server.connect("").await;
    assert!(ringer.notifications.is_none());
    ringer
        .client
        .batch_execute("notify bell, 'ding'")
        .await
        .unwrap();
    let notification = notifications.recv().await.unwrap();
    assert_eq!(
        (notification.channel.as_str(), notification.payload.as_str()),
        ("bell", "ding")
    );
}

#[tokio::test]
async fn the_end_of_a_connection_is_told_with_its_reason() {
    let server = Postgres::shared();
    let connection = server.connect("").await;
    let pid = connection.value("select pg_backend_pid()").await;
    assert!(!connection.is_closed());
    server
        .connect("")
        .await
        .value(&format!("select pg_terminate_backend({pid})"))
        .await;
    let reason = connection.closed().await;
    assert!(reason.contains("57P01"), "{reason}");
    assert!(connection.is_closed());

    let connection = server.connect("").await;
    connection.abort();
    assert_eq!(&*connection.closed().await, "it was given up");
    assert!(connection.client.simple_query("select 1").await.is_err());
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused() {
    let old = fake::serve(|_| Answer::Facts([None, Some("130014"), Some("f"), Some("off")])).await;
    let info = ConnInfo::for_test(&format!(
        "host=127.0.0.1 port={old} user=postgres sslmode=disable"
    ));
    let error = connect(&info, &ConnectOptions::default())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            ConnectError::ServerTooOld {
                version_num: 130_014,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("PostgreSQL 13.14, at least 14"),
        "{error}"
    );
    assert!(!error.is_retryable());
}
