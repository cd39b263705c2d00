//! A link over lost connections, restarts and refusals.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::server::{Postgres, free_port};
use super::*;
use crate::db::supervise::{Link, LinkError, LinkSpec, OnConnect};

/// Far more than anything here takes; a test that hangs fails instead.
const LIMIT: Duration = Duration::from_secs(60);

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work)
        .await
        .expect("nothing happened")
}

fn spec(info: ConnInfo, on_connect: Option<OnConnect>) -> LinkSpec {
    LinkSpec {
        name: "test",
        info,
        options: ConnectOptions {
            notifications: true,
        },
        on_connect,
    }
}

#[tokio::test]
async fn a_lost_connection_comes_back_set_up() {
    let server = Postgres::shared();
    let set_ups = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&set_ups);
    let hook: OnConnect = Arc::new(move |connection| {
        counter.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            connection
                .client
                .batch_execute("set work_mem = '321kB'")
                .await
        })
    });
    let stop = CancellationToken::new();
    let link = Link::start(spec(server.info(""), Some(hook)), &stop);

    let first = soon(link.get()).await.unwrap();
    assert_eq!(first.generation(), 1);
    let pid = first.value("select pg_backend_pid()").await;
    server
        .connect("")
        .await
        .value(&format!("select pg_terminate_backend({pid})"))
        .await;

    soon(first.closed()).await;
    let second = soon(link.get()).await.unwrap();
    assert_eq!(second.generation(), 2);
    assert_eq!(second.value("show work_mem").await, "321kB");
    assert!(first.is_closed());

    // A report about the old one changes nothing, one about the current one replaces it.
    link.report_broken(1);
    assert_eq!(soon(link.get()).await.unwrap().generation(), 2);
    assert!(!second.is_closed());
    link.report_broken(2);
    assert_eq!(soon(link.get()).await.unwrap().generation(), 3);
    assert!(second.is_closed());
    assert_eq!(set_ups.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_is_found_again() {
    let mut server = Postgres::start();
    let stop = CancellationToken::new();
    let link = Link::start(spec(server.info(""), None), &stop);
    let first = soon(link.get()).await.unwrap();
    assert!(first.direct);
    tokio::task::block_in_place(|| server.halt());
    tokio::task::block_in_place(|| server.launch());
    soon(first.closed()).await;
    let live = soon(link.get()).await.unwrap();
    assert_eq!(live.value("select 1").await, "1");
}

#[tokio::test]
async fn who_waits_for_a_connection_is_told_of_the_stop() {
    let info = ConnInfo::for_test(&format!(
        "host=127.0.0.1 port={} user=postgres",
        free_port()
    ));
    let stop = CancellationToken::new();
    let link = Link::start(spec(info, None), &stop);
    let (outcome, ()) = soon(async { tokio::join!(link.get(), async { stop.cancel() }) }).await;
    assert!(matches!(outcome, Err(LinkError::Stopped)), "{outcome:?}");
}

#[tokio::test]
async fn connections_outlive_the_stop_of_their_link() {
    let server = Postgres::shared();
    let stop = CancellationToken::new();
    let link = Link::start(spec(server.info(""), None), &stop);
    let live = soon(link.get()).await.unwrap();
    drop(link);
    assert!(!stop.is_cancelled());
    assert_eq!(live.value("select 1").await, "1");
}

#[tokio::test]
async fn a_link_that_can_never_connect_says_so() {
    let server = Postgres::shared();
    let stop = CancellationToken::new();
    let link = Link::start(spec(server.info("dbname=nowhere"), None), &stop);
    let outcome = soon(link.get()).await;
    assert!(
        matches!(&outcome, Err(LinkError::Failed(error)) if matches!(**error, ConnectError::DatabaseMissing { .. })),
        "{outcome:?}"
    );

    let hook: OnConnect = Arc::new(|c| {
        Box::pin(async move { c.client.batch_execute("select no_such_function()").await })
    });
    let link = Link::start(spec(server.info(""), Some(hook)), &stop);
    let outcome = soon(link.get()).await;
    assert!(
        matches!(&outcome, Err(LinkError::Failed(error)) if error.to_string().contains("no_such_function")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn what_worked_once_is_tried_again_whatever_is_said() {
    let server = Postgres::start();
    server.run_sql("create role brief login;");
    let stop = CancellationToken::new();
    let link = Link::start(spec(server.info("user=brief"), None), &stop);
    let live = soon(link.get()).await.unwrap();
    server.run_sql("alter role brief nologin;");
    link.report_broken(live.generation());
    // It is being refused now; nobody is told that this is final.
    let waiting = tokio::time::timeout(Duration::from_millis(300), link.get()).await;
    assert!(waiting.is_err(), "{waiting:?}");
    server.run_sql("alter role brief login;");
    assert_eq!(soon(link.get()).await.unwrap().generation(), 2);
}
