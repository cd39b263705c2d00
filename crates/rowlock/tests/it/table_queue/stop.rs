//! Running until told to stop, and stopping.

use std::sync::atomic::{AtomicUsize, Ordering};

use rowlock::TableRow;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::*;

#[tokio::test]
async fn a_notification_wakes_a_run() {
    let f = Fixture::new().await;
    let (told, mut worked) = mpsc::unbounded_channel();
    let queue = items()
        .poll(Duration::from_secs(86_400))
        .listen("New_Items")
        .concurrency(2)
        .handler(move |row: TableRow<Item>| {
            told.send(row.data.note).unwrap();
            async {}
        })
        .build(&f.client)
        .await
        .unwrap();
    let stop = CancellationToken::new();
    let running = {
        let (queue, stop) = (queue.clone(), stop.clone());
        tokio::spawn(async move { queue.run(&stop).await })
    };
    // When somebody listens, the run is past its start; whatever it finds then, it finds because it was told.
    let listening = "select count(*) from pg_stat_activity where datname = current_database() and query = 'listen \"new_items\"'";
    soon(async {
        while f.number(listening).await == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for n in 1..=3 {
        f.sql("insert into work_items (note) values ('new'); notify new_items")
            .await;
        assert_eq!(soon(worked.recv()).await.unwrap(), "new", "{n}");
    }
    stop.cancel();
    assert_eq!(soon(running).await.unwrap().unwrap().done, 3);
}

#[tokio::test]
async fn stopping_lets_running_rows_end_and_begins_no_more() {
    let f = Fixture::with_items(10).await;
    let stop = CancellationToken::new();
    let gate = Arc::new(Semaphore::new(0));
    let begun = Arc::new(AtomicUsize::new(0));
    let queue = {
        let (stop, gate, begun) = (stop.clone(), gate.clone(), begun.clone());
        items()
            .at_once(3)
            .handler(move |_: TableRow<Item>| {
                let (stop, gate) = (stop.clone(), gate.clone());
                let n = begun.fetch_add(1, Ordering::SeqCst) + 1;
                async move {
                    if n == 3 {
                        stop.cancel();
                        gate.add_permits(3);
                    }
                    gate.acquire().await.unwrap().forget();
                }
            })
            .build(&f.client)
            .await
            .unwrap()
    };
    let stats = soon(queue.run(&stop)).await.unwrap();
    assert_eq!((stats.done, stats.failed), (3, 0));
    assert_eq!(begun.load(Ordering::SeqCst), 3);
    assert_eq!(f.pending().await, 7);
    // The others are free at once.
    assert_eq!(
        f.number("select count(*) from rowlock.table_batch").await,
        0
    );
    assert_eq!(
        f.number("select count(*) from rowlock.table_failure").await,
        0
    );
}

#[tokio::test]
async fn after_the_grace_what_is_done_counts_and_the_rest_is_free() {
    let f = Fixture::with_items(4).await;
    let stop = CancellationToken::new();
    let queue = {
        let stop = stop.clone();
        items()
            .grace(Duration::ZERO)
            .at_once(2)
            .handler(move |row: TableRow<Item>| {
                let stop = stop.clone();
                async move {
                    if row.data.id == 2 {
                        stop.cancel();
                        std::future::pending::<()>().await;
                    }
                }
            })
            .build(&f.client)
            .await
            .unwrap()
    };
    let stats = soon(queue.run(&stop)).await.unwrap();
    assert!(stats.done >= 1, "{stats:?}");
    assert_eq!(f.pending().await as u64, 4 - stats.done);
    assert_eq!(
        f.number("select count(*) from rowlock.table_batch").await,
        0
    );
    assert_eq!(
        f.number("select count(*) from rowlock.table_failure").await,
        0
    );
}

#[tokio::test]
async fn stopping_now_waits_for_no_grace_and_costs_no_row_anything() {
    let f = Fixture::with_items(4).await;
    let now = CancellationToken::new();
    let queue = {
        let when = now.clone();
        items()
            .grace(Duration::from_secs(86_400))
            .stop_now(now)
            .at_once(1)
            .handler(move |row: TableRow<Item>| {
                let when = when.clone();
                async move {
                    if row.data.id == 2 {
                        when.cancel();
                        std::future::pending::<()>().await;
                    }
                }
            })
            .build(&f.client)
            .await
            .unwrap()
    };
    let stats = soon(queue.run(&CancellationToken::new())).await.unwrap();
    assert_eq!(stats.done, 1, "{stats:?}");
    assert_eq!(f.pending().await, 3);
    for table in ["table_batch", "table_failure"] {
        let left = format!("select count(*) from rowlock.{table}");
        assert_eq!(f.number(&left).await, 0, "{table}");
    }
}

#[tokio::test]
async fn a_row_in_the_transaction_is_undone_after_the_grace() {
    let f = Fixture::with_items(3).await;
    let stop = CancellationToken::new();
    let queue = {
        let stop = stop.clone();
        items()
            .grace(Duration::ZERO)
            .handler_in_tx(move |row: TableRow<Item>, tx: rowlock::RowTx| {
                let stop = stop.clone();
                async move {
                    let insert = "insert into ledger (item, note) values ($1, '')";
                    tx.execute(insert, (row.data.id,)).await.unwrap();
                    if row.data.id == 2 {
                        stop.cancel();
                        std::future::pending::<()>().await;
                    }
                }
            })
            .build(&f.client)
            .await
            .unwrap()
    };
    let stats = soon(queue.run(&stop)).await.unwrap();
    assert_eq!(stats.done, 1);
    assert_eq!(f.number("select sum(item)::bigint from ledger").await, 1);
    assert_eq!(f.pending().await, 2);
}
