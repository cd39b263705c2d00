//! A row that fails: tried again, put off, parked, and never in the way of others.

use rowlock::{Fail, RowTx, TableRow};

use super::*;

#[tokio::test]
async fn a_failing_row_is_tried_later_and_then_parked_while_others_go_on() {
    let f = Fixture::with_items(20).await;
    let seen = Seen::default();
    let noted = seen.clone();
    let queue = items()
        .batch(5)
        .on_failed(
            OnFailed::park_after(3)
                .backoff(Backoff::exponential(Duration::from_secs(60)).jitter(0.0)),
        )
        .handler(move |row: TableRow<Item>| {
            let times = noted.note(&row);
            assert_eq!(row.failures as usize, times - 1);
            async move {
                match row.data.id {
                    1 => Err(format!("failure {times}")),
                    _ => Ok(()),
                }
            }
        })
        .build(&f.client)
        .await
        .unwrap();
    // The first row fails; the other nineteen, behind it, do not care.
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.failed, stats.parked), (19, 1, 0));
    // Its time has not come: a minute after the first failure, two after the second.
    f.add(1).await;
    assert_eq!(soon(queue.drain()).await.unwrap().done, 1);
    assert_eq!(seen.times(1), 1);
    f.set_clock(61).await;
    assert_eq!(soon(queue.drain()).await.unwrap().failed, 1);
    f.set_clock(61 + 119).await;
    assert_eq!(soon(queue.drain()).await.unwrap().failed, 0);
    f.set_clock(61 + 121).await;
    assert_eq!(soon(queue.drain()).await.unwrap().parked, 1);
    let failures = queue.failures(10).await.unwrap();
    assert_eq!(failures.len(), 1);
    let parked = &failures[0];
    assert_eq!((&*parked.key, parked.failures), ("1", 3));
    assert_eq!((parked.parked, parked.retry_at), (true, None));
    assert_eq!(parked.error, "failure 3");
    // It stays parked, and pending.
    f.set_clock(1_000_000).await;
    assert_eq!(soon(queue.drain()).await.unwrap(), Default::default());
    assert_eq!(f.pending().await, 1);
    // Until somebody says otherwise.
    assert_eq!(queue.retry(&["1", "no such key"]).await.unwrap(), 1);
    let stats = soon(queue_that_works(&f).await.drain()).await.unwrap();
    assert_eq!(stats.done, 1);
    assert_eq!(queue.failures(10).await.unwrap(), []);
}

async fn queue_that_works(f: &Fixture) -> rowlock::TableQueue {
    let built = items()
        .handler(async |_: TableRow<Item>| {})
        .build(&f.client);
    built.await.unwrap()
}

#[tokio::test]
async fn success_forgets_the_failures_before_it() {
    let f = Fixture::with_items(3).await;
    let seen = Seen::default();
    let queue = items()
        .on_failed(no_delay(3))
        .handler(move |row: TableRow<Item>| {
            let times = seen.note(&row);
            async move { if times < 3 { Err("not yet") } else { Ok(()) } }
        })
        .build(&f.client)
        .await
        .unwrap();
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.failed, stats.parked), (3, 6, 0));
    assert_eq!(queue.failures(10).await.unwrap(), []);
}

#[tokio::test]
async fn parking_can_set_something_and_setting_it_back_is_a_new_start() {
    let f = Fixture::with_items(2).await;
    let queue = items()
        .on_failed(no_delay(2).set("status = 'failed'"))
        .handler(async |row: TableRow<Item>| match row.data.id {
            1 => Err("no"),
            _ => Ok(()),
        })
        .build(&f.client)
        .await
        .unwrap();
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.failed, stats.parked), (1, 1, 1));
    let failed = "select count(*) from work_items where status = 'failed' and id = 1";
    assert_eq!(f.number(failed).await, 1);
    // What went wrong can still be read, but it blocks nothing.
    let failures = queue.failures(10).await.unwrap();
    assert_eq!((&*failures[0].error, failures[0].parked), ("no", false));
    f.sql("update work_items set status = 'pending' where id = 1")
        .await;
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.failed, stats.parked), (1, 1));
}

#[tokio::test]
async fn parking_that_leaves_the_row_pending_still_parks() {
    let f = Fixture::with_items(1).await;
    let queue = items()
        .on_failed(no_delay(1).set("note = 'gave up'"))
        .handler(async |_: TableRow<Item>| Err::<(), _>("no"))
        .build(&f.client)
        .await
        .unwrap();
    assert_eq!(soon(queue.drain()).await.unwrap().parked, 1);
    assert_eq!(
        f.number("select count(*) from work_items where note = 'gave up'")
            .await,
        1
    );
    assert_eq!(soon(queue.drain()).await.unwrap(), Default::default());
}

#[tokio::test]
async fn handlers_say_more_than_yes_and_no() {
    let f = Fixture::with_items(5).await;
    let queue = items()
        .timeout(Duration::from_millis(20))
        .handler(async |row: TableRow<Item>| -> Result<(), Fail> {
            match row.data.id {
                1 => Err(Fail::dead("no such address")),
                2 => Err(Fail::snooze("not today", Duration::from_secs(3600))),
                3 => Err(Fail::cancel("not wanted any more")),
                4 => panic!("oh"),
                _ => std::future::pending().await,
            }
        })
        .build(&f.client)
        .await
        .unwrap();
    let stats = soon(queue.drain()).await.unwrap();
    let counts = (stats.done, stats.failed, stats.parked, stats.snoozed);
    assert_eq!(counts, (1, 2, 1, 1));
    let mut failures = queue.failures(10).await.unwrap();
    failures.sort_by(|a, b| a.key.cmp(&b.key));
    let told: Vec<_> = failures
        .iter()
        .map(|r| (&*r.key, r.failures, r.parked, &*r.error))
        .collect();
    let expected = [
        ("1", 1, true, "no such address"),
        ("2", 0, false, "snoozed by its handler"),
        ("4", 1, false, "panicked: oh"),
        ("5", 1, false, "timed out after 20ms"),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn what_a_failed_row_did_is_undone_and_only_that() {
    let f = Fixture::with_items(6).await;
    async fn work(row: TableRow<Item>, tx: RowTx) -> rowlock::Result<()> {
        let insert = "insert into ledger (item, note) values ($1, $2)";
        tx.execute(insert, (row.data.id, "first")).await?;
        match row.data.id {
            // Fails in its own words.
            2 => Err(rowlock::Error::Setup("changed its mind".into())),
            // Fails in Postgres's words.
            3 => tx.execute(insert, (row.data.id, "again")).await.map(|_| ()),
            // Fails in Postgres's words, and does not listen.
            4 => {
                let _ = tx.execute("select 1 / 0", ()).await;
                Ok(())
            }
            // Tries what is not its business.
            5 => tx.execute("commit", ()).await.map(|_| ()),
            _ => Ok(()),
        }
    }
    let queue = items().handler_in_tx(work).build(&f.client).await.unwrap();
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.failed), (2, 4));
    assert_eq!(f.number("select sum(item)::bigint from ledger").await, 7);
    let mut failures = queue.failures(10).await.unwrap();
    failures.sort_by(|a, b| a.key.cmp(&b.key));
    for (failure, text) in failures.iter().zip([
        "changed its mind",
        "duplicate key",
        "failed, and the handler went on: current transaction is aborted",
        "is not for handlers",
    ]) {
        assert!(failure.error.contains(text), "{}", failure.error);
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_marked_does_not_repeat_the_others() {
    let f = Fixture::with_items(10).await;
    f.sql("alter table work_items add check (status <> 'done' or note <> 'item 4')")
        .await;
    let seen = Seen::default();
    let noted = seen.clone();
    let queue = items()
        .handler(move |row: TableRow<Item>| {
            noted.note(&row);
            async {}
        })
        .build(&f.client)
        .await
        .unwrap();
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.failed, stats.batches_lost), (9, 1, 0));
    assert!(seen.all_once());
    let failure = queue.failures(1).await.unwrap().remove(0);
    assert!(
        failure
            .error
            .contains("could not be marked as done: new row for relation"),
        "{}",
        failure.error
    );
}

#[tokio::test]
async fn a_row_that_cannot_be_marked_is_undone_in_the_transaction() {
    let f = Fixture::with_items(10).await;
    f.sql("alter table work_items add check (status <> 'done' or note <> 'item 4')")
        .await;
    async fn work(row: TableRow<Item>, tx: RowTx) -> rowlock::Result<u64> {
        let insert = "insert into ledger (item, note) values ($1, '')";
        tx.execute(insert, (row.data.id,)).await
    }
    let queue = items()
        .handler_in_tx(|row, tx| async { work(row, tx).await.map(|_| ()) })
        .build(&f.client)
        .await
        .unwrap();
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.failed, stats.batches_lost), (9, 1, 1));
    assert_eq!(
        f.number("select count(*) from ledger where item <> 4")
            .await,
        9
    );
    assert_eq!(f.number("select count(*) from ledger").await, 9);
    let failures = queue.failures(10).await.unwrap();
    assert_eq!(failures.len(), 1);
    assert!(
        failures[0].error.contains("could not be marked as done"),
        "{}",
        failures[0].error
    );
}

#[tokio::test]
async fn a_row_that_fails_the_commit_is_found_and_parked() {
    let f = Fixture::with_items(10).await;
    // Checked when the transaction commits, when nobody can tell any more which row it was.
    f.sql(
        "create function refuse() returns trigger language plpgsql as $$ begin
           if new.note = 'item 4' and new.status = 'done' then raise exception 'not this one'; end if; return null;
         end $$;
         create constraint trigger refuse after update on work_items deferrable initially deferred
         for each row execute function refuse()",
    )
    .await;
    let queue = items()
        .on_failed(no_delay(3))
        .handler(async |_: TableRow<Item>| {})
        .build(&f.client)
        .await
        .unwrap();
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.parked, stats.batches_lost), (9, 1, 3));
    let failures = queue.failures(10).await.unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!((&*failures[0].key, failures[0].crashes), ("4", 3));
}

#[tokio::test]
async fn a_row_that_is_too_large_is_parked() {
    let f = Fixture::with_items(3).await;
    // One that shows only when it is written as JSON, and one that is too large as it is stored.
    f.sql("update work_items set note = repeat('x', 5000) where id = 1")
        .await;
    f.sql("alter table work_items alter column note set storage external; update work_items set note = repeat('y', 100000) where id = 2")
        .await;
    let queue = items()
        .row_bytes_max(4000)
        .handler(async |_: TableRow<Item>| {})
        .build(&f.client)
        .await
        .unwrap();
    let stats = soon(queue.drain()).await.unwrap();
    assert_eq!((stats.done, stats.parked), (1, 2));
    let failures = queue.failures(10).await.unwrap();
    assert!(
        failures
            .iter()
            .all(|r| r.error.contains("more than 4000 bytes"))
    );
    // Its handler may not need what makes it large.
    queue.retry_all().await.unwrap();
    let queue = items()
        .row_bytes_max(4000)
        .columns(["id"])
        .handler(async |_: TableRow<serde_json::Value>| {})
        .build(&f.client)
        .await
        .unwrap();
    assert_eq!(soon(queue.drain()).await.unwrap().done, 2);
}

#[tokio::test]
async fn failures_of_rows_that_are_gone_are_forgotten() {
    let f = Fixture::with_items(6).await;
    let queue = items()
        .on_failed(no_delay(1))
        .handler(async |_: TableRow<Item>| Err::<(), _>("no"))
        .build(&f.client)
        .await
        .unwrap();
    assert_eq!(soon(queue.drain()).await.unwrap().parked, 6);
    f.sql("delete from work_items where id <= 2; update work_items set status = 'ignored' where id = 3")
        .await;
    soon(queue.drain()).await.unwrap();
    let mut left: Vec<String> = queue
        .failures(10)
        .await
        .unwrap()
        .into_iter()
        .map(|r| r.key)
        .collect();
    left.sort();
    assert_eq!(left, ["4", "5", "6"]);
}

#[tokio::test]
async fn done_that_stays_pending_is_refused() {
    let f = Fixture::with_items(2).await;
    for in_tx in [false, true] {
        let queue = items().on_done(OnDone::set("done_at = now()"));
        let queue = match in_tx {
            false => queue.handler(async |_: TableRow<Item>| {}),
            true => queue.handler_in_tx(async |_: TableRow<Item>, _: RowTx| {}),
        };
        let queue = queue.build(&f.client).await.unwrap();
        let error = soon(queue.drain()).await.unwrap_err().to_string();
        assert!(
            error.contains("leaves the row with key 1 pending"),
            "{error}"
        );
    }
    assert_eq!(f.pending().await, 2);
    assert_eq!(
        f.number("select count(*) from rowlock.table_batch").await,
        0
    );
}

#[tokio::test]
async fn a_failure_noted_while_a_claim_was_looking_is_heeded() {
    let f = Fixture::with_items(3).await;
    // A claim that looks at the first row waits here, with what it can see already settled.
    f.sql(
        "create function gate(id bigint) returns boolean language plpgsql as $$ begin
           if id = 1 then perform pg_advisory_xact_lock_shared(42); end if; return true;
         end $$;
         select pg_advisory_lock(42)",
    )
    .await;
    let seen = Seen::default();
    let noted = seen.clone();
    let queue = items()
        .pending("status = 'pending' and gate(id)")
        .handler(move |row: TableRow<Item>| {
            noted.note(&row);
            async {}
        })
        .build(&f.client)
        .await
        .unwrap();
    let draining = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.drain().await })
    };
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'";
    soon(async {
        while f.number(waiting).await == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    f.sql("insert into rowlock.table_failure values ('public.work_items', '1', 5, 0, 'infinity', now(), 'parked by another')")
        .await;
    f.sql("select pg_advisory_unlock(42)").await;
    assert_eq!(soon(draining).await.unwrap().unwrap().done, 2);
    assert_eq!(seen.ids(), [2, 3]);
}
