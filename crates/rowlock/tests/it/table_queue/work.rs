//! Rows are worked, each once, and marked.

use rowlock::{Client, NewJob, OnDone, RowTx, TableQueue, TableRow};
use tokio::sync::Barrier;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_loops_share_the_rows_and_none_is_worked_twice() {
    let f = Fixture::with_items(1000).await;
    let seen = Seen::default();
    // Nobody gets past its first row until all four hold one: they do work side by side.
    let together = Arc::new(Barrier::new(4));
    let begun = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let queue = {
        let seen = seen.clone();
        items()
            .batch(20)
            .at_once(1)
            .concurrency(4)
            .handler(move |row: TableRow<Item>| {
                let (seen, together) = (seen.clone(), together.clone());
                let n = begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                async move {
                    if n < 4 {
                        together.wait().await;
                    }
                    seen.note(&row);
                }
            })
            .build(&f.client)
            .await
            .unwrap()
    };
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.failed, stats.batches_lost), (1000, 0, 0));
    assert_eq!(stats.batches, 50);
    assert_eq!(seen.ids().len(), 1000);
    assert!(seen.all_once());
    let done = "select count(*) from work_items where status = 'done' and done_at is not null";
    assert_eq!(f.number(done).await, 1000);
    // Nothing is left behind.
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
async fn rows_are_deleted_if_that_is_what_done_means() {
    let f = Fixture::with_items(30).await;
    let queue = TableQueue::builder("public.work_items")
        .pending("note <> 'item 7'")
        .on_done(OnDone::Delete)
        .batch(7)
        .handler(|_: TableRow<serde_json::Value>| async {})
        .build(&f.client)
        .await
        .unwrap();
    assert_eq!(soon(queue.drain()).await.unwrap().done, 29);
    assert_eq!(
        f.number("select count(*) from work_items where note = 'item 7'")
            .await,
        1
    );
    assert_eq!(f.number("select count(*) from work_items").await, 1);
}

#[tokio::test]
async fn a_drain_of_nothing_ends() {
    let f = Fixture::new().await;
    let queue = items()
        .handler(|_: TableRow<Item>| async {})
        .build(&f.client)
        .await
        .unwrap();
    assert_eq!(soon(queue.drain()).await.unwrap(), Default::default());
}

#[tokio::test]
async fn rows_begin_in_their_order() {
    let f = Fixture::with_items(50).await;
    f.sql("update work_items set created_at = now() - id * interval '1 second'")
        .await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let ids = order.clone();
    let queue = items()
        .batch(8)
        .at_once(1)
        .handler(move |row: TableRow<Item>| {
            ids.lock().unwrap().push(row.data.id);
            async {}
        })
        .build(&f.client)
        .await
        .unwrap();
    soon(queue.drain()).await.unwrap();
    let expected: Vec<i64> = (1..=50).rev().collect();
    assert_eq!(*order.lock().unwrap(), expected);
}

async fn into_ledger(row: TableRow<Item>, tx: RowTx) -> rowlock::Result<()> {
    let sql = "insert into ledger (item, note) values ($1, $2)";
    assert_eq!(tx.execute(sql, (row.data.id, &row.data.note)).await?, 1);
    Ok(())
}

#[tokio::test]
async fn effects_in_the_transaction_are_committed_with_the_mark() {
    let f = Fixture::with_items(150).await;
    let queue = items()
        .concurrency(2)
        .handler_in_tx(into_ledger)
        .build(&f.client)
        .await
        .unwrap();
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!(stats.done, 150);
    assert_eq!(f.number("select count(*) from ledger").await, 150);
}

#[tokio::test]
async fn a_handler_reads_what_it_wrote_and_enqueues_jobs() {
    let f = Fixture::with_items(2).await;
    #[derive(serde::Deserialize)]
    struct Line {
        item: i64,
        note: String,
    }
    async fn work(
        client: Client,
        row: TableRow<Item>,
        mut tx: RowTx,
    ) -> Result<(), rowlock::BoxError> {
        let sql = "insert into ledger (item, note) values ($1, coalesce($2, 'none')) returning item, note";
        let lines: Vec<Line> = tx.query(sql, (row.data.id, None::<String>)).await?;
        assert_eq!((lines[0].item, &*lines[0].note), (row.data.id, "none"));
        let job = NewJob::new("receipt", &serde_json::json!({ "item": row.data.id }))?;
        client.enqueue_new(job).in_tx(&mut tx).await?;
        if row.data.id == 2 {
            return Err("no receipt for the second".into());
        }
        Ok(())
    }
    let client = f.client.clone();
    let queue = items()
        .handler_in_tx(move |row, tx| work(client.clone(), row, tx))
        .build(&f.client)
        .await
        .unwrap();
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.failed), (1, 1));
    assert_eq!(f.number("select count(*) from ledger").await, 1);
    assert_eq!(f.number("select count(*) from rowlock.job").await, 1);
    assert_eq!(
        f.number("select (payload ->> 'item')::bigint from rowlock.job")
            .await,
        1
    );
}

#[tokio::test]
async fn a_transaction_that_outlives_its_row_is_closed() {
    let f = Fixture::with_items(2).await;
    let kept: Arc<Mutex<Option<RowTx>>> = Arc::default();
    let keep = kept.clone();
    let queue = items()
        .handler_in_tx(move |_: TableRow<Item>, tx| {
            let before = keep.lock().unwrap().replace(tx);
            async move {
                let Some(before) = before else { return };
                let late = before.execute("delete from work_items", ()).await;
                assert!(late.unwrap_err().to_string().contains("turn is over"));
            }
        })
        .build(&f.client)
        .await
        .unwrap();
    assert_eq!(soon(queue.drain()).await.unwrap().done, 2);
    drop(kept);
    assert_eq!(f.number("select count(*) from work_items").await, 2);
}

#[tokio::test]
async fn keys_of_several_columns_are_the_same_in_every_session() {
    let f = Fixture::new().await;
    f.sql(
        r#"create table reading (
             device text not null, at timestamptz not null, day date not null, kind char(3) not null, done boolean not null default false,
             primary key (device, at, day, kind));
           insert into reading
           select 'it''s "' || n, timestamptz '2024-03-31 00:30:00.123456+00' + n * interval '1 hour', '2024-03-31', 'ab'
             from generate_series(1, 5) n"#,
    )
    .await;
    #[derive(serde::Deserialize)]
    struct Reading {
        device: String,
    }
    let queue = async |session: &str, fails: &'static str| {
        let client = f.client_with(session);
        TableQueue::builder("reading")
            .pending("not done")
            .on_done(OnDone::set("done = true"))
            .handler(move |row: TableRow<Reading>| {
                let fails = row.data.device.ends_with(fails);
                async move { if fails { Err("no") } else { Ok(()) } }
            })
            .build(&client)
            .await
            .unwrap()
    };
    let tokyo = queue("-c%20TimeZone%3DAsia/Tokyo%20-c%20DateStyle%3DGerman", "3").await;
    let stats = soon(tokyo.drain()).await.unwrap();
    assert_eq!((stats.done, stats.failed), (4, 1));
    let key = tokyo.failures(10).await.unwrap().remove(0).key;
    assert_eq!(
        key,
        r#"["it's \"3", "2024-03-31T03:30:00.123456", "2024-03-31", "ab"]"#
    );
    // In another time zone it is still the row that failed, and is left alone.
    let lima = queue("-c%20TimeZone%3DAmerica/Lima", "none").await;
    assert_eq!(soon(lima.drain()).await.unwrap(), Default::default());
    assert_eq!(lima.retry(&[&key]).await.unwrap(), 1);
    assert_eq!(soon(lima.drain()).await.unwrap().done, 1);
}

#[tokio::test]
async fn odd_names_are_quoted() {
    let f = Fixture::new().await;
    f.sql(
        r#"create schema "Odd.Schema";
           create table "Odd.Schema"."Weird "" Table" ("Order" int primary key, "select" text not null, error text);
           insert into "Odd.Schema"."Weird "" Table" select n, 'x', null from generate_series(1, 3) n"#,
    )
    .await;
    #[derive(serde::Deserialize)]
    struct Odd {
        #[serde(rename = "Order")]
        order: i32,
    }
    let queue = TableQueue::builder(r#""Odd.Schema"."Weird "" Table""#)
        .key([r#""Order""#])
        .columns([r#""Order""#])
        // A column of the same name as one of our own tables'.
        .pending(r#""select" = 'x' and error is null -- a comment"#)
        .order_by(r#""Weird "" Table"."Order" desc"#)
        .on_done(OnDone::set(r#"error = 'none', "select" = 'y'"#))
        .on_failed(no_delay(1).set("error = 'failed' -- too"))
        .handler(async |row: TableRow<Odd>| match row.data.order {
            2 => Err("two"),
            _ => Ok(()),
        })
        .build(&f.client)
        .await
        .unwrap();
    assert_eq!(queue.name(), r#""Odd.Schema"."Weird "" Table""#);
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.parked), (2, 1));
    let failed = r#"select count(*) from "Odd.Schema"."Weird "" Table" where error = 'failed' and "Order" = 2"#;
    assert_eq!(f.number(failed).await, 1);
}

#[tokio::test]
async fn partitions_are_one_table() {
    let f = Fixture::new().await;
    f.sql(
        "create table event (id int, day int, done bool not null default false, primary key (day, id)) partition by range (day);
         create table event_1 partition of event for values from (1) to (2);
         create table event_2 partition of event for values from (2) to (3);
         insert into event select n, 1 + n % 2 from generate_series(1, 20) n",
    )
    .await;
    let queue = TableQueue::builder("event")
        .pending("not done")
        .on_done(OnDone::set("done = true"))
        .order_by("day, id")
        .batch(6)
        .handler(async |_: TableRow<serde_json::Value>| {})
        .build(&f.client)
        .await
        .unwrap();
    assert_eq!(soon(queue.drain()).await.unwrap().done, 20);
}

#[tokio::test]
async fn a_table_that_is_altered_is_looked_up_again() {
    let f = Fixture::with_items(1).await;
    let queue = items()
        .handler(|_: TableRow<Item>| async {})
        .build(&f.client)
        .await
        .unwrap();
    f.sql("alter table work_items drop column created_at, add column created_at timestamptz default now()")
        .await;
    assert_eq!(soon(queue.drain()).await.unwrap().done, 1);
    f.add(1).await;
    f.sql("alter table work_items drop column status").await;
    let error = soon(queue.drain()).await.unwrap_err().to_string();
    assert!(
        error.contains("pending") && error.contains("status"),
        "{error}"
    );
}

#[tokio::test]
async fn the_role_of_a_worker_is_enough() {
    let f = Fixture::with_items(3).await;
    let role = format!("worker_{}", f.db.name());
    f.sql(&format!(
        "create role {role} login; select rowlock.grant_access('{role}', 'worker'); grant select, update on work_items to {role}"
    ))
    .await;
    let client = f.client_with(&format!("-c%20role%3D{role}"));
    let queue = items()
        .handler(async |row: TableRow<Item>| match row.data.id {
            1 => Err("no"),
            _ => Ok(()),
        })
        .build(&client)
        .await
        .unwrap();
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.failed), (2, 1));
    assert_eq!(queue.retry_all().await.unwrap(), 1);
    drop((queue, client));
    f.sql(&format!("drop owned by {role}; drop role {role}"))
        .await;
}
