use rowlock::manage::{Access, DeadFilter, JobFilter, QueueSettings};
use rowlock::{Client, Error, JobId, NewJob};
use serde_json::json;

use super::{Bench, bench};

/// A role of this test alone; roles belong to the whole server.
async fn role(b: &Bench, what: &str) -> String {
    let name = format!("{}_{what}", b.db.name());
    b.sql(&format!("create role {name}")).await;
    name
}

/// A client that acts as a role.
async fn acting_as(b: &Bench, role: &str) -> rowlock::Result<Client> {
    let url = b.db.url();
    let sign = if url.contains('?') { '&' } else { '?' };
    Client::connect(&format!("{url}{sign}options=-c%20role%3D{role}")).await
}

async fn forget(b: &Bench, roles: &[&str]) {
    for role in roles {
        b.sql(&format!("drop owned by {role}; drop role {role}"))
            .await;
    }
}

fn denied<T>(result: rowlock::Result<T>, what: &str) {
    match result {
        Err(Error::PermissionDenied { .. }) => {}
        Err(e) => panic!("{what}: {e}"),
        Ok(_) => panic!("{what} was allowed"),
    }
}

#[tokio::test]
async fn a_reader_looks_but_does_not_touch() {
    let b = bench().await;
    let id = b.enqueue("q", "k").await;
    let role = role(&b, "reader").await;
    b.client.grant_access(&role, Access::Reader).await.unwrap();
    let reader = acting_as(&b, &role).await.unwrap();

    assert_eq!(reader.jobs(&JobFilter::new()).await.unwrap().jobs.len(), 1);
    assert!(reader.job(id).await.unwrap().is_some());
    assert!(!reader.why(id).await.unwrap().reasons.is_empty());
    assert_eq!(reader.queues().await.unwrap().len(), 1);
    assert_eq!(reader.stats().await.unwrap().len(), 1);
    assert!(reader.workers().await.unwrap().is_empty());

    denied(reader.cancel(&[id]).await, "cancel");
    denied(reader.retry(&[id]).await, "retry");
    denied(reader.delete(&[id]).await, "delete");
    denied(reader.purge("q").await, "purge");
    denied(reader.redrive(DeadFilter::all()).await, "redrive");
    denied(reader.discard(DeadFilter::all()).await, "discard");
    denied(reader.pause("q").await, "pause");
    denied(
        reader.set_queue("q", QueueSettings::new()).await,
        "set_queue",
    );
    let now = b.client.clock().await.unwrap();
    denied(reader.replay("q", now).await, "replay");
    let archive = reader.archive_to(tokio::io::sink(), now).copy_only();
    denied(archive.await, "archive");
    denied(reader.maintain().await, "maintain");
    denied(
        reader.grant_access(&role, Access::Admin).await,
        "grant_access",
    );
    let new = NewJob::new("k", &json!({})).unwrap();
    denied(reader.enqueue_new(new).await, "enqueue");
    assert_eq!(b.number("select count(*) from rowlock.job").await, 1);

    b.client.revoke_access(&role).await.unwrap();
    acting_as(&b, &role).await.expect_err("no access any more");
    drop(reader);
    forget(&b, &[&role]).await;
}

#[tokio::test]
async fn each_kind_of_access_is_enough_to_connect() {
    let b = bench().await;
    let mut roles = Vec::new();
    for access in [
        Access::Producer,
        Access::Worker,
        Access::Reader,
        Access::Admin,
    ] {
        let role = role(&b, access.as_str()).await;
        b.client.grant_access(&role, access).await.unwrap();
        b.client.grant_access(&role, access).await.unwrap();
        acting_as(&b, &role).await.unwrap();
        roles.push(role);
    }
    let producer = acting_as(&b, &roles[0]).await.unwrap();
    let new = NewJob::new("k", &json!({})).unwrap();
    let id = producer.enqueue_new(new).await.unwrap().id;
    denied(producer.jobs(&JobFilter::new()).await, "a producer's list");
    denied(producer.cancel(&[id]).await, "a producer's cancel");

    let admin = acting_as(&b, &roles[3]).await.unwrap();
    admin.cancel(&[id]).await.unwrap();
    admin.delete(&[id, JobId(404)]).await.unwrap();
    admin
        .set_queue("q", QueueSettings::new().paused(true))
        .await
        .unwrap();
    admin.redrive(DeadFilter::all()).await.unwrap();
    let now = admin.clock().await.unwrap();
    admin.archive_to(tokio::io::sink(), now).await.unwrap();
    drop((producer, admin));
    forget(&b, &roles.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_role_that_is_none() {
    let b = bench().await;
    let e = b
        .client
        .grant_access("rowlock_nobody_has_this_name", Access::Reader)
        .await
        .unwrap_err();
    assert!(e.to_string().contains("is no role of this server"), "{e}");
    let e = b.client.revoke_access("").await.unwrap_err();
    assert!(matches!(e, Error::Invalid(_)), "{e}");
}
