//! Who may do what, and that nobody can make the functions do something else.

use super::kit::{Installed, installed, is, number, one, refused, rows, run};

/// Makes a role with this access; its name.
async fn role(own: &Installed, access: &str) -> String {
    let name = format!("{}_{access}", own.db.name());
    run(
        &own.pg,
        &format!("create role {name}; select rowlock.grant_access('{name}', '{access}')"),
    )
    .await;
    name
}

/// The functions that a role can execute and PUBLIC cannot.
async fn executable(own: &Installed, role: &str) -> Vec<String> {
    rows(
        &own.pg,
        &format!(
            "select distinct proname from pg_proc where pronamespace = 'rowlock'::regnamespace \
             and has_function_privilege('{role}', oid, 'execute') order by 1"
        ),
    )
    .await
}

#[tokio::test]
async fn nothing_is_open_to_public() {
    let own = installed().await;
    let open = rows(
        &own.pg,
        "select proname from pg_proc where pronamespace = 'rowlock'::regnamespace \
         and (proacl is null or exists (select from aclexplode(proacl) a where a.grantee = 0))",
    )
    .await;
    assert!(
        open.is_empty(),
        "functions that everybody can execute: {open:?}"
    );
    let open = rows(
        &own.pg,
        "select relname from pg_class where relnamespace = 'rowlock'::regnamespace and exists (select from aclexplode(relacl) a where a.grantee = 0)",
    )
    .await;
    assert!(
        open.is_empty(),
        "tables and sequences that everybody can use: {open:?}"
    );
    assert!(
        is(&own.pg, "select not exists (select from pg_namespace, aclexplode(nspacl) a where nspname = 'rowlock' and a.grantee = 0)").await,
        "everybody can use the schema"
    );
    let stranger = format!("{}_stranger", own.db.name());
    run(&own.pg, &format!("create role {stranger}")).await;
    assert_eq!(executable(&own, &stranger).await, [""; 0]);
    run(&own.pg, &format!("set role {stranger}")).await;
    assert_eq!(
        refused(&own.pg, "select rowlock.enqueue('k')").await,
        "42501 permission denied for schema rowlock"
    );
    run(&own.pg, &format!("reset role; drop role {stranger}")).await;
}

#[tokio::test]
async fn each_access_executes_exactly_its_functions() {
    let own = installed().await;
    for (access, parts) in [
        ("producer", "producer"),
        ("worker", "producer,worker"),
        ("reader", "reader"),
        ("admin", "producer,worker,reader,admin"),
    ] {
        let role = role(&own, access).await;
        let listed = rows(
            &own.pg,
            &format!("select distinct f from unnest('{{{parts}}}'::text[]) a, unnest(rowlock.access_functions(a)) f order by 1"),
        )
        .await;
        assert_eq!(
            executable(&own, &role).await,
            listed,
            "{access}: what it has, and what 13_roles.sql says"
        );
        run(&own.pg, &format!("select rowlock.revoke_access('{role}')")).await;
        assert_eq!(executable(&own, &role).await, [""; 0], "{access}, revoked");
        run(&own.pg, &format!("drop role {role}")).await;
    }
}

/// Runs statements as a role: what it can do, and what it cannot.
async fn tries(own: &Installed, access: &str, can: &[&str], cannot: &[&str]) {
    let role = role(own, access).await;
    run(&own.pg, &format!("set role {role}")).await;
    for sql in can {
        if let Err(e) = own.pg.simple_query(sql).await {
            panic!("a {access} can: {sql}\nbut: {}", super::kit::told(&e));
        }
    }
    for sql in cannot {
        let said = refused(&own.pg, sql).await;
        assert!(
            said.starts_with("42501 permission denied for"),
            "a {access} cannot: {sql}\nbut: {said}"
        );
    }
    run(
        &own.pg,
        &format!("reset role; select rowlock.revoke_access('{role}'); drop role {role}"),
    )
    .await;
}

const ENQUEUE: [&str; 4] = [
    "select rowlock.enqueue('k', unique_key => gen_random_uuid()::text, queue => 'q' || pg_backend_pid())",
    "select rowlock.enqueue_many('[{\"kind\": \"k\"}]')",
    "select rowlock.enqueue_batch('default', '{k}', array['{}'::jsonb])",
    "insert into rowlock.job (kind, payload) values ('k', '{}')",
];
const WORK: [&str; 9] = [
    "select rowlock.claim(n => 1)",
    "select rowlock.claim_batch('{default}', '{1}', 1, 0, 5), rowlock.claim_fresh('default', 1, 0, 5)",
    "select rowlock.sweep('default', 1, 0, 5)",
    "select rowlock.complete('default', '{1}', '{5}'), rowlock.fail('default', '{1}', '{5}', '{x}'), rowlock.extend('default', '{1}', '{5}')",
    "select rowlock.snooze('default', '{1}', '{5}', '{1}'), rowlock.release('default', '{1}', '{5}'), rowlock.progress('default', 1, 5, '{}')",
    "select rowlock.arm('{default}', 10), rowlock.disarm('{default}'), rowlock.oldest_xid(), rowlock.queue_names()",
    "select rowlock.register_worker('w', 'h', 1, 'v', '{}', '{}', 1), rowlock.heartbeat(1, 0), rowlock.unregister_worker(1)",
    "select rowlock.once_put('default', 1, 'key', '1'), rowlock.once_get('default', 1, 'key')",
    "select rowlock.maintain()",
];
const READ: [&str; 5] = [
    "select * from rowlock.jobs, rowlock.queues limit 1",
    "select count(*) from rowlock.finished",
    "select count(*) from rowlock.finished_default",
    "select rowlock.stats(), rowlock.depth('default')",
    "select rowlock.find_job(1)",
];
const MANAGE: [&str; 5] = [
    "select rowlock.set_queue('default', '{\"lease_ms\": 40000}')",
    "select rowlock.pause('default'), rowlock.resume('default')",
    "select rowlock.cancel('{1}'), rowlock.retry('{1}')",
    "select rowlock.purge('default', kind => 'nothing')",
    "select rowlock.make_partitions(), rowlock.retain()",
];
const NOBODY: [&str; 6] = [
    "select rowlock.park_poison('default', '{}', now())",
    "select rowlock.hold('default', '{1}', '{5}')",
    "select rowlock.clear_history('rowlock.finished', null, 'true', null, null, null)",
    "update rowlock.job set token = 0",
    "delete from rowlock.job",
    "truncate rowlock.dead",
];

#[tokio::test]
async fn producers_enqueue_workers_work_readers_read_and_admins_manage() {
    let own = installed().await;
    let all = |parts: &[&[&'static str]]| parts.concat();
    let grant = "select rowlock.grant_access('postgres', 'admin')";
    tries(
        &own,
        "producer",
        &ENQUEUE,
        &all(&[&WORK, &READ, &MANAGE, &NOBODY, &[grant]]),
    )
    .await;
    tries(
        &own,
        "worker",
        &all(&[&ENQUEUE, &WORK, &["select name, ready from rowlock.queues"]]),
        &all(&[&READ, &MANAGE, &NOBODY, &[grant]]),
    )
    .await;
    tries(
        &own,
        "reader",
        &READ,
        &all(&[&ENQUEUE, &WORK, &MANAGE, &NOBODY, &[grant]]),
    )
    .await;
    tries(
        &own,
        "admin",
        &all(&[&ENQUEUE, &WORK, &READ, &MANAGE]),
        &NOBODY,
    )
    .await;
}

#[tokio::test]
async fn an_admin_gives_access_and_bad_names_are_refused() {
    let own = installed().await;
    let admin = role(&own, "admin").await;
    let other = format!("{}_other", own.db.name());
    run(&own.pg, &format!("create role {other}; set role {admin}; select rowlock.grant_access('{other}', 'reader'); reset role")).await;
    assert!(executable(&own, &other).await.contains(&"stats".to_owned()));
    assert_eq!(
        refused(
            &own.pg,
            &format!("select rowlock.grant_access('{other}', 'owner')")
        )
        .await,
        "22023 rowlock: access 'owner' is no kind of access: known are producer, worker, reader, admin"
    );
    assert_eq!(
        refused(
            &own.pg,
            "select rowlock.grant_access('nobody; drop table x', 'reader')"
        )
        .await,
        "22023 rowlock: role_name 'nobody; drop table x' is no role of this server"
    );
    run(
        &own.pg,
        &format!("drop owned by {other}, {admin}; drop role {other}; drop role {admin}"),
    )
    .await;
}

#[tokio::test]
async fn every_function_pins_its_search_path_or_is_parsed_beforehand() {
    let own = installed().await;
    let loose = rows(
        &own.pg,
        "select proname from pg_proc where pronamespace = 'rowlock'::regnamespace and prosqlbody is null \
         and not coalesce(proconfig @> '{\"search_path=pg_catalog, pg_temp\"}', false)",
    )
    .await;
    assert!(
        loose.is_empty(),
        "functions whose names mean what the caller wants: {loose:?}"
    );
    // Inlined, so that they cost nothing; their bodies were parsed when they were made.
    let unpinned = rows(&own.pg, "select proname from pg_proc where pronamespace = 'rowlock'::regnamespace and proconfig is null order by 1").await;
    assert_eq!(
        unpinned,
        [
            "clock",
            "fate",
            "is_armed",
            "is_milestone",
            "is_sound",
            "line",
            "mark",
            "scan_for",
            "stamp",
            "stopped_at"
        ]
    );
}

#[tokio::test]
async fn a_hostile_search_path_redirects_nothing() {
    let own = installed().await;
    let pg = &own.pg;
    // Operators, functions, types and tables with the names that the functions use, found before the real ones.
    run(
        pg,
        "create schema evil; \
         create function evil.trap(text, text) returns boolean language plpgsql as $$ begin raise exception 'trapped'; end $$; \
         create operator evil.= (leftarg = text, rightarg = text, function = evil.trap); \
         create function evil.trap(bigint, bigint) returns boolean language plpgsql as $$ begin raise exception 'trapped'; end $$; \
         create operator evil.= (leftarg = bigint, rightarg = bigint, function = evil.trap); \
         create function evil.clock_timestamp() returns timestamptz language plpgsql as $$ begin raise exception 'trapped'; end $$; \
         create function evil.coalesce(text, text) returns text language plpgsql as $$ begin raise exception 'trapped'; end $$; \
         create function evil.cardinality(bigint[]) returns int language plpgsql as $$ begin raise exception 'trapped'; end $$; \
         create function evil.set_config(text, text, boolean) returns text language plpgsql as $$ begin raise exception 'trapped'; end $$; \
         create function evil.jsonb_typeof(jsonb) returns text language plpgsql as $$ begin raise exception 'trapped'; end $$; \
         create function evil.pg_notify(text, text) returns void language plpgsql as $$ begin raise exception 'trapped'; end $$; \
         create table evil.job (id bigint); \
         create temporary table job (id bigint, queue text); create temporary table queue (name text); create temporary table pg_class (oid oid); \
         create temporary table pg_proc (oid oid); \
         set search_path = evil, pg_temp, pg_catalog",
    )
    .await;
    assert_eq!(
        refused(pg, "select 'a'::text = 'b'::text").await,
        "P0001 trapped",
        "the trap is set"
    );
    let role = format!("{}_role", own.db.name());
    for sql in [
        "select rowlock.enqueue('k', unique_key => 'u')",
        "select rowlock.enqueue('k'), rowlock.enqueue_plain('default', 'k', '{}', 0)",
        "select rowlock.enqueue_many('[{\"kind\": \"k\"}, {\"kind\": \"k\", \"tags\": [\"t\"]}]')",
        "select rowlock.arm('{default}', 1000)",
        "select rowlock.enqueue_batch('default', '{k}', array['{}'::jsonb])",
        "select rowlock.claim_fresh('default', 4, 0, 77), rowlock.claim_batch('{default}', '{4}', 4, 0, 77)",
        "select rowlock.extend('default', '{1,2,3,4}', '{77,77,77,77}')",
        "select rowlock.complete('default', '{1}', '{77}')",
        "select rowlock.fail('default', '{2}', '{77}', '{x}')",
        "select rowlock.snooze('default', '{3}', '{77}', '{0}')",
        "select rowlock.release('default', '{4}', '{77}')",
        "select rowlock.cancel('{2}'), rowlock.retry('{1}'), rowlock.find_job(3), rowlock.stats()",
        "select rowlock.set_queue('default', '{\"max_attempts\": 7}')",
        "select rowlock.sweep('default', 1, 0, 78)",
        "select * from rowlock.jobs, rowlock.queues",
        "select rowlock.maintain()",
        &format!("create role {role}"),
        &format!("select rowlock.grant_access('{role}', 'admin')"),
        &format!("select rowlock.revoke_access('{role}')"),
        &format!("drop role {role}"),
    ] {
        if let Err(e) = pg.simple_query(sql).await {
            panic!("{sql}: {}", super::kit::told(&e));
        }
    }
    run(pg, "reset search_path").await;
    assert_eq!(one(pg, "select count(*) from evil.job").await, "0");
    assert_eq!(
        number(pg, "select count(*) from pg_temp.job").await,
        0,
        "the temporary table was not taken for the queue"
    );
    assert!(number(pg, "select count(*) from rowlock.job").await >= 3);
}
