//! Connections that are cut, processes that are killed, and rows that kill.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rowlock::{Client, RowTx, TableQueue, TableRow};
use tokio::sync::mpsc;

use super::*;

/// Who holds a batch, by the lock that each batch has.
const HOLDERS: &str = "
select l.pid from pg_locks l
 where l.locktype = 'advisory' and l.granted and l.database = (select oid from pg_database where datname = current_database())";

/// Waits until the server has noticed that the holders of all batches are gone.
async fn holders_gone(f: &Fixture) {
    // Whoever gets the lock of a batch knows that its transaction has ended.
    soon(f.pg.batch_execute(
        "select pg_advisory_lock(batch_id), pg_advisory_unlock(batch_id) from rowlock.table_batch",
    ))
    .await
    .unwrap();
}

#[tokio::test]
async fn a_connection_cut_under_a_batch_frees_its_rows_and_none_is_lost() {
    let f = Fixture::with_items(30).await;
    let seen = Seen::default();
    let (told, mut begun) = mpsc::unbounded_channel();
    let queue = {
        let seen = seen.clone();
        items()
            .batch(10)
            .handler(move |row: TableRow<Item>| {
                let times = seen.note(&row);
                let told = told.clone();
                async move {
                    if row.data.id == 5 && times == 1 {
                        told.send(()).unwrap();
                        // Until the connection is gone, and this with it.
                        std::future::pending::<()>().await;
                    }
                }
            })
            .build(&f.client)
            .await
            .unwrap()
    };
    let draining = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.drain().await })
    };
    soon(begun.recv()).await.unwrap();
    f.sql(&format!(
        "select pg_terminate_backend(pid) from ({HOLDERS}) h"
    ))
    .await;
    let stats = soon(draining).await.unwrap().unwrap();
    assert_eq!((stats.done, stats.failed, stats.batches_lost), (30, 0, 1));
    assert_eq!(f.pending().await, 0);
    // The handlers were not the reason, so nothing is held against their rows.
    assert_eq!(
        f.number("select count(*) from rowlock.table_failure").await,
        0
    );
    assert_eq!(
        f.number("select count(*) from rowlock.table_batch").await,
        0
    );
    assert_eq!(seen.times(5), 2);
}

#[tokio::test]
async fn a_row_whose_statement_ends_the_connection_is_parked_and_its_effects_are_undone() {
    let f = Fixture::with_items(20).await;
    async fn work(row: TableRow<Item>, tx: RowTx) -> rowlock::Result<()> {
        let insert = "insert into ledger (item, note) values ($1, '')";
        tx.execute(insert, (row.data.id,)).await?;
        if row.data.id == 7 {
            tx.execute("select pg_terminate_backend(pg_backend_pid())", ())
                .await?;
        }
        Ok(())
    }
    let queue = items()
        .on_failed(no_delay(5).crashes(2))
        .handler_in_tx(work)
        .build(&f.client)
        .await
        .unwrap();
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.parked, stats.batches_lost), (19, 1, 2));
    assert_eq!(f.number("select count(*) from ledger").await, 19);
    let failures = queue.failures(10).await.unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!((&*failures[0].key, failures[0].crashes), ("7", 2));
    assert!(failures[0].parked);
    assert!(
        failures[0].error.starts_with("poison"),
        "{}",
        failures[0].error
    );
}

/// Runs this test binary again as a worker: see [`child`].
fn spawn_child(f: &Fixture, role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "table_queue::crashes::child",
            "--ignored",
            "--nocapture",
        ])
        .env("ROWLOCK_TEST_CHILD_URL", f.db.url())
        .env("ROWLOCK_TEST_CHILD_ROLE", role)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn child_queue() -> TableQueueBuilder {
    items()
        .batch(50)
        .at_once(1)
        .on_failed(no_delay(5).crashes(2))
}

/// Not a test: the process that the tests below kill, or that kills itself.
#[tokio::test]
#[ignore = "run by other tests"]
async fn child() {
    let Ok(url) = std::env::var("ROWLOCK_TEST_CHILD_URL") else {
        return;
    };
    let role = std::env::var("ROWLOCK_TEST_CHILD_ROLE").unwrap();
    let client = Client::connect(&url).await.unwrap();
    let queue = child_queue()
        .handler(move |row: TableRow<Item>| {
            let role = role.clone();
            async move {
                match (&*role, row.data.id) {
                    ("hangs", 10) => {
                        println!("\nin hand");
                        std::future::pending::<()>().await;
                    }
                    ("is killed", 23) => std::process::abort(),
                    _ => {}
                }
            }
        })
        .build(&client)
        .await
        .unwrap();
    queue.drain().await.unwrap();
}

async fn good_queue(f: &Fixture, seen: &Seen) -> TableQueue {
    let seen = seen.clone();
    child_queue()
        .handler(move |row: TableRow<Item>| {
            seen.note(&row);
            async {}
        })
        .build(&f.client)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_killed_process_frees_its_rows_at_once() {
    let f = Fixture::with_items(60).await;
    let mut child = spawn_child(&f, "hangs");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let hung = tokio::task::spawn_blocking(move || lines.any(|line| line.unwrap() == "in hand"));
    assert!(soon(hung).await.unwrap(), "the child never began");
    // While it holds them, nobody else gets them.
    let seen = Seen::default();
    let queue = good_queue(&f, &seen).await;
    assert_eq!(soon(queue.drain()).await.unwrap().done, 10);
    child.kill().unwrap();
    child.wait().unwrap();
    holders_gone(&f).await;
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.failed, stats.parked), (50, 0, 0));
    assert_eq!(f.pending().await, 0);
    // One of them may have been the reason, so each was worked alone; none was, and all is forgotten.
    assert_eq!(stats.batches, 50);
    assert_eq!(
        f.number("select count(*) from rowlock.table_failure").await,
        0
    );
    assert_eq!(
        f.number("select count(*) from rowlock.table_batch").await,
        0
    );
}

#[tokio::test]
async fn a_row_that_kills_its_process_is_parked_and_the_others_are_done() {
    let f = Fixture::with_items(120).await;
    let mut deaths = 0;
    loop {
        let mut child = spawn_child(&f, "is killed");
        let ended = tokio::task::spawn_blocking(move || child.wait().unwrap());
        if soon(ended).await.unwrap().success() {
            break;
        }
        deaths += 1;
        assert!(deaths < 10, "it kills and kills");
        holders_gone(&f).await;
    }
    // Once among its neighbours, once alone.
    assert_eq!(deaths, 2);
    let done = "select count(*) from work_items where status = 'done'";
    assert_eq!(f.number(done).await, 119);
    let queue = good_queue(&f, &Seen::default()).await;
    let failures = queue.failures(10).await.unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!((&*failures[0].key, failures[0].crashes), ("23", 2));
    assert!(failures[0].parked);
}
