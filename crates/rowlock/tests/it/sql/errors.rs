//! What goes wrong before anything is done has a name and a remedy in the library.

use rowlock::{Client, ConnectError, Error, NewJob};
use rowlock_testkit::TestDb;
use serde_json::json;

use super::kit::{Installed, everything, installed, run};
use crate::support;

fn job() -> NewJob {
    NewJob::new("k", &json!({})).expect("a job")
}

/// A client that acts as another role.
async fn connect_as(own: &Installed, role: &str) -> rowlock::Result<Client> {
    Client::connect(&format!("{}&options=-c%20role%3D{role}", own.db.url())).await
}

#[tokio::test]
async fn a_database_without_the_schema() {
    let db = TestDb::new().await.expect("a database");
    let lazy = support::lazy(&db);
    for error in [
        Client::connect(db.url()).await.expect_err("not migrated"),
        lazy.check().await.expect_err("not migrated"),
        lazy.enqueue_new(job()).await.expect_err("not migrated"),
        lazy.enqueue_all([job()]).await.expect_err("not migrated"),
        lazy.bulk([job()]).await.expect_err("not migrated"),
    ] {
        assert!(
            matches!(&error, Error::NotMigrated { schema } if schema == "rowlock"),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(
            text.contains("\"rowlock\" is not in this database")
                && text.contains("rowlock migrate"),
            "{text}"
        );
        assert!(!error.is_retryable(), "{error}");
    }
    let status = lazy.migration_status().await.expect("an answer");
    assert_eq!((status.current, status.is_current()), (0, false));
    assert!(!status.pending.is_empty(), "{status:?}");
}

#[tokio::test]
async fn a_schema_that_is_newer_than_the_code() {
    let own = installed().await;
    run(&own.pg, "insert into rowlock.migration (version, name, functions) values (9999, 'from the future', '')").await;
    let before = everything(&own.pg).await;
    for error in [
        Client::connect(own.db.url()).await.expect_err("too new"),
        own.client.migrate().await.expect_err("too new"),
    ] {
        assert!(
            matches!(error, Error::SchemaTooNew { found: 9999, .. }),
            "{error:?}"
        );
        assert!(
            error.to_string().contains("is at version 9999")
                && error.to_string().contains("upgrade this program"),
            "{error}"
        );
    }
    assert_eq!(everything(&own.pg).await, before);
}

#[tokio::test]
async fn a_role_without_access() {
    let own = installed().await;
    let (stranger, reader) = (
        format!("{}_stranger", own.db.name()),
        format!("{}_reader", own.db.name()),
    );
    run(&own.pg, &format!("create role {stranger}; create role {reader}; select rowlock.grant_access('{reader}', 'reader')")).await;

    let error = connect_as(&own, &stranger)
        .await
        .expect_err("no access at all");
    assert!(matches!(error, Error::NotMigrated { .. }), "{error:?}");
    assert!(
        error.to_string().contains("or this role may not use it")
            && error.to_string().contains("grant_access"),
        "{error}"
    );

    let before = everything(&own.pg).await;
    let client = connect_as(&own, &reader)
        .await
        .expect("a reader may connect");
    for error in [
        client.enqueue_new(job()).await.expect_err("may not"),
        client.enqueue_all([job()]).await.expect_err("may not"),
        client.bulk([job()]).await.expect_err("may not"),
    ] {
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("permission denied for")
                && text.contains("grant it with `select rowlock.grant_access(...)`"),
            "{text}"
        );
        assert!(!error.is_retryable(), "{error}");
    }
    assert_eq!(everything(&own.pg).await, before);
    drop(client);
    run(
        &own.pg,
        &format!("drop owned by {stranger}, {reader}; drop role {stranger}; drop role {reader}"),
    )
    .await;
}

#[tokio::test]
async fn a_producer_needs_no_more_than_its_access() {
    let own = installed().await;
    let role = format!("{}_producer", own.db.name());
    run(
        &own.pg,
        &format!("create role {role}; select rowlock.grant_access('{role}', 'producer')"),
    )
    .await;
    let client = connect_as(&own, &role).await.expect("may connect");
    client
        .enqueue_new(job().unique("u").tag("t"))
        .await
        .expect("may enqueue");
    client
        .enqueue_all([job(), job().queue("other")])
        .await
        .expect("may enqueue");
    client
        .bulk([job(), job().queue("third")])
        .await
        .expect("may COPY");
    assert_eq!(
        super::kit::number(&own.pg, "select count(*) from rowlock.job").await,
        5
    );
    drop(client);
    run(&own.pg, &format!("drop owned by {role}; drop role {role}")).await;
}

#[tokio::test]
async fn a_read_only_database() {
    let own = installed().await;
    let before = everything(&own.pg).await;
    run(
        &own.pg,
        &format!(
            "alter database {} set default_transaction_read_only = on",
            own.db.name()
        ),
    )
    .await;
    let client = Client::connect(own.db.url())
        .await
        .expect("reading is possible");
    for error in [
        client.enqueue_new(job()).await.expect_err("read-only"),
        client
            .enqueue_all([job(), job().queue("other")])
            .await
            .expect_err("read-only"),
        client.bulk([job()]).await.expect_err("read-only"),
    ] {
        assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
        assert!(
            error.to_string().contains("the database is read-only")
                && error.to_string().contains("primary"),
            "{error}"
        );
        assert!(error.is_retryable(), "a failover may come: {error}");
    }
    run(&own.pg, "update rowlock.migration set functions = ''").await;
    let error = client.migrate().await.expect_err("read-only");
    assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
    assert_eq!(everything(&own.pg).await, before);
}

#[tokio::test]
async fn a_database_that_cannot_be_reached() {
    let error = Client::connect("postgresql:///x?host=/nonexistent&user=nobody&connect_timeout=5")
        .await
        .expect_err("nobody is there");
    assert!(
        matches!(error, Error::Connect(ConnectError::Unreachable { .. })),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("cannot reach the database")
            && error.to_string().contains("/nonexistent"),
        "{error}"
    );
    assert!(error.is_retryable(), "{error}");

    let own = installed().await;
    let gone = own
        .db
        .url()
        .replace(own.db.name(), "rowlock_no_such_database");
    let error = Client::connect(&gone).await.expect_err("no such database");
    assert!(
        matches!(error, Error::Connect(ConnectError::DatabaseMissing { .. })),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .contains("has no database \"rowlock_no_such_database\""),
        "{error}"
    );
}
