//! Behind `PgBouncer`.

use super::fake::{self, Answer};
use super::server::{PgBouncer, Postgres};
use super::*;

async fn through(bouncer: &PgBouncer, more: &str) -> Result<Connection, ConnectError> {
    let text = format!(
        "host=127.0.0.1 port={} user=postgres dbname=postgres {more}",
        bouncer.port
    );
    connect(&ConnInfo::for_test(&text), &ConnectOptions::default()).await
}

#[tokio::test]
async fn a_pooler_that_refuses_our_mark_is_recognised() {
    let server = Postgres::shared();
    let bouncer = PgBouncer::before(&server, "");
    let connection = through(&bouncer, "").await.unwrap();
    assert!(!connection.direct);
    assert!(connection.server_version_num >= 140_000);
    assert_eq!(connection.value("select 1").await, "1");
    assert!(server.connect("").await.direct);
}

#[tokio::test]
async fn a_pooler_that_swallows_our_mark_is_recognised() {
    let server = Postgres::shared();
    let bouncer = PgBouncer::before(&server, "ignore_startup_parameters = options");
    let connection = through(&bouncer, "").await.unwrap();
    assert!(!connection.direct);
}

#[tokio::test]
async fn a_poolers_own_refusals_are_told_apart() {
    let server = Postgres::shared();
    let bouncer = PgBouncer::before(
        &server,
        "max_client_conn = 1\nquery_wait_timeout = 1\nserver_connect_timeout = 1",
    );
    let error = through(&bouncer, "dbname=nowhere").await.unwrap_err();
    assert!(
        matches!(error, ConnectError::DatabaseMissing { .. }),
        "{error:?}"
    );

    let error = through(&bouncer, "dbname=lost").await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");

    let first = through(&bouncer, "").await.unwrap();
    let error = through(&bouncer, "").await.unwrap_err();
    assert!(
        matches!(error, ConnectError::TooManyConnections { .. }),
        "{error:?}"
    );
    drop(first);
}

#[tokio::test]
async fn options_of_the_user_are_not_dropped_silently() {
    let server = Postgres::shared();
    let bouncer = PgBouncer::before(&server, "");
    let error = through(&bouncer, "options='-c work_mem=1MB'")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("options"), "{error}");
}

#[tokio::test]
async fn a_proxy_that_knows_no_options_at_all_is_recognised() {
    // The words of RDS Proxy.
    let proxy = fake::serve(|startup| {
        if startup.contains("options\0") {
            return Answer::Refuse {
                code: "0A000",
                message: "RDS Proxy currently doesn't support command-line options.",
            };
        }
        Answer::Facts([None, Some("160003"), Some("f"), Some("off")])
    })
    .await;
    let info = ConnInfo::for_test(&format!(
        "host=127.0.0.1 port={proxy} user=postgres sslmode=disable"
    ));
    let connection = connect(&info, &ConnectOptions::default()).await.unwrap();
    assert!(!connection.direct);
    assert_eq!(connection.server_version_num, 160_003);
}
