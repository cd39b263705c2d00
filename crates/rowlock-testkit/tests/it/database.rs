//! A database for each test.

use std::sync::atomic::{AtomicU32, Ordering};

use rowlock_testkit::{PrivatePostgres, TestDb, shared};

use crate::helper::{Helper, connect, value};

async fn exists(name: &str) -> bool {
    let admin = connect(&shared().unwrap().url("postgres")).await;
    let row = admin
        .query_one(
            "select exists (select from pg_database where datname = $1)",
            &[&name],
        )
        .await
        .unwrap();
    row.get(0)
}

#[tokio::test]
async fn each_is_empty_and_its_tests_own() {
    let (one, two) = (TestDb::new().await.unwrap(), TestDb::new().await.unwrap());
    assert_ne!(one.name(), two.name());
    let client = one.connect().await.unwrap();
    assert_eq!(value(&client, "current_database()").await, one.name());
    client
        .batch_execute("create table only_here ()")
        .await
        .unwrap();
    let tables = "select count(*) from pg_tables where schemaname = 'public'";
    assert_eq!(value(&client, tables).await, "1");
    assert_eq!(value(&two.connect().await.unwrap(), tables).await, "0");
    assert_eq!(
        value(&connect(two.url()).await, "current_database()").await,
        two.name()
    );
}

#[tokio::test]
async fn the_schema_is_rowlock_unless_said_otherwise() {
    let db = TestDb::new().await.unwrap();
    assert_eq!(db.schema(), "rowlock");
    assert_eq!(db.with_schema("jobs_of_mine").schema(), "jobs_of_mine");
}

#[tokio::test]
async fn it_goes_when_dropped_also_with_open_connections() {
    let db = TestDb::new().await.unwrap();
    let name = db.name().to_owned();
    let client = db.connect().await.unwrap();
    assert!(exists(&name).await);
    drop(db);
    assert!(!exists(&name).await);
    assert!(client.query_one("select 1", &[]).await.is_err());
}

#[tokio::test]
async fn it_goes_when_the_test_panics() {
    let (told, name) = tokio::sync::oneshot::channel();
    let test = tokio::spawn(async move {
        let db = TestDb::new().await.unwrap();
        told.send(db.name().to_owned()).unwrap();
        panic!("a test that fails, as it should");
    });
    let name = name.await.unwrap();
    assert!(test.await.unwrap_err().is_panic());
    assert!(!exists(&name).await);
}

#[test]
fn it_goes_without_a_runtime_too() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let db = runtime.block_on(TestDb::new()).unwrap();
    let name = db.name().to_owned();
    drop(runtime);
    drop(db);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    assert!(!runtime.block_on(exists(&name)));
}

#[tokio::test]
async fn prepared_transactions_and_replication_slots_do_not_hold_it() {
    if shared().unwrap().socket_dir().is_none() {
        return; // ROWLOCK_TEST_DATABASE_URL is set: that server may have neither
    }
    let db = TestDb::new().await.unwrap();
    let name = db.name().to_owned();
    let client = db.connect().await.unwrap();
    // The slot first: making one waits for every transaction in progress, and a prepared one stays in progress.
    client
        .batch_execute("select pg_create_logical_replication_slot('of_' || right(current_database(), 8), 'pgoutput')")
        .await
        .unwrap();
    client
        .batch_execute("begin; create table t ()")
        .await
        .unwrap();
    client
        .batch_execute(&format!("prepare transaction 'it''s {name}'"))
        .await
        .unwrap();
    drop(client);
    db.close().await.unwrap();
    assert!(!exists(&name).await);
}

#[tokio::test]
async fn what_a_killed_test_left_is_removed_by_the_next() {
    if shared().unwrap().socket_dir().is_none() {
        return; // ROWLOCK_TEST_DATABASE_URL is set: its leftovers stay for an hour, as the next test shows
    }
    let mut killed = Helper::spawn(Helper::command("database"));
    let url = killed.told("URL ");
    let name = url
        .split(['/', '?'])
        .find(|part| part.starts_with("rowlock_test_"))
        .unwrap()
        .to_owned();
    let inside = connect(&url).await;
    inside
        .batch_execute("begin; create table t ()")
        .await
        .unwrap();
    inside
        .batch_execute(&format!("prepare transaction '{name}'"))
        .await
        .unwrap();
    killed.kill();
    assert!(exists(&name).await);

    let mut next = Helper::spawn(Helper::command("database"));
    next.told("URL ");
    assert!(!exists(&name).await);
    next.finish();
}

#[tokio::test]
async fn on_a_foreign_server_only_old_and_unused_leftovers_are_removed() {
    let postgres = PrivatePostgres::builder()
        .tcp(true)
        .fsync(false)
        .start()
        .unwrap();
    let admin = connect(&postgres.url("postgres")).await;
    let now: u64 = value(&admin, "extract(epoch from now())::bigint")
        .await
        .parse()
        .unwrap();
    let old = format!("rowlock_test_{}_1_0000000a", now - 3700);
    let young = format!("rowlock_test_{}_1_0000000b", now - 3500);
    let in_use = format!("rowlock_test_{}_1_0000000c", now - 3700);
    let foreign = "rowlock_testing".to_owned();
    for name in [&old, &young, &in_use, &foreign] {
        admin
            .batch_execute(&format!("create database {name} template template0"))
            .await
            .unwrap();
    }
    let _user = connect(&postgres.url(&in_use)).await;

    let mut command = Helper::command("database");
    command.env(
        "ROWLOCK_TEST_DATABASE_URL",
        postgres.tcp_url("postgres").unwrap(),
    );
    let mut another_test = Helper::spawn(command);
    another_test.told("URL ");
    let left = "select count(*) from pg_database where datname = ";
    assert_eq!(value(&admin, &format!("{left} '{old}'")).await, "0");
    for name in [&young, &in_use, &foreign] {
        assert_eq!(
            value(&admin, &format!("{left} '{name}'")).await,
            "1",
            "{name}"
        );
    }
    another_test.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_can_be_made_at_once() {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        tasks.spawn(async { TestDb::new().await.map(|db| db.name().to_owned()) });
    }
    let names: Result<std::collections::BTreeSet<String>, _> =
        tasks.join_all().await.into_iter().collect();
    assert_eq!(names.unwrap().len(), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_is_prepared_once_and_copied() {
    static PREPARED: AtomicU32 = AtomicU32::new(0);
    let key = format!("create table t {}", std::process::id());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let key = key.clone();
        tasks.spawn(async move {
            let prepare = |url: String| async move {
                PREPARED.fetch_add(1, Ordering::SeqCst);
                // Left open: the template is made all the same.
                let client = Box::leak(Box::new(connect(&url).await));
                client
                    .batch_execute("create table t as select 7 as n")
                    .await?;
                Ok(())
            };
            let db = TestDb::prepared(&key, prepare).await.unwrap();
            let client = db.connect().await.unwrap();
            client
                .batch_execute("update t set n = n + 1")
                .await
                .unwrap();
            value(&client, "select n from t").await
        });
    }
    let values = tasks.join_all().await;
    assert!(
        values.iter().all(|n| n == "8"),
        "each has its own copy: {values:?}"
    );
    if shared().unwrap().socket_dir().is_some() {
        assert_eq!(PREPARED.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_template_whose_preparation_failed_is_made_anew() {
    let key = format!("fails at first {}", std::process::id());
    let error = TestDb::prepared(&key, |url| async move {
        connect(&url)
            .await
            .batch_execute("create table half_done ()")
            .await?;
        Err("no such luck".into())
    });
    let error = error.await.unwrap_err().to_string();
    assert!(error.contains("no such luck"), "{error}");

    let db = TestDb::prepared(&key, |url| async move {
        Ok(connect(&url)
            .await
            .batch_execute("create table done ()")
            .await?)
    });
    let db = db.await.unwrap();
    let client = db.connect().await.unwrap();
    let tables = "select string_agg(tablename, ' ') from pg_tables where schemaname = 'public'";
    assert_eq!(value(&client, tables).await, "done");
}

#[tokio::test]
async fn an_error_tells_what_the_server_said() {
    let db = TestDb::new().await.unwrap();
    let admin = connect(&shared().unwrap().url("postgres")).await;
    admin
        .batch_execute(&format!(
            "alter database {} allow_connections false",
            db.name()
        ))
        .await
        .unwrap();
    let error = db.connect().await.map(drop).unwrap_err();
    assert!(error.is_retryable(), "somebody may open it again: {error}");
    let error = error.to_string();
    assert!(
        error.contains(db.name()) && error.contains("not currently accepting connections"),
        "{error}"
    );
}
