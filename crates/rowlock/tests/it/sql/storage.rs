//! How claims are stored: as HOT updates, which no index may spoil.

use super::kit::{claim, installed, is, number, one, rows, run};

/// The share of claims that were HOT updates, in percent, of this many jobs loaded by COPY.
async fn hot_share(fillfactor: u32, and_also: &str) -> i64 {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        &format!("alter table rowlock.job set (autovacuum_enabled = off, fillfactor = {fillfactor}); {and_also}"),
    )
    .await;
    let jobs = (0..20_000).map(|n| {
        rowlock::NewJob::new(
            "email",
            &serde_json::json!({"to": "somebody@example.com", "n": n}),
        )
        .expect("a job")
    });
    assert_eq!(own.client.bulk(jobs).await.expect("COPY works"), 20_000);

    // Statistics of this transaction alone, so that nobody has to wait for them to be reported.
    run(pg, "begin").await;
    for _ in 0..20 {
        assert_eq!(claim(pg, "n => 1000").await.len(), 1000, "a full claim");
    }
    let counted = one(
        pg,
        "select n_tup_hot_upd * 100 / n_tup_upd, n_tup_upd from pg_stat_xact_user_tables where relid = 'rowlock.job'::regclass",
    )
    .await;
    run(pg, "commit").await;
    let (share, updates) = counted.split_once('|').expect("two numbers");
    assert_eq!(updates, "20000", "each claim is one update");
    share.parse().expect("a number")
}

/// The table's own fillfactor.
async fn fillfactor() -> u32 {
    let own = installed().await;
    let options = one(
        &own.pg,
        "select reloptions from pg_class where oid = 'rowlock.job'::regclass",
    )
    .await;
    let (_, after) = options
        .split_once("fillfactor=")
        .expect("a fillfactor is set");
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

#[tokio::test]
async fn claims_after_copy_are_hot() {
    let share = hot_share(fillfactor().await, "").await;
    assert!(share >= 90, "{share} % of the claims were HOT updates");
}

#[tokio::test]
async fn a_full_page_leaves_no_room_for_hot_claims() {
    let share = hot_share(90, "").await;
    assert!(
        share < 60,
        "at fillfactor 90, {share} % of the claims were HOT: then the table need not waste room"
    );
}

#[tokio::test]
async fn one_index_with_the_lease_in_its_predicate_and_no_claim_is_hot() {
    let spoiler = "create index spoiler on rowlock.job (id) where lease_until = '-infinity'";
    let share = hot_share(45, spoiler).await;
    assert_eq!(
        share, 0,
        "{share} % of the claims were HOT beside an index on the lease"
    );
}

/// What a claim, a renewal, a progress report or a failure rewrites.
const LEASE: [&str; 8] = [
    "lease_until",
    "claimed_at",
    "token",
    "lease_by",
    "attempt",
    "failures",
    "crashes",
    "progress",
];

#[tokio::test]
async fn no_index_mentions_the_lease() {
    let own = installed().await;
    let indexes = rows(
        &own.pg,
        "select pg_get_indexdef(indexrelid) from pg_index where indrelid = 'rowlock.job'::regclass order by 1",
    )
    .await;
    assert_eq!(
        indexes.len(),
        3,
        "the claim index, the primary key and unique keys: {indexes:?}"
    );
    for index in &indexes {
        let (_, after_name) = index.split_once(" USING ").expect("a definition");
        for column in LEASE {
            assert!(!after_name.contains(column), "{index} mentions {column}");
        }
    }
    // The words of the definition and the catalog agree: neither columns, nor expressions, nor predicates.
    let columns = LEASE.map(|column| format!("'{column}'")).join(",");
    let mentioned = number(
        &own.pg,
        &format!(
            "select count(*) from pg_depend d join pg_index i on d.classid = 'pg_class'::regclass and d.objid = i.indexrelid \
             join pg_attribute a on d.refclassid = 'pg_class'::regclass and a.attrelid = d.refobjid and a.attnum = d.refobjsubid \
             where i.indrelid = 'rowlock.job'::regclass and a.attname in ({columns})"
        ),
    )
    .await;
    assert_eq!(
        mentioned, 0,
        "indexes of rowlock.job depend on columns of the lease"
    );
}

#[tokio::test]
async fn the_columns_of_the_lease_stand_together_and_are_never_null() {
    let own = installed().await;
    let nullable = rows(
        &own.pg,
        "select attname from pg_attribute where attrelid = 'rowlock.job'::regclass and not attnotnull \
         and attname in ('lease_until', 'claimed_at', 'token', 'lease_by', 'attempt', 'failures', 'crashes')",
    )
    .await;
    assert!(
        nullable.is_empty(),
        "a null that becomes a value changes the null bitmap: {nullable:?}"
    );
    assert!(
        is(
            &own.pg,
            "select max(attnum) - min(attnum) = 6 from pg_attribute where attrelid = 'rowlock.job'::regclass \
             and attname in ('lease_until', 'claimed_at', 'token', 'lease_by', 'attempt', 'failures', 'crashes')"
        )
        .await,
        "other columns stand between those of the lease"
    );
}

#[tokio::test]
async fn hot_tables_have_no_triggers_and_no_identity_columns() {
    let own = installed().await;
    let triggers = rows(&own.pg, "select tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid where c.relnamespace = 'rowlock'::regnamespace").await;
    assert!(triggers.is_empty(), "{triggers:?}");
    let identities = rows(
        &own.pg,
        "select attrelid::regclass, attname from pg_attribute a join pg_class c on c.oid = a.attrelid \
         where c.relnamespace = 'rowlock'::regnamespace and attidentity <> ''",
    )
    .await;
    assert!(identities.is_empty(), "{identities:?}");
}
