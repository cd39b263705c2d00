//! What hurts the database.

use std::time::{Duration, Instant};

use rowlock_testkit::{PrivatePostgres, TestQueue};

use super::super::support::{program, rowlock, run, sql};
use super::{findings, the};

#[tokio::test]
async fn an_open_transaction_is_named_with_its_holder() {
    let queue = TestQueue::new().await.unwrap();
    let holder = queue.db().connect().await.unwrap();
    holder
        .batch_execute("set application_name = 'report'; begin isolation level repeatable read; select 42 as the_answer")
        .await
        .unwrap();
    let pid: i32 = holder
        .query_one("select pg_backend_pid()", &[])
        .await
        .unwrap()
        .get(0);

    let (code, found) = findings(&queue, "horizon", &["--pinned-after", "0s"]).await;
    assert_eq!(code, 10);
    let finding = the(&found, "open_transaction");
    let evidence = &finding["evidence"];
    assert_eq!(evidence["pid"], pid);
    assert_eq!(evidence["application"], "report");
    assert_eq!(evidence["state"], "idle in transaction");
    assert!(
        evidence["user"].is_string()
            && evidence["age_ms"].is_i64()
            && evidence["since"].is_string()
    );
    assert!(
        evidence["query"]
            .as_str()
            .unwrap()
            .contains("pg_backend_pid"),
        "{evidence}"
    );
    assert!(
        finding["advice"]
            .as_str()
            .unwrap()
            .contains(&format!("pg_terminate_backend({pid})"))
    );
    // It is young, so by default nobody is bothered.
    let (_, found) = findings(&queue, "horizon", &[]).await;
    assert!(
        found.iter().all(|f| f["code"] != "open_transaction"),
        "{found:#?}"
    );
}

#[tokio::test]
async fn ids_that_are_not_frozen_in_time_are_found() {
    let queue = TestQueue::new().await.unwrap();
    let client = queue.db().connect().await.unwrap();
    // Each takes an id and commits, and nobody freezes anything.
    client
        .batch_execute("create procedure age() language plpgsql as $$ begin for n in 1 .. 300 loop perform txid_current(); commit; end loop; end $$")
        .await
        .unwrap();
    client.batch_execute("call age()").await.unwrap();
    let (code, found) = findings(&queue, "vacuum", &["--frozen-after", "300"]).await;
    assert!(code == 10 || code == 20, "{found:#?}");
    let finding = the(&found, "wraparound");
    assert!(
        finding["evidence"]["age"].as_u64().unwrap() >= 300,
        "{finding:#}"
    );
    assert!(finding["evidence"]["database"].is_string());
    assert!(
        finding["advice"]
            .as_str()
            .unwrap()
            .contains("vacuum (freeze"),
        "{finding:#}"
    );
    let (code, found) = findings(&queue, "vacuum", &["--frozen-after", "100"]).await;
    assert_eq!(code, 20, "three times as old as it may be: {found:#?}");
    let (code, found) = findings(&queue, "vacuum", &[]).await;
    assert_eq!((code, found.len()), (0, 0), "{found:#?}");
}

#[tokio::test]
async fn a_prepared_transaction_is_named() {
    let queue = TestQueue::new().await.unwrap();
    let gid = format!("{} o'clock", queue.db().name());
    let quoted = gid.replace('\'', "''");
    sql(&queue, "create table t ()").await;
    let session = queue.db().connect().await.unwrap();
    let prepare = format!("begin; insert into t default values; prepare transaction '{quoted}'");
    session.batch_execute(&prepare).await.unwrap();
    let (_, found) = findings(&queue, "horizon", &["--pinned-after", "0s"]).await;
    // Before anything can fail: a database with a prepared transaction cannot be dropped.
    session
        .batch_execute(&format!("rollback prepared '{quoted}'"))
        .await
        .unwrap();
    let finding = the(&found, "prepared_transaction");
    assert_eq!(finding["evidence"]["gid"], gid);
    assert!(finding["advice"].as_str().unwrap().contains("o''clock"));
}

#[tokio::test]
async fn a_replication_slot_without_a_consumer_is_named() {
    let queue = TestQueue::new().await.unwrap();
    let slot = format!("doctor_{}", std::process::id());
    let session = queue.db().connect().await.unwrap();
    let make = format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')");
    session.batch_execute(&make).await.unwrap();
    let (_, found) = findings(&queue, "horizon", &[]).await;
    session
        .batch_execute(&format!("select pg_drop_replication_slot('{slot}')"))
        .await
        .unwrap();
    let finding = found
        .iter()
        .find(|f| f["evidence"]["slot"] == slot.as_str());
    let finding = finding.unwrap_or_else(|| panic!("{found:#?}"));
    assert_eq!(finding["code"], "replication_slot");
    assert_eq!(finding["evidence"]["active"], false);
}

#[tokio::test]
async fn dead_rows_and_bloat_are_measured() {
    let queue = TestQueue::new().await.unwrap();
    // Autovacuum would be quicker than the doctor at times.
    sql(
        &queue,
        "alter table rowlock.job set (autovacuum_enabled = off);
         insert into rowlock.job (queue, kind, payload)
         select 'mail', 'k', jsonb_build_object('x', repeat('y', 100)) from generate_series(1, 250000);",
    )
    .await;
    counted(&queue, "n_live_tup = 250000").await;
    let (code, found) = findings(&queue, "bloat", &[]).await;
    assert_eq!(
        (code, found.len()),
        (0, 0),
        "a full table is no bloat: {found:#?}"
    );
    sql(&queue, "delete from rowlock.job").await;
    counted(&queue, "n_live_tup = 0").await;
    let (code, found) = findings(&queue, "bloat", &[]).await;
    assert_eq!(code, 10);
    let dead = &the(&found, "dead_rows")["evidence"];
    assert_eq!(
        (&dead["dead_rows"], &dead["live_rows"]),
        (&250_000.into(), &0.into())
    );
    assert!(
        the(&found, "table_bloat")["evidence"]["table_bytes"]
            .as_u64()
            .unwrap()
            > 64 << 20
    );
    assert!(
        the(&found, "index_bloat")["evidence"]["index_bytes"]
            .as_u64()
            .unwrap()
            > 8 << 20
    );
    assert!(
        the(&found, "index_bloat")["advice"]
            .as_str()
            .unwrap()
            .contains("reindex index concurrently rowlock.job_claim")
    );
    for cure in [
        "vacuum (truncate on) rowlock.job",
        "reindex index concurrently rowlock.job_claim",
    ] {
        sql(&queue, cure).await;
    }
    counted(&queue, "n_dead_tup = 0").await;
    let (_, found) = findings(&queue, "bloat", &[]).await;
    assert!(found.is_empty(), "{found:#?}");
}

/// Waits for the server's statistics, which are up to a second behind.
async fn counted(queue: &TestQueue, wanted: &str) {
    let session = queue.db().connect().await.unwrap();
    let sql =
        format!("select {wanted} from pg_stat_user_tables where relid = 'rowlock.job'::regclass");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !session
        .query_one(&sql, &[])
        .await
        .unwrap()
        .get::<_, bool>(0)
    {
        assert!(
            Instant::now() < deadline,
            "the statistics never said {wanted}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn indexes_are_checked() {
    let queue = TestQueue::new().await.unwrap();
    sql(
        &queue,
        "insert into rowlock.job (queue, kind, payload) select 'mail', 'k', '{}' from generate_series(1, 2);
         drop index rowlock.job_claim",
    )
    .await;
    let session = queue.db().connect().await.unwrap();
    // It fails for the two jobs of one queue, and stays behind.
    session
        .batch_execute("create unique index concurrently broken on rowlock.job (queue)")
        .await
        .unwrap_err();
    session
        .batch_execute("create index tempting on rowlock.job (id) where lease_until > '-infinity'")
        .await
        .unwrap();

    let (code, found) = findings(&queue, "indexes", &[]).await;
    assert_eq!(code, 20);
    let missing = the(&found, "index_missing");
    assert_eq!(missing["evidence"]["index"], "rowlock.job_claim");
    assert_eq!(
        the(&found, "index_invalid")["evidence"]["index"],
        "rowlock.broken"
    );
    assert_eq!(
        the(&found, "index_harmful")["evidence"]["columns"],
        serde_json::json!(["lease_until"])
    );

    // The advice can be followed to the letter.
    session
        .batch_execute(missing["advice"].as_str().unwrap())
        .await
        .unwrap();
    session
        .batch_execute("drop index rowlock.broken, rowlock.tempting")
        .await
        .unwrap();
    let (code, found) = findings(&queue, "indexes", &[]).await;
    assert_eq!((code, found.len()), (0, 0), "{found:#?}");

    // As an earlier version would have it.
    session
        .batch_execute("drop index rowlock.job_claim; create index job_claim on rowlock.job (queue, priority desc, run_at, id)")
        .await
        .unwrap();
    let (code, found) = findings(&queue, "indexes", &[]).await;
    let other = the(&found, "index_other");
    assert_eq!((code, found.len()), (20, 1), "{found:#?}");
    assert!(
        other["advice"]
            .as_str()
            .unwrap()
            .starts_with("drop index concurrently rowlock.job_claim, and then: create index")
    );
}

#[tokio::test]
async fn autovacuum_off_for_a_table_and_lost_settings_are_found() {
    let queue = TestQueue::new().await.unwrap();
    sql(
        &queue,
        "alter table rowlock.job set (autovacuum_enabled = off);
         alter table rowlock.job reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)",
    )
    .await;
    let (code, found) = findings(&queue, "vacuum", &[]).await;
    assert_eq!(code, 20);
    let off = the(&found, "autovacuum_off_table");
    assert_eq!(off["evidence"]["table"], "rowlock.job");
    let lost = the(&found, "settings_lost");
    assert_eq!(
        lost["evidence"]["lost"],
        serde_json::json!([
            "autovacuum_vacuum_scale_factor = 0",
            "autovacuum_vacuum_threshold = 20000"
        ])
    );
    for finding in [off, lost] {
        sql(&queue, finding["advice"].as_str().unwrap()).await;
    }
    let (code, found) = findings(&queue, "vacuum", &[]).await;
    assert_eq!((code, found.len()), (0, 0), "{found:#?}");
}

#[tokio::test]
async fn autovacuum_off_for_the_server_is_critical() {
    let server = tokio::task::spawn_blocking(|| {
        PrivatePostgres::builder()
            .setting("autovacuum", "off")
            .fsync(false)
            .start()
    });
    let server = server.await.unwrap().unwrap();
    let url = server.url("postgres");
    run(program(&["migrate", "-d", &url])).await.expect(0);
    let ran = run(program(&["doctor", "-d", &url])).await.expect(20);
    assert!(
        ran.out
            .starts_with("critical vacuum   autovacuum is off for the whole server"),
        "{}",
        ran.out
    );
}

#[tokio::test]
async fn the_schema_may_be_missing_behind_or_ahead() {
    let queue = TestQueue::new().await.unwrap();
    let missing = rowlock(&queue, &["doctor", "--schema", "elsewhere", "--json"])
        .await
        .expect(20)
        .json();
    assert_eq!(missing["findings"][0]["code"], "schema_missing");
    assert_eq!(missing["findings"].as_array().unwrap().len(), 1);

    sql(&queue, "update rowlock.migration set functions = '0.0.1 0'").await;
    let (code, found) = findings(&queue, "schema", &[]).await;
    assert_eq!(code, 10);
    the(&found, "functions_differ");
    sql(
        &queue,
        "insert into rowlock.migration (version, name, functions) values (9999, 'future', '')",
    )
    .await;
    let (code, found) = findings(&queue, "schema", &[]).await;
    assert_eq!(code, 10);
    assert_eq!(the(&found, "schema_ahead")["evidence"]["version"], 9999);
    sql(&queue, "delete from rowlock.migration; insert into rowlock.migration (version, name, functions) values (-1, 'past', '')").await;
    let (code, found) = findings(&queue, "schema", &[]).await;
    assert_eq!(code, 20);
    the(&found, "schema_behind");
}
