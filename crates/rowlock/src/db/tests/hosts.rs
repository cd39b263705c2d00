//! Several servers: which one is taken.

use super::fake::{self, Answer};
use super::server::{Postgres, free_port};
use super::*;

fn info(servers: &[&Postgres], more: &str) -> ConnInfo {
    let ports: Vec<_> = servers
        .iter()
        .map(|server| server.port.to_string())
        .collect();
    let hosts = vec!["127.0.0.1"; ports.len()];
    ConnInfo::for_test(&format!(
        "host={} port={} user=postgres {more}",
        hosts.join(","),
        ports.join(",")
    ))
}

async fn role_of(info: &ConnInfo) -> String {
    let connection = connect(info, &ConnectOptions::default()).await;
    let connection = connection.unwrap_or_else(|error| panic!("{info}: {error}"));
    connection
        .value("select case when pg_is_in_recovery() then 'standby' else 'primary' end")
        .await
}

#[tokio::test]
async fn a_server_that_is_down_is_passed_over() {
    let server = Postgres::shared();
    let text = format!(
        "host=127.0.0.1,localhost port={},{} user=postgres",
        free_port(),
        server.port
    );
    let connection = connect(&ConnInfo::for_test(&text), &ConnectOptions::default())
        .await
        .unwrap();
    assert!(
        connection.server.starts_with("localhost"),
        "{}",
        connection.server
    );
}

#[tokio::test]
async fn a_server_without_an_address_is_passed_over() {
    let server = Postgres::shared();
    let text = format!(
        "host=no.such.host.invalid,127.0.0.1 port={} user=postgres",
        server.port
    );
    connect(&ConnInfo::for_test(&text), &ConnectOptions::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn all_servers_down_are_all_named() {
    let (a, b) = (free_port(), free_port());
    let text =
        format!("host=127.0.0.1,127.0.0.1 port={a},{b} user=postgres load_balance_hosts=random");
    let error = connect(&ConnInfo::for_test(&text), &ConnectOptions::default())
        .await
        .unwrap_err();
    let ConnectError::Unreachable { attempts } = &error else {
        panic!("{error:?}")
    };
    let mut tried: Vec<_> = attempts
        .iter()
        .map(|attempt| attempt.server.clone())
        .collect();
    tried.sort();
    let mut expected = [format!("127.0.0.1:{a}"), format!("127.0.0.1:{b}")];
    expected.sort();
    assert_eq!(tried, expected);
}

#[tokio::test]
async fn the_rest_is_not_tried_after_a_refusal() {
    let server = Postgres::shared();
    let text = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=nobody",
        server.port,
        free_port()
    );
    let error = connect(&ConnInfo::for_test(&text), &ConnectOptions::default())
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::AuthenticationFailed { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_session_that_cannot_write_is_no_read_write_server() {
    let server = Postgres::shared();
    let error = server
        .refusal("user=reader target_session_attrs=read-write")
        .await;
    assert!(
        matches!(error, ConnectError::NoMatchingServer { .. }),
        "{error:?}"
    );
    assert!(error.is_retryable());
    assert!(
        error.to_string().contains("default_transaction_read_only"),
        "{error}"
    );
    server
        .connect("user=reader target_session_attrs=primary")
        .await;
    server
        .connect("user=reader target_session_attrs=read-only")
        .await;
    server.connect("target_session_attrs=read-write").await;
}

#[tokio::test]
async fn target_session_attrs_choose_among_primary_and_standby() {
    let primary = Postgres::shared();
    let standby = shared_standby(&primary);
    let both = [&*standby, &*primary];
    for (attrs, expected) in [
        ("any", "standby"),
        ("read-write", "primary"),
        ("primary", "primary"),
        ("standby", "standby"),
        ("read-only", "standby"),
        ("prefer-standby", "standby"),
    ] {
        let taken = role_of(&info(&both, &format!("target_session_attrs={attrs}"))).await;
        assert_eq!(taken, expected, "{attrs}");
    }
    let reversed = info(&[&primary, &standby], "target_session_attrs=prefer-standby");
    assert_eq!(role_of(&reversed).await, "standby");
    let alone = info(&[&primary], "target_session_attrs=prefer-standby");
    assert_eq!(role_of(&alone).await, "primary");

    let error = connect(
        &info(&[&standby], "target_session_attrs=read-write"),
        &ConnectOptions::default(),
    )
    .await
    .unwrap_err();
    assert!(error.to_string().contains("it is a standby"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_starting_up_is_passed_over() {
    let starting = fake::serve(|_| Answer::Refuse {
        code: "57P03",
        message: "the database system is starting up",
    })
    .await;
    let server = Postgres::shared();
    let text = format!(
        "host=127.0.0.1,127.0.0.1 port={starting},{} user=postgres sslmode=disable",
        server.port
    );
    connect(&ConnInfo::for_test(&text), &ConnectOptions::default())
        .await
        .unwrap();

    let text = format!("host=127.0.0.1 port={starting} user=postgres sslmode=disable");
    let error = connect(&ConnInfo::for_test(&text), &ConnectOptions::default())
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::Unreachable { .. }) && error.is_retryable(),
        "{error:?}"
    );
    assert!(error.to_string().contains("starting up"), "{error}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_passed_over() {
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let port = silent.local_addr().unwrap().port();
    let server = Postgres::shared();
    let text = format!(
        "host=127.0.0.1,127.0.0.1 port={port},{} user=postgres connect_timeout=1",
        server.port
    );
    connect(&ConnInfo::for_test(&text), &ConnectOptions::default())
        .await
        .unwrap();
}
