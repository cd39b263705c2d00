//! How claims commit: asynchronously, and in READ COMMITTED.

use super::kit::{claim, enqueue, ids, installed, one, refused, rows, run};

/// Notes the setting at the very end of each transaction that touches `probe`: a deferred trigger runs when it commits.
const PROBE: &str = "
create table probe (what text);
create table noted (what text, synchronous_commit text);
create function note() returns trigger language plpgsql as
  $$ begin insert into noted values (new.what, current_setting('synchronous_commit')); return null; end $$;
create constraint trigger at_commit after insert on probe deferrable initially deferred for each row execute function note();
create function set_clause() returns void language sql set synchronous_commit = off as 'select';";

#[tokio::test]
async fn synchronous_commit_is_off_up_to_the_end_of_a_claim_and_no_further() {
    let own = installed().await;
    let pg = &own.pg;
    run(pg, PROBE).await;
    enqueue(pg, 3).await;
    run(pg, "set synchronous_commit = on").await;
    for (what, call) in [
        ("a SET clause on a function", "set_clause()"),
        ("enqueue", "rowlock.enqueue('k')"),
        ("claim", "rowlock.claim(n => 1)"),
        (
            "claim_batch",
            "rowlock.claim_batch('{default}', '{1}', 1, 0, 7)",
        ),
        ("sweep", "rowlock.sweep('default', 1, 0, 7)"),
        ("arm", "rowlock.arm('{default}', 1000)"),
        ("complete", "rowlock.complete('default', '{1}', '{7}')"),
    ] {
        run(
            pg,
            &format!("begin; insert into probe values ('{what}'); select from {call}; commit"),
        )
        .await;
    }
    assert_eq!(
        rows(pg, "select what, synchronous_commit from noted").await,
        [
            "a SET clause on a function|on",
            "enqueue|on",
            "claim|off",
            "claim_batch|off",
            "sweep|off",
            "arm|off",
            "complete|on",
        ],
        "what each transaction committed with"
    );
    assert_eq!(
        one(pg, "show synchronous_commit").await,
        "on",
        "the session's setting is what it was"
    );
}

#[tokio::test]
async fn a_database_that_defaults_to_repeatable_read_fails_claims_but_not_the_library() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        &format!(
            "alter database {} set default_transaction_isolation = 'repeatable read'",
            own.db.name()
        ),
    )
    .await;
    let all = enqueue(pg, 2).await;

    // Why connections set READ COMMITTED themselves.
    let naive = own.another().await;
    run(&naive, "begin; select count(*) from rowlock.queue").await;
    assert_eq!(ids(&claim(pg, "n => 1").await), all[..1]);
    let said = refused(&naive, "select * from rowlock.claim(n => 1)").await;
    assert!(
        said.starts_with("40001 could not serialize access"),
        "{said}"
    );
    run(
        &naive,
        "rollback; set session characteristics as transaction isolation level read committed",
    )
    .await;
    assert_eq!(
        ids(&claim(&naive, "n => 1").await),
        all[1..],
        "READ COMMITTED works"
    );

    // A unique key that another transaction takes meanwhile: repeatable read would fail here.
    let client = crate::support::lazy(&own.db);
    let other = own.another().await;
    run(
        &other,
        "begin isolation level read committed; select rowlock.enqueue('k', unique_key => 'u')",
    )
    .await;
    let pending = tokio::spawn(async move {
        let job = rowlock::NewJob::new("k", &serde_json::json!({})).expect("a job");
        client.enqueue_new(job.unique("u")).await
    });
    super::kit::until(
        pg,
        &format!(
            "select exists (select from pg_stat_activity where datname = '{}' and wait_event_type = 'Lock' and query like '%enqueue_batch%')",
            own.db.name()
        ),
        "for the second enqueue to wait for the first",
    )
    .await;
    run(&other, "commit").await;
    let enqueued = pending
        .await
        .expect("no panic")
        .expect("the library sets READ COMMITTED");
    assert!(enqueued.duplicate, "the job that was there is named");
}
