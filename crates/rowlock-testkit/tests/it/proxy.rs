//! Faults between a client and a real server.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use rowlock_testkit::{Direction, FaultProxy, TestDb, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::helper::{LONG, connect, try_connect, value};

/// Long enough that something which can happen would have happened.
const A_WHILE: Duration = Duration::from_millis(200);

async fn proxied() -> (TestDb, FaultProxy) {
    let db = TestDb::new().await.unwrap();
    let proxy = FaultProxy::before(db.url()).await.unwrap();
    (db, proxy)
}

async fn one(client: &Client) -> Result<i32, tokio_postgres::Error> {
    client
        .query_one("select 1", &[])
        .await
        .map(|row| row.get(0))
}

/// A server that sends back what it gets.
async fn echo_server() -> Upstream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    Upstream::Tcp(address)
}

#[tokio::test]
async fn without_a_fault_everything_passes() {
    let (_db, proxy) = proxied().await;
    let client = connect(&proxy.url()).await;
    proxy.wait_for_connections(1).await;
    let big = "select string_agg(md5(i::text), '') from generate_series(1, 50000) i";
    let text = value(&client, big).await;
    assert_eq!(text.len(), 32 * 50_000);
    assert_eq!(value(&client, &format!("select md5(({big}))")).await, {
        let direct = connect(_db.url()).await;
        value(&direct, &format!("select md5('{text}')")).await
    });
    assert!(proxy.bytes(Direction::ToClient) > 32 * 50_000);
    assert!(proxy.bytes(Direction::ToServer) > 0);
    drop(client);
    proxy.wait_for_connections(0).await;
    assert_eq!((proxy.accepted(), proxy.cuts()), (1, 0));
}

#[tokio::test]
async fn bytes_are_counted_as_they_pass_and_an_end_is_passed_on() {
    let proxy = FaultProxy::start(echo_server().await).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    proxy.wait_for_bytes(5, Direction::ToServer).await;
    proxy.wait_for_bytes(5, Direction::ToClient).await;
    client.shutdown().await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "hello");
    proxy.wait_for_connections(0).await;
    assert_eq!(
        (
            proxy.bytes(Direction::ToServer),
            proxy.bytes(Direction::ToClient)
        ),
        (5, 5)
    );
}

#[tokio::test]
async fn a_delay_holds_both_ways() {
    let (_db, proxy) = proxied().await;
    let client = connect(&proxy.url()).await;
    proxy.delay(Duration::from_millis(80)).await;
    let begin = Instant::now();
    client.simple_query("select 1").await.unwrap(); // one round trip
    assert!(
        begin.elapsed() >= Duration::from_millis(160),
        "{:?}",
        begin.elapsed()
    );

    // A change reaches what is being held back already.
    proxy.delay(Duration::from_secs(3600)).await;
    let query = client.simple_query("select 1");
    tokio::pin!(query);
    assert!(timeout(A_WHILE, &mut query).await.is_err());
    proxy.pass().await;
    timeout(LONG, query).await.unwrap().unwrap();
}

#[tokio::test]
async fn refused_is_refused_by_the_system_and_the_address_stays() {
    let (_db, proxy) = proxied().await;
    let client = connect(&proxy.url()).await;
    proxy.refuse().await;
    let error = TcpStream::connect(proxy.address()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(try_connect(&proxy.url()).await.is_err());
    assert_eq!(
        one(&client).await.unwrap(),
        1,
        "a connection that is open stays"
    );
    assert_eq!(proxy.accepted(), 1);

    proxy.refuse().await; // again: still so
    proxy.pass().await;
    assert_eq!(one(&connect(&proxy.url()).await).await.unwrap(), 1);
    proxy.wait_for_accepted(2).await;
}

#[tokio::test]
async fn hung_up_is_accepted_and_closed() {
    let (_db, proxy) = proxied().await;
    proxy.hang_up().await;
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert!(try_connect(&proxy.url()).await.is_err());
    proxy.wait_for_accepted(2).await;
    assert_eq!(proxy.connections(), 0);
    proxy.pass().await;
    connect(&proxy.url()).await;
}

#[tokio::test]
async fn dropped_connections_are_gone_and_new_ones_work() {
    let (_db, proxy) = proxied().await;
    let clients = [connect(&proxy.url()).await, connect(&proxy.url()).await];
    proxy.wait_for_connections(2).await;
    proxy.drop_connections().await;
    assert_eq!(proxy.connections(), 0);
    for client in &clients {
        assert!(one(client).await.is_err());
    }
    assert_eq!(one(&connect(&proxy.url()).await).await.unwrap(), 1);
}

#[tokio::test]
async fn a_dropped_connection_ends_for_both_sides_in_good_order() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::Tcp(listener.local_addr().unwrap().to_string());
    let proxy = FaultProxy::start(upstream).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    proxy.drop_connections().await;
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn half_open_hangs_without_an_end_and_goes_on_where_it_was() {
    let (_db, proxy) = proxied().await;
    let client = connect(&proxy.url()).await;
    assert_eq!(one(&client).await.unwrap(), 1);
    let before = (
        proxy.bytes(Direction::ToServer),
        proxy.bytes(Direction::ToClient),
    );
    proxy.half_open().await;
    {
        let query = one(&client);
        tokio::pin!(query);
        assert!(timeout(A_WHILE, &mut query).await.is_err());
        assert_eq!(
            (
                proxy.bytes(Direction::ToServer),
                proxy.bytes(Direction::ToClient)
            ),
            before
        );
        assert_eq!(proxy.connections(), 1);

        // A new client is let in, and hangs as well.
        let url = proxy.url();
        let another = try_connect(&url);
        tokio::pin!(another);
        assert!(timeout(A_WHILE, &mut another).await.is_err());
        assert_eq!(proxy.accepted(), 2);

        proxy.pass().await;
        assert_eq!(query.await.unwrap(), 1);
        assert_eq!(one(&another.await.unwrap()).await.unwrap(), 1);
    }
    proxy.half_open().await;
    proxy.drop_connections().await;
    assert!(one(&client).await.is_err());
}

#[tokio::test]
async fn a_reset_is_a_reset() {
    let proxy = FaultProxy::start(echo_server().await).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.write_all(b"x").await.unwrap();
    client.read_exact(&mut [0]).await.unwrap();
    proxy.reset().await;
    let error = client.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.connections(), 0);
}

#[tokio::test]
async fn a_server_behind_a_reset_recovers() {
    let (db, proxy) = proxied().await;
    let client = connect(&proxy.url()).await;
    client
        .batch_execute("create table t (n int)")
        .await
        .unwrap();
    client
        .batch_execute("begin; insert into t values (1)")
        .await
        .unwrap();
    proxy.reset().await;
    assert!(client.batch_execute("commit").await.is_err());
    let again = connect(&proxy.url()).await;
    // Waits for the other transaction to be gone: the table lock is its sign.
    again
        .batch_execute("begin; lock table t; commit")
        .await
        .unwrap();
    assert_eq!(value(&again, "select count(*) from t").await, "0");
    drop(db);
}

#[tokio::test]
async fn an_answer_is_truncated_after_exactly_so_many_bytes() {
    let (_db, proxy) = proxied().await;
    let client = connect(&proxy.url()).await;
    assert_eq!(one(&client).await.unwrap(), 1);
    let before = proxy.bytes(Direction::ToClient);
    proxy.truncate_after(1000, Direction::ToClient).await;
    assert!(
        client
            .simple_query("select repeat('x', 100000)")
            .await
            .is_err()
    );
    proxy.wait_for_cuts(1).await;
    proxy.wait_for_connections(0).await;
    assert_eq!(proxy.bytes(Direction::ToClient) - before, 1000);

    // It happens once.
    let next = connect(&proxy.url()).await;
    assert_eq!(
        value(&next, "select length(repeat('x', 100000))").await,
        "100000"
    );
    assert_eq!(proxy.cuts(), 1);
}

#[tokio::test]
async fn a_statement_is_cut_by_a_reset_in_the_middle() {
    let (db, proxy) = proxied().await;
    let direct = connect(db.url()).await;
    direct
        .batch_execute("create table t (text text)")
        .await
        .unwrap();
    let client = connect(&proxy.url()).await;
    let before = proxy.bytes(Direction::ToServer);
    proxy.reset_after(50, Direction::ToServer).await;
    let insert = format!("insert into t values ('{}')", "x".repeat(1000));
    assert!(client.batch_execute(&insert).await.is_err());
    proxy.wait_for_cuts(1).await;
    assert_eq!(proxy.bytes(Direction::ToServer) - before, 50);
    assert_eq!(value(&direct, "select count(*) from t").await, "0");
}

#[tokio::test]
async fn a_truncated_reader_gets_what_passed_and_then_the_end() {
    let proxy = FaultProxy::start(echo_server().await).await.unwrap();
    proxy.truncate_after(3, Direction::ToClient).await;
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "hel");

    // What was armed and has not happened is called off by `pass`.
    proxy.truncate_after(3, Direction::ToClient).await;
    proxy.pass().await;
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    client.shutdown().await.unwrap();
    text.clear();
    client.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "hello");
}

#[tokio::test]
async fn with_nothing_behind_it_the_client_is_closed() {
    let proxy = FaultProxy::start(Upstream::Unix("/nowhere/.s.PGSQL.5432".into()))
        .await
        .unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    proxy.wait_for_accepted(1).await;
    proxy.wait_for_connections(0).await;
}

#[tokio::test]
async fn dropping_the_proxy_closes_everything() {
    let proxy = FaultProxy::start(echo_server().await).await.unwrap();
    let address = proxy.address();
    let mut client = TcpStream::connect(address).await.unwrap();
    proxy.wait_for_connections(1).await;
    drop(proxy);
    assert_eq!(
        timeout(LONG, client.read(&mut [0])).await.unwrap().unwrap(),
        0
    );
    assert_eq!(
        TcpStream::connect(address).await.unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
}

#[tokio::test]
async fn a_url_without_a_host_is_refused() {
    let error = FaultProxy::before("postgresql:///db")
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("names no host"), "{error}");
}
