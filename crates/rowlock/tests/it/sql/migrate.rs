//! Migrations: once, all or nothing, side by side.

use rowlock::{Client, ConnInfo, NewJob};
use rowlock_testkit::TestDb;
use serde_json::json;

use super::kit::{Session, installed, is, number, one, rows, run};
use crate::support;

#[tokio::test]
async fn ten_instances_that_start_together_migrate_once() {
    let db = TestDb::new().await.expect("a database");
    let starts = (0..10).map(|_| {
        let client = support::lazy(&db);
        async move { client.migrate().await }
    });
    for (n, before) in futures_util::future::join_all(starts)
        .await
        .into_iter()
        .enumerate()
    {
        let before = before.unwrap_or_else(|e| panic!("instance {n}: {e}"));
        assert!(
            before.current == 0 || before.is_current(),
            "instance {n} found a half-made schema: {before:?}"
        );
    }
    let pg = db.connect().await.expect("a connection");
    assert!(
        is(&pg, "select count(*) = max(version) from rowlock.migration").await,
        "each step was applied once"
    );
    assert_eq!(number(&pg, "select count(*) from rowlock.job").await, 0);
    let client = Client::connect(db.url()).await.expect("migrated");
    assert!(
        client
            .migration_status()
            .await
            .expect("a status")
            .is_current()
    );
    client
        .enqueue_new(NewJob::new("k", &json!({})).expect("a job"))
        .await
        .expect("it works");
}

#[tokio::test]
async fn a_second_migration_changes_nothing() {
    let own = installed().await;
    let made = "select array_agg(xmin::text order by oid) from pg_proc where pronamespace = 'rowlock'::regnamespace";
    let before = one(&own.pg, made).await;
    assert!(own.client.migrate().await.expect("migrated").is_current());
    assert_eq!(
        one(&own.pg, made).await,
        before,
        "not even the functions were made again"
    );
}

#[tokio::test]
async fn a_script_that_fails_leaves_nothing() {
    let db = TestDb::new().await.expect("a database");
    let pg = db.connect().await.expect("a connection");
    // Stands in the way of a function that comes late.
    run(&pg, "create schema rowlock; create function rowlock.maintain() returns integer language sql as 'select 1'").await;
    let error = support::lazy(&db)
        .migrate()
        .await
        .expect_err("something is in the way")
        .to_string();
    assert!(
        error.starts_with("cannot migrate the schema \"rowlock\"")
            && error.contains("cannot change return type"),
        "{error}"
    );
    let left = rows(
        &pg,
        "select relname::text from pg_class where relnamespace = 'rowlock'::regnamespace union all \
         select proname from pg_proc where pronamespace = 'rowlock'::regnamespace",
    )
    .await;
    assert_eq!(left, ["maintain"], "only what was there before");
    run(&pg, "drop function rowlock.maintain()").await;
    support::lazy(&db)
        .migrate()
        .await
        .expect("nothing is in the way any more");
}

#[tokio::test]
async fn functions_of_an_older_release_are_replaced_and_roles_get_the_new_ones() {
    let own = installed().await;
    let role = format!("{}_worker", own.db.name());
    run(
        &own.pg,
        &format!("create role {role}; select rowlock.grant_access('{role}', 'worker'); drop function rowlock.progress; update rowlock.migration set functions = '0.0.1 00'"),
    )
    .await;
    let before = own.client.migrate().await.expect("migrated");
    assert!(
        before.pending.is_empty() && !before.functions_current,
        "{before:?}"
    );
    assert!(
        is(&own.pg, &format!("select has_function_privilege('{role}', 'rowlock.progress(text,bigint,bigint,jsonb)', 'execute')")).await,
        "the role can use what the upgrade brought"
    );
    assert!(is(&own.pg, &format!("select not has_function_privilege('{role}', 'rowlock.set_queue(text,jsonb)', 'execute')")).await, "and no more");
    run(&own.pg, &format!("drop owned by {role}; drop role {role}")).await;
}

#[tokio::test]
async fn a_function_whose_arguments_have_changed_takes_the_place_of_the_old_one() {
    let own = installed().await;
    run(
        &own.pg,
        "create function rowlock.discard(queue text default null, older_than interval default null) returns bigint language sql as 'select 0::bigint';
         create function rowlock.ours(queue text) returns text language sql as 'select $1';
         update rowlock.migration set functions = '0.0.1 00'",
    )
    .await;
    own.client.migrate().await.expect("migrated");
    let count =
        "select count(*) from pg_proc where pronamespace = 'rowlock'::regnamespace and proname = ";
    assert_eq!(number(&own.pg, &format!("{count}'discard'")).await, 1);
    assert_eq!(
        number(&own.pg, &format!("{count}'ours'")).await,
        1,
        "what somebody else put there is his"
    );
    run(&own.pg, "select rowlock.discard(queue => 'mail')").await;
}

/// Where the claim index was missing, the upgrade that makes it anew failed for want of the old one.
#[tokio::test]
async fn an_upgrade_makes_a_claim_index_that_was_missing() {
    let own = installed().await;
    run(
        &own.pg,
        "drop index rowlock.job_claim; delete from rowlock.migration where version >= 8;
         drop table rowlock.milestone; drop sequence rowlock.kept_house;
         do $$ begin for n in 0 .. 31 loop execute format('drop sequence rowlock.slice_%s', n); end loop; end $$",
    )
    .await;
    own.client.migrate().await.expect("migrated");
    let made = "select pg_get_indexdef('rowlock.job_claim'::regclass) like '%hashtextextended%'";
    assert!(is(&own.pg, made).await);
}

/// What a schema is made of, as one text that can be compared.
const MADE_OF: &str = "
  select string_agg(line, e'\\n' order by line) from (
    select format('column %s.%s %s %s %s', a.attrelid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                  pg_get_expr(d.adbin, d.adrelid))
      from pg_attribute a join pg_class c on c.oid = a.attrelid and c.relkind in ('r', 'p', 'v') left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     where c.relnamespace = 'rowlock'::regnamespace and a.attnum > 0 and not a.attisdropped
    union all
    select format('%s %s %s', c.relkind, c.relname, c.reloptions) from pg_class c where c.relnamespace = 'rowlock'::regnamespace
    union all
    select 'index ' || pg_get_indexdef(i.indexrelid) from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = 'rowlock'::regnamespace
    union all
    select format('constraint %s %s', c.conrelid::regclass, pg_get_constraintdef(c.oid)) from pg_constraint c where c.connamespace = 'rowlock'::regnamespace
    union all
    select format('function %s %s', p.oid::regprocedure, pg_get_function_result(p.oid)) from pg_proc p where p.pronamespace = 'rowlock'::regnamespace
  ) made (line)";

/// The steps of tables, oldest first.
fn steps() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/sql/migrations");
    let files = std::fs::read_dir(folder).expect("the migrations");
    let mut files: Vec<_> = files.map(|f| f.expect("a file").path()).collect();
    files.sort();
    let read = |f: &std::path::PathBuf| {
        let step = std::fs::read_to_string(f).expect("a migration");
        step.replace("'@schema'", "'rowlock'")
    };
    files.iter().map(read).collect()
}

/// Whichever version somebody comes from: he ends with the schema of a new installation, and with his jobs.
#[tokio::test]
async fn every_older_version_becomes_as_a_new_one_and_keeps_its_jobs() {
    let steps = steps();
    let fresh = installed().await;
    let latest = number(&fresh.pg, "select max(version) from rowlock.migration").await;
    assert_eq!(
        latest,
        i64::try_from(steps.len()).unwrap(),
        "a step is not installed"
    );
    let wanted = one_text(&fresh.pg, MADE_OF).await;
    for older in 1..steps.len() {
        let db = TestDb::new().await.expect("a database");
        let pg = db.connect().await.expect("a connection");
        run(
            &pg,
            "create schema rowlock;
             create table rowlock.migration (version integer not null primary key, name text not null, functions text not null,
                                             applied_at timestamptz not null default clock_timestamp())",
        )
        .await;
        for (n, step) in steps.iter().take(older).enumerate() {
            run(&pg, step).await;
            run(
                &pg,
                &format!(
                    "insert into rowlock.migration values ({}, 'step', '0.0.1 00')",
                    n + 1
                ),
            )
            .await;
        }
        // Functions of those versions that are different now.
        let functions = match older {
            ..4 => {
            "create function rowlock.ring(no integer, queue text, now timestamptz) returns void language sql as '';
             create function rowlock.sweep(from_queue text, want integer, worker bigint, token bigint, lease_ms integer default null, kinds text[] default null,
                                           overdue boolean default false) returns table (id bigint, cursor_at timestamptz[]) language sql as 'select 1::bigint, null::timestamptz[]';
             create function rowlock.complete_batch(queue text, ids bigint[], tokens bigint[], tids tid[] default null, results jsonb[] default null,
                                                    ran_ms integer[] default null, out done bigint[], out lost bigint[], out busy bigint[])
               language sql as 'select ids, ids, ids'"
            }
            4 => {
            "create function rowlock.stopped_at(queue_no integer, at timestamptz, id bigint) returns boolean language sql as 'select true';
             create function rowlock.complete_batch(queue text, ids bigint[], tokens bigint[], tids tid[] default null, results jsonb[] default null,
                                                    ran_ms integer[] default null, runs integer[] default null, marks bigint[] default null,
                                                    out done bigint[], out lost bigint[], out busy bigint[])
               language sql as 'select ids, ids, ids';
             create function rowlock.finish_untouched(queue text, tokens bigint[], tids tid[], runs integer[], marks bigint[]) returns boolean
               language sql as 'select true'"
            }
            _ => "",
        };
        run(&pg, functions).await;
        run(
            &pg,
            "create view rowlock.jobs as select id, queue::text, kind::text from rowlock.job;
             create view public.mine as select kind from rowlock.jobs where queue = 'mail';
             grant select on rowlock.jobs to pg_monitor;
             insert into rowlock.queue (name) values ('mail');
             insert into rowlock.job (queue, kind, payload) select 'mail', 'k', '{}' from generate_series(1, 3)",
        )
        .await;

        let client = support::lazy(&db);
        let before = client
            .migrate()
            .await
            .unwrap_or_else(|e| panic!("from {older}: {e}"));
        assert_eq!(before.pending.len(), steps.len() - older, "from {older}");
        assert!(
            client
                .migration_status()
                .await
                .expect("a status")
                .is_current(),
            "from {older}"
        );
        let made = one_text(&pg, MADE_OF).await;
        let (made, wanted): (Vec<&str>, Vec<&str>) =
            (made.lines().collect(), wanted.lines().collect());
        let extra: Vec<_> = made.iter().filter(|l| !wanted.contains(l)).collect();
        let missing: Vec<_> = wanted.iter().filter(|l| !made.contains(l)).collect();
        assert!(
            extra.is_empty() && missing.is_empty(),
            "from {older}: too much {extra:#?}, missing {missing:#?}"
        );
        assert_eq!(
            rows(&pg, "select kind from public.mine").await,
            ["k", "k", "k"],
            "from {older}: what somebody has built on a view"
        );
        let readable = "select has_table_privilege('pg_monitor', 'rowlock.jobs', 'select')";
        assert_eq!(rows(&pg, readable).await, ["t"], "from {older}");
        assert_eq!(
            rows(&pg, "select kind from rowlock.claim('{mail}', 9)").await,
            ["k", "k", "k"],
            "from {older}"
        );
    }
}

async fn one_text(pg: &tokio_postgres::Client, sql: &str) -> String {
    let row = pg.query_one(sql, &[]).await;
    row.unwrap_or_else(|e| panic!("{e}\nin: {sql}")).get(0)
}

#[tokio::test]
async fn an_older_build_leaves_the_functions_of_a_later_release_alone() {
    let own = installed().await;
    run(
        &own.pg,
        "create or replace function rowlock.oldest_xid() returns bigint language sql volatile as 'select 42::bigint'; \
         update rowlock.migration set functions = '99.0.0 00'",
    )
    .await;
    assert!(own.client.migrate().await.expect("fine").is_current());
    assert_eq!(number(&own.pg, "select rowlock.oldest_xid()").await, 42);
    Client::connect(own.db.url())
        .await
        .expect("an older build goes on working beside it");
}

#[tokio::test]
async fn two_schemas_in_one_database_do_not_hear_of_each_other() {
    let own = installed().await;
    let pg = &own.pg;
    let info = ConnInfo::parse(own.db.url()).expect("a good url");
    let tenant = Client::builder()
        .schema("tenant_7")
        .lazy(info)
        .expect("a good name");
    tenant.migrate().await.expect("migrated beside the other");
    tenant.check().await.expect("it is there");

    let mut ear = Session::open(own.db.url()).await;
    run(&ear.pg, "listen rowlock; listen tenant_7").await;
    run(pg, "select rowlock.ensure_queue('default'), tenant_7.ensure_queue('default'), rowlock.arm('{default}', 60000)").await;
    ear.heard_so_far("rowlock").await;
    tenant
        .enqueue_new(NewJob::new("theirs", &json!({})).expect("a job"))
        .await
        .expect("enqueued");
    assert_eq!(
        ear.heard_so_far("rowlock").await,
        [""; 0],
        "the bell of the one is not the bell of the other"
    );
    own.client
        .enqueue_new(NewJob::new("ours", &json!({})).expect("a job"))
        .await
        .expect("enqueued");
    assert_eq!(ear.heard_so_far("rowlock").await, ["ring default"]);
    run(pg, "select tenant_7.arm('{default}', 60000)").await;
    run(pg, "select tenant_7.enqueue('theirs')").await;
    assert_eq!(
        ear.heard().await,
        ("tenant_7".to_owned(), "ring default".to_owned())
    );

    assert_eq!(
        rows(pg, "select kind from rowlock.claim(n => 10)").await,
        ["ours"]
    );
    let theirs = rows(pg, "select id, token from tenant_7.claim(n => 10)").await;
    assert_eq!(theirs.len(), 2);
    let (id, token) = theirs[0].split_once('|').expect("two");
    // The same id and token, said to the wrong schema.
    assert_eq!(
        one(
            pg,
            &format!(
                "select done, lost from rowlock.complete('default', '{{{id}}}', '{{{token}}}')"
            )
        )
        .await,
        format!("{{}}|{{{id}}}")
    );
    assert_eq!(
        one(
            pg,
            &format!(
                "select done, lost from tenant_7.complete('default', '{{{id}}}', '{{{token}}}')"
            )
        )
        .await,
        format!("{{{id}}}|{{}}")
    );
    assert_eq!(one(pg, "select (select count(*) from rowlock.finished), (select count(*) from tenant_7.finished)").await, "0|1");

    // Maintenance of the one while the other is at it.
    let other = own.another().await;
    run(pg, "begin; select rowlock.maintain()").await;
    let steps = rows(&other, "select step from tenant_7.maintain()").await;
    run(pg, "commit").await;
    assert!(
        steps.len() > 1,
        "it was not left to the other schema's session: {steps:?}"
    );
    let mentions = rows(pg, "select proname from pg_proc where pronamespace = 'tenant_7'::regnamespace and prosrc ~ '\\mrowlock\\.'").await;
    assert!(
        mentions.is_empty(),
        "these functions of one schema speak to the other: {mentions:?}"
    );
}
