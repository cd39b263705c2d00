//! One lease for many: who is kept from the jobs of a bundle, and how they get leases of their own.

use std::collections::HashSet;

use tokio_postgres::{Client as Pg, SimpleQueryMessage};

use super::kit::{
    Held, Installed, Session, installed, is, move_clock, named, number, one, refused, rows, run,
    tids, until,
};

const TOKEN: i64 = 77;

/// A queue without history, with so many jobs like most.
async fn flooded(n: usize) -> Installed {
    let own = installed().await;
    run(
        &own.pg,
        "select rowlock.set_queue('default', '{\"retention\": \"0\"}')",
    )
    .await;
    put(&own.pg, n).await;
    own
}

async fn put(pg: &Pg, n: usize) {
    let sql = format!(
        "insert into rowlock.job (kind, payload, created_at, run_at) select 'k', '{{}}', t, t \
         from (select clock_timestamp() as t from generate_series(1, {n})) j"
    );
    run(pg, &sql).await;
}

/// Claims a bundle: its jobs, and what is said of all.
async fn bundle(pg: &Pg, n: usize, token: i64) -> (Vec<Held>, String) {
    let sql =
        format!("select id, tid, payload from rowlock.claim_bundle('default', {n}, 7, {token})");
    let mut all = rows(pg, &sql).await;
    let end = all.pop().expect("what is said of all");
    let jobs = all.iter().map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        Held {
            id: cells[0].parse().expect("an id"),
            token,
            attempt: 1,
            tid: cells[1].to_owned(),
        }
    });
    (jobs.collect(), end)
}

/// One of the numbers that are said of all.
fn said(end: &str, name: &str) -> i64 {
    let at = end.split_once(&format!("\"{name}\": "));
    let number = at.unwrap_or_else(|| panic!("no {name} in {end}")).1;
    let is_digit = |c: &char| c.is_ascii_digit() || *c == '-';
    let digits: String = number.chars().take_while(is_digit).collect();
    digits.parse().expect("a number")
}

/// Completes them the way a worker does that was told so at the end of a claim.
async fn untouched(pg: &Pg, jobs: &[Held], end: &str) -> bool {
    let mark = said(end, "mark");
    let sql = format!(
        "select rowlock.complete_untouched('default', {}::tid[], '{{{}}}', '{{{TOKEN}}}', '{{{mark}}}')",
        tids(jobs),
        jobs.len()
    );
    is(pg, &sql).await
}

async fn left(pg: &Pg) -> i64 {
    number(pg, "select count(*) from rowlock.job").await
}

#[tokio::test]
async fn a_bundle_is_claimed_and_completed_without_a_lease_in_any_row() {
    let own = flooded(250).await;
    let pg = &own.pg;
    let (jobs, end) = bundle(pg, 200, TOKEN).await;
    assert_eq!(jobs.len(), 200, "{end}");
    assert!(end.contains("\"bundle\": true"), "{end}");
    let rows_say = "select count(*) from rowlock.job where token <> 0 or lease_until > '-infinity' or attempt <> 0";
    assert_eq!(number(pg, rows_say).await, 0);
    let bundle_says = "select queue, worker, cardinality(ids), lease_until - claimed_at from rowlock.bundle where token = 77";
    assert_eq!(one(pg, bundle_says).await, "default|7|200|00:00:30");
    assert!(untouched(pg, &jobs[..150], &end).await);
    assert!(!untouched(pg, &jobs[..150], &end).await, "they are gone");
    assert!(untouched(pg, &jobs[150..], &end).await);
    assert_eq!(left(pg).await, 50);
    run(pg, "select rowlock.close_bundles('{77}')").await;
    assert_eq!(number(pg, "select count(*) from rowlock.bundle").await, 0);
}

#[tokio::test]
async fn nobody_else_gets_the_jobs_of_a_bundle() {
    let own = flooded(200).await;
    let pg = &own.pg;
    let (jobs, end) = bundle(pg, 200, TOKEN).await;
    assert_eq!(jobs.len(), 200, "{end}");
    let other = &own.another().await;
    for (who, sql) in [
        (
            "a claim from the start",
            "rowlock.claim_batch('{default}', '{300}', 300, 8, 88)",
        ),
        (
            "one that looks back",
            "rowlock.claim_batch('{default}', '{300}', 300, 8, 88, null, null, true, array_fill(now(), array[9]), array_fill(0::bigint, array[9]), 100000, '{t}')",
        ),
        (
            "one without a turn",
            "rowlock.claim_batch('{default}', '{300}', 300, 8, 88, turn => false)",
        ),
        ("a scan", "rowlock.sweep('default', 300, 8, 88)"),
        (
            "another bundle",
            "rowlock.claim_bundle('default', 300, 8, 88)",
        ),
    ] {
        let sql = format!("select count(id) from {sql}");
        assert_eq!(number(other, &sql).await, 0, "{who}");
    }
    assert_eq!(
        number(
            other,
            "select count(*) from rowlock.claim('{default}', 300)"
        )
        .await,
        0
    );
    // None of that has touched them.
    assert!(untouched(pg, &jobs[..150], &end).await);
    let fresh = "select count(id) from rowlock.claim_fresh('default', 300, 8, 88)";
    assert_eq!(number(other, fresh).await, 0);
    // That has, but changed nothing.
    assert!(!untouched(pg, &jobs[150..], &end).await);
    run(
        pg,
        &format!("select rowlock.complete({})", named(&jobs[150..])),
    )
    .await;
    assert_eq!(left(pg).await, 0);
}

#[tokio::test]
async fn what_is_not_like_most_is_left_to_the_claim() {
    let own = flooded(0).await;
    let pg = &own.pg;
    for unusual in [
        "priority = 1",
        "priority = -1",
        "unique_key = 'u'",
        "expires_at = now() + interval '1 hour'",
        "cancel_at = now()",
        // The clock has been set back since.
        "claimed_at = now() + interval '1 minute'",
        "lease_until = now() - interval '1 s'",
        "kind = 'other'",
    ] {
        run(pg, "truncate rowlock.job").await;
        put(pg, 200).await;
        let one = format!(
            "update rowlock.job set {unusual} where id = (select max(id) from rowlock.job)"
        );
        run(pg, &one).await;
        let sql =
            "select count(id) from rowlock.claim_bundle('default', 200, 7, 77, kinds => '{k}')";
        assert_eq!(number(pg, sql).await, 0, "{unusual}");
    }
    for settings in [
        "{\"retention\": \"1 day\"}",
        "{\"retention\": \"0\", \"paused\": true}",
        "{\"paused\": false, \"kinds\": {\"k\": {\"max_attempts\": 3}}}",
    ] {
        run(pg, "truncate rowlock.job").await;
        put(pg, 200).await;
        run(
            pg,
            &format!("select rowlock.set_queue('default', '{settings}')"),
        )
        .await;
        let (jobs, end) = bundle(pg, 200, TOKEN).await;
        let few = end.contains("\"few\": true");
        assert!(jobs.is_empty() && !few, "{settings}: {end}");
    }
    run(
        pg,
        "truncate rowlock.job; update rowlock.queue set kinds = '{}'",
    )
    .await;
    put(pg, 9).await;
    let (jobs, end) = bundle(pg, 200, TOKEN).await;
    assert!(jobs.is_empty() && end.contains("\"few\": true"), "{end}");
    assert_eq!(said(&end, "left"), 9);
    put(pg, 1).await;
    assert_eq!(bundle(pg, 200, TOKEN).await.0.len(), 10);
    assert_eq!(number(pg, "select count(*) from rowlock.bundle").await, 1);
}

#[tokio::test]
async fn a_bundle_goes_no_further_than_it_is_told() {
    let own = flooded(30).await;
    let pg = &own.pg;
    let then = one(pg, "select rowlock.clock()").await;
    put(pg, 30).await;
    let until = |end: &str| {
        format!(
            "select count(id) from rowlock.claim_bundle('default', 60, 7, {TOKEN}, until_at => '{end}')"
        )
    };
    assert_eq!(number(pg, &until("-infinity")).await, 0);
    assert_eq!(number(pg, &until(&then)).await, 30, "what came before");
    let far = until("infinity").replace("77", "78");
    assert_eq!(number(pg, &far).await, 30, "what is due, and no more");
}

/// What a claim cannot see yet is settled once the transactions are over that had begun before it.
#[tokio::test]
async fn a_bundle_says_who_may_still_have_been_at_it() {
    let own = flooded(20).await;
    let (pg, other) = (&own.pg, own.another().await);
    run(&other, "begin").await;
    let late = one(
        &other,
        "select array_agg(id) from rowlock.enqueue_batch('default', array_fill('k'::text, '{20}'), array_fill('{}'::jsonb, '{20}'))",
    )
    .await;
    put(pg, 20).await;
    let (jobs, first) = bundle(pg, 100, TOKEN).await;
    assert_eq!(jobs.len(), 40, "all but what is on its way: {first}");
    let (_, second) = bundle(pg, 100, TOKEN + 1).await;
    assert!(
        said(&second, "oldest") < said(&first, "xid"),
        "somebody was at it before the first claim, and still is: {first} {second}"
    );
    run(&other, "commit").await;
    // Transactions in other databases of the server count too, so it may take a moment.
    let xid = said(&first, "xid");
    until(
        pg,
        &format!("select pg_snapshot_xmin(pg_current_snapshot()) >= '{xid}'::xid8"),
        "for all who were at it",
    )
    .await;
    let (_, third) = bundle(pg, 100, TOKEN + 2).await;
    assert!(said(&third, "oldest") >= xid, "{first} {third}");
    let at = first.split_once("\"clock\": \"").expect("a time").1;
    let at = at.split('"').next().expect("a time");
    let due = format!(
        "select bool_and(run_at <= '{at}') from rowlock.job where id = any ('{late}'::bigint[])"
    );
    assert!(is(pg, &due).await, "they were due before the first claim");
}

/// A producer has its number before it asks for the time, and a claim after that: so who comes in with an earlier time than the claim's has a lower number.
#[tokio::test]
async fn producers_ask_for_the_time_when_they_have_their_numbers_and_claims_before() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "create or replace function rowlock.clock() returns timestamptz language plpgsql volatile as $$ begin \
           raise notice 'asked %', pg_current_xact_id_if_assigned() is not null; return clock_timestamp(); end $$",
    )
    .await;
    run(
        pg,
        "select rowlock.set_queue('default', '{\"retention\": \"0\"}')",
    )
    .await;
    for (how, has_number) in [
        ("rowlock.claim_bundle('default', 100, 7, 77)", false),
        ("rowlock.stamp()", true),
        ("rowlock.enqueue('k', '{}')", true),
        ("rowlock.enqueue_plain('default', 'k', '{}', 0)", true),
        ("rowlock.enqueue_batch('default', '{k}', '{\"{}\"}')", true),
        ("rowlock.enqueue_many('[{\"kind\": \"k\"}]')", true),
        ("rowlock.fail('default', '{1}', '{1}', '{x}')", true),
        ("rowlock.snooze('default', '{1}', '{1}', '{0}')", true),
        ("rowlock.redrive('default')", true),
        ("rowlock.replay('default', '-infinity')", true),
    ] {
        let mut session = Session::open(own.db.url()).await;
        run(&session.pg, &format!("select {how}")).await;
        let asked = session.notices();
        let first = asked.iter().find(|notice| notice.contains("asked"));
        assert!(
            first.is_some_and(|n| n.contains("asked t") == has_number),
            "{how}: {asked:?}"
        );
    }
}

#[tokio::test]
async fn bad_values_are_refused() {
    let own = flooded(200).await;
    for (arguments, why) in [
        ("'default', 0, 7, 77", "must be a number from 1 to 3000"),
        ("'default', 3001, 7, 77", "must be a number from 1 to 3000"),
        ("'default', null, 7, 77", "must be a number from 1 to 3000"),
        ("'default', 200, 7, 0", "is no token"),
        ("'default', 200, 7, null", "is no token"),
        (
            "'default', 200, 7, 77, after_at => '{now}'",
            "each must have nine",
        ),
    ] {
        let said = refused(
            &own.pg,
            &format!("select * from rowlock.claim_bundle({arguments})"),
        )
        .await;
        assert!(
            said.starts_with("22023") && said.contains(why),
            "{arguments}: {said}"
        );
    }
    assert_eq!(
        number(&own.pg, "select count(*) from rowlock.bundle").await,
        0
    );
}

#[tokio::test]
async fn whatever_else_is_said_of_one_job_gives_it_a_lease_of_its_own() {
    let own = flooded(200).await;
    let pg = &own.pg;
    let (mut jobs, end) = bundle(pg, 200, TOKEN).await;
    let of = |job: &Held| named(std::slice::from_ref(job));
    for (verb, call) in [
        ("fail", format!("rowlock.fail({}, '{{no}}')", of(&jobs[0]))),
        (
            "snooze",
            format!("rowlock.snooze({}, '{{60000}}')", of(&jobs[1])),
        ),
        ("release", format!("rowlock.release({})", of(&jobs[2]))),
        ("extend", format!("rowlock.extend({})", of(&jobs[3]))),
        ("complete", format!("rowlock.complete({})", of(&jobs[4]))),
    ] {
        let answer = one(pg, &format!("select done, lost, busy from {call}")).await;
        assert!(
            answer.ends_with("|{}|{}") && answer != "{}|{}|{}",
            "{verb}: {answer}"
        );
    }
    let progress = format!(
        "select rowlock.progress('default', {}, {TOKEN}, '{{}}')",
        jobs[5].id
    );
    assert_eq!(one(pg, &progress).await, "done");
    let say = "select attempt, failures, token, lease_by, lease_until > now() from rowlock.job where id = ";
    for (n, expected) in [
        (0, "1|1|0|7|f"),
        (1, "1|0|0|7|f"),
        (2, "1|0|0|7|f"),
        (3, "1|0|77|7|t"),
        (5, "1|0|77|7|t"),
    ] {
        assert_eq!(
            one(pg, &format!("{say}{}", jobs[n].id)).await,
            expected,
            "job {n}"
        );
    }
    let stranger = Held {
        token: 78,
        ..jobs[6].clone()
    };
    let answer = one(
        pg,
        &format!("select done, lost from rowlock.extend({})", of(&stranger)),
    )
    .await;
    assert_eq!(answer, format!("{{}}|{{{}}}", stranger.id));
    // The others are as they were.
    let others = jobs.split_off(6);
    assert!(untouched(pg, &others, &end).await);
    assert_eq!(left(pg).await, 5);
}

#[tokio::test]
async fn who_manages_jobs_sees_that_they_run() {
    let own = flooded(200).await;
    let pg = &own.pg;
    let (jobs, _) = bundle(pg, 100, TOKEN).await;
    let ids = |n: usize| format!("array[{}]", jobs[n].id);
    let cancel = format!("select answer from rowlock.cancel({})", ids(0));
    assert_eq!(one(pg, &cancel).await, "asked");
    let delete = format!("select answer from rowlock.delete({})", ids(1));
    assert_eq!(one(pg, &delete).await, "running");
    let retry = format!("select answer from rowlock.retry({})", ids(2));
    assert_eq!(one(pg, &retry).await, "running");
    assert_eq!(
        one(pg, "select purged from rowlock.purge('default')").await,
        "100"
    );
    assert_eq!(left(pg).await, 100, "those that run");
    let answer = one(
        pg,
        &format!(
            "select lost, cancelled from rowlock.extend({})",
            named(&jobs[..1])
        ),
    )
    .await;
    assert_eq!(answer, format!("{{}}|{{{}}}", jobs[0].id));
}

#[tokio::test]
async fn a_bundle_whose_worker_died_is_found_by_a_scan() {
    let own = flooded(150).await;
    let pg = &own.pg;
    let (jobs, end) = bundle(pg, 150, TOKEN).await;
    assert!(untouched(pg, &jobs[..50], &end).await);
    assert_eq!(
        number(
            pg,
            "select count(id) from rowlock.sweep('default', 500, 8, 88)"
        )
        .await,
        0
    );
    move_clock(pg, "31 s").await;
    let scan = "select count(id) = 100 from rowlock.sweep('default', 500, 8, 88, overdue => true)";
    until(pg, scan, "for a scan's turn").await;
    let now = "select count(*), min(attempt), min(crashes), min(token) from rowlock.job";
    assert_eq!(one(pg, now).await, "100|2|1|88");
    assert_eq!(number(pg, "select count(*) from rowlock.bundle").await, 0);
    // The old holder comes too late.
    assert!(!untouched(pg, &jobs[50..], &end).await);
    let answer = one(
        pg,
        &format!(
            "select done, busy from rowlock.complete({})",
            named(&jobs[50..])
        ),
    )
    .await;
    assert_eq!(answer, "{}|{}");
    assert_eq!(left(pg).await, 100);
}

/// Places mean nothing after `vacuum full`, and other jobs may come into old ones.
#[tokio::test]
async fn jobs_that_move_and_others_in_their_places_are_told_apart() {
    let own = flooded(300).await;
    let pg = &own.pg;
    run(pg, "delete from rowlock.job where id <= 100").await;
    let (jobs, end) = bundle(pg, 150, TOKEN).await;
    assert_eq!(jobs.len(), 150, "{end}");
    assert!(untouched(pg, &jobs[..100], &end).await);
    run(pg, "vacuum rowlock.job").await;
    put(pg, 50).await;
    let reused = "select count(*) from rowlock.job where id > 300 and ctid < (select max(ctid) from rowlock.job where id <= 300)";
    assert!(number(pg, reused).await > 0, "no place was used again");
    let others = "select count(*) from rowlock.claim('{default}', 300)";
    assert_eq!(number(pg, others).await, 100, "those that are in no bundle");
    run(pg, "vacuum full rowlock.job").await;
    put(pg, 20).await;
    assert_eq!(number(pg, others).await, 20);
    assert!(!untouched(pg, &jobs[100..], &end).await);
    let cancel = format!("select answer from rowlock.cancel(array[{}])", jobs[149].id);
    assert_eq!(one(pg, &cancel).await, "asked");
    let complete = format!(
        "select cardinality(done), lost, busy from rowlock.complete({})",
        named(&jobs[100..])
    );
    assert_eq!(one(pg, &complete).await, "50|{}|{}");
    assert_eq!(left(pg).await, 120);
}

#[tokio::test]
async fn who_had_a_lease_of_its_own_is_free_when_it_is_given_back() {
    let own = flooded(100).await;
    let pg = &own.pg;
    let (jobs, _) = bundle(pg, 100, TOKEN).await;
    run(
        pg,
        &format!("select rowlock.release({})", named(&jobs[..3])),
    )
    .await;
    let again = "select count(*) from rowlock.claim('{default}', 100)";
    assert_eq!(number(pg, again).await, 3, "though the bundle is open");
    move_clock(pg, "31 s").await;
    // All others are, when the lease has run out: also where nobody scans.
    assert_eq!(number(pg, again).await, 100);
    assert_eq!(number(pg, "select count(*) from rowlock.bundle").await, 0);
    let crashes = "select crashes, count(*) from rowlock.job group by 1";
    assert_eq!(one(pg, crashes).await, "1|100");
}

/// Who manages jobs may look just before a claim commits its bundle. It must not lock what it did not see.
#[tokio::test]
async fn jobs_that_could_not_be_locked_in_time_are_busy() {
    let own = flooded(20).await;
    let pg = &own.pg;
    let (jobs, _) = bundle(pg, 20, TOKEN).await;
    let missed = "create or replace function rowlock.write_leases(queue text, ids bigint[], tokens bigint[] default null) returns bigint[] language sql as $$ select '{}'::bigint[] $$";
    run(pg, missed).await;
    for verb in ["cancel", "delete", "retry"] {
        let call = format!("select answer from rowlock.{verb}(array[{}])", jobs[0].id);
        assert_eq!(one(pg, &call).await, "busy", "{verb}");
    }
    assert_eq!(left(pg).await, 20);
}

/// A handler's own transaction may last longer than the lease. Nobody can take its job, and its failure counts.
#[tokio::test]
async fn a_bundle_stays_while_somebody_has_one_of_its_jobs_locked() {
    let own = flooded(20).await;
    let pg = &own.pg;
    let (jobs, _) = bundle(pg, 20, TOKEN).await;
    let handler = own.another().await;
    run(
        &handler,
        &format!("begin; select rowlock.complete({})", named(&jobs[..1])),
    )
    .await;
    move_clock(pg, "31 s").await;
    let again = "select count(*) from rowlock.claim('{default}', 100)";
    assert_eq!(number(pg, again).await, 19);
    run(&handler, "rollback").await;
    let fail = format!(
        "select done from rowlock.fail({}, '{{no}}')",
        named(&jobs[..1])
    );
    assert_eq!(one(pg, &fail).await, format!("{{{}}}", jobs[0].id));
    let counted = format!(
        "select attempt, failures from rowlock.job where id = {}",
        jobs[0].id
    );
    assert_eq!(one(pg, &counted).await, "1|1");
    assert_eq!(number(pg, "select rowlock.settle_bundles()").await, 1);
}

#[tokio::test]
async fn purge_leaves_out_bundles_and_nothing_else() {
    let own = flooded(3000).await;
    let pg = &own.pg;
    let (jobs, _) = bundle(pg, 100, TOKEN).await;
    let (mut next, mut purged) = ("null".to_owned(), 0);
    loop {
        let call = format!(
            "select purged, next from rowlock.purge('default', max_jobs => 70, next => {next})"
        );
        let answer = one(pg, &call).await;
        let (n, at) = answer.split_once('|').expect("two columns");
        purged += n.parse::<usize>().expect("a number");
        if at == "null" {
            break;
        }
        next = format!("'{at}'");
    }
    assert_eq!(purged, 2900);
    assert_eq!(left(pg).await, jobs.len() as i64);
}

/// A statement that does not see what was committed before it cannot know of bundles.
#[tokio::test]
async fn above_read_committed_nothing_is_taken_where_there_may_be_bundles() {
    let own = flooded(200).await;
    let pg = &own.pg;
    let late = own.another().await;
    let first = number(pg, "select min(id) from rowlock.job").await;
    for level in ["repeatable read", "serializable"] {
        for call in [
            "rowlock.claim('{default}', 50)".to_owned(),
            "rowlock.claim_fresh('default', 50, 8, 88)".to_owned(),
            "rowlock.claim_bundle('default', 50, 8, 88)".to_owned(),
            format!("rowlock.cancel(array[{first}])"),
            format!("rowlock.delete(array[{first}])"),
            "rowlock.purge('default')".to_owned(),
        ] {
            run(&late, &format!("begin isolation level {level}")).await;
            let said = refused(&late, &format!("select * from {call}")).await;
            assert!(
                said.starts_with("0A000") && said.contains(level),
                "{call}: {said}"
            );
            run(&late, "rollback").await;
        }
    }
    run(
        pg,
        "select rowlock.set_queue('default', '{\"retention\": \"1 day\"}')",
    )
    .await;
    run(&late, "begin isolation level repeatable read").await;
    let claim = "select count(*) from rowlock.claim('{default}', 50)";
    assert_eq!(
        number(&late, claim).await,
        50,
        "with a history there are none"
    );
    run(&late, "commit").await;
}

/// A scan has locked a row of the bundle for a moment: it is busy, not lost.
#[tokio::test]
async fn a_job_that_somebody_has_locked_is_busy() {
    let own = flooded(150).await;
    let pg = &own.pg;
    let (jobs, end) = bundle(pg, 150, TOKEN).await;
    let locker = own.another().await;
    run(
        &locker,
        &format!(
            "begin; select 1 from rowlock.job where id = {} for update",
            jobs[0].id
        ),
    )
    .await;
    let extend = format!(
        "select done, lost, busy from rowlock.extend({})",
        named(&jobs[..2])
    );
    assert_eq!(
        one(pg, &extend).await,
        format!("{{{}}}|{{}}|{{{}}}", jobs[1].id, jobs[0].id)
    );
    run(&locker, "rollback").await;
    assert!(untouched(pg, &jobs[2..], &end).await);
    assert!(
        !untouched(pg, &jobs[..1], &end).await,
        "it bears another sign now"
    );
    assert_eq!(
        one(pg, &extend).await,
        format!("{{{},{}}}|{{}}|{{}}", jobs[0].id, jobs[1].id)
    );
}

/// Bundles, claims from the start, looks at what is fresh and scans, all at once: each job goes to exactly one.
#[tokio::test]
async fn each_job_goes_to_one_of_many_who_claim_at_once() {
    const JOBS: usize = 12_000;
    let own = flooded(JOBS).await;
    let ways = [
        "rowlock.claim_bundle('default', 400, {w}, {t})",
        "rowlock.claim_bundle('default', 150, {w}, {t})",
        "rowlock.claim_batch('{default}', '{70}', 70, {w}, {t})",
        "rowlock.claim_batch('{default}', '{200}', 200, {w}, {t}, null, null, true, array_fill('-infinity'::timestamptz, array[9]), array_fill(0::bigint, array[9]), 0, '{t}')",
        "rowlock.claim_batch('{default}', '{40}', 40, {w}, {t}, turn => false)",
        "rowlock.claim_fresh('default', 30, {w}, {t})",
        "rowlock.sweep('default', 60, {w}, {t}, overdue => true)",
    ];
    let mut all = tokio::task::JoinSet::new();
    for (worker, way) in ways.into_iter().enumerate() {
        let pg = own.another().await;
        all.spawn(async move {
            let (mut got, mut empty, mut bundles) = (Vec::new(), 0, 0);
            for n in 0..1000 {
                let token = 1 + worker * 100_000 + n;
                let call = way.replace("{w}", &worker.to_string()).replace("{t}", &token.to_string());
                // Who is told that others were faster tries again.
                let Ok(answer) = pg.simple_query(&format!("select id from {call} where id is not null")).await else {
                    continue;
                };
                let ids: Vec<String> = answer
                    .iter()
                    .filter_map(|m| match m {
                        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                        _ => None,
                    })
                    .collect();
                if ids.is_empty() {
                    empty += 1;
                    if empty > 50 {
                        break;
                    }
                    continue;
                }
                empty = 0;
                bundles += usize::from(way.contains("claim_bundle"));
                let done = format!(
                    "delete from rowlock.job where id in ({}); select rowlock.close_bundles('{{{token}}}')",
                    ids.join(",")
                );
                run(&pg, &done).await;
                got.extend(ids);
            }
            (got, bundles)
        });
    }
    let (mut seen, mut total, mut bundles) = (HashSet::new(), 0, 0);
    while let Some(done) = all.join_next().await {
        let (got, made) = done.expect("a claimer");
        total += got.len();
        bundles += made;
        seen.extend(got);
    }
    assert_eq!(
        total,
        seen.len(),
        "{} went to more than one",
        total - seen.len()
    );
    assert!(bundles > 0, "there were no bundles");
    assert_eq!(seen.len(), JOBS, "some went to nobody");
}

/// One row that somebody had locked, and left long ago, kept all claims of a flood from having bundles.
#[tokio::test]
async fn a_lock_that_is_over_keeps_nobody_from_a_bundle() {
    let own = flooded(50).await;
    let pg = &own.pg;
    let other = own.another().await;
    let lock = "begin; select from rowlock.job where id = (select min(id) + 3 from rowlock.job) for update";
    run(&other, lock).await;
    let (jobs, end) = bundle(pg, 50, TOKEN).await;
    assert!(jobs.is_empty() && end.contains("\"few\": false"), "{end}");
    assert_eq!(said(&end, "left"), 50);
    run(&other, "rollback").await;
    let (jobs, end) = bundle(pg, 50, TOKEN).await;
    assert_eq!(jobs.len(), 50, "{end}");
    assert_eq!(said(&end, "left"), 0);
    assert!(untouched(pg, &jobs, &end).await);
    assert_eq!(left(pg).await, 0);
}

/// A scan took one job from where all others were about to claim, and nobody got a bundle until a claim had passed it.
#[tokio::test]
async fn what_runs_is_passed_over() {
    let own = flooded(50).await;
    let pg = &own.pg;
    let taken = rows(pg, "select id from rowlock.claim('{default}', 12)").await;
    assert_eq!(taken.len(), 12);
    let (jobs, end) = bundle(pg, 30, TOKEN).await;
    assert_eq!(jobs.len(), 30, "as many as were asked for: {end}");
    assert!(
        jobs.iter().all(|job| !taken.contains(&job.id.to_string())),
        "{taken:?} run: {end}"
    );
    assert!(untouched(pg, &jobs, &end).await);
    let (none, end) = bundle(pg, 30, TOKEN + 1).await;
    assert!(none.is_empty() && end.contains("\"few\": true"), "{end}");
    let other = "select count(*) from rowlock.claim('{default}', 30)";
    assert_eq!(number(pg, other).await, 8, "nothing else is left");
}

#[tokio::test]
async fn it_is_known_whether_a_transaction_is_over() {
    let own = installed().await;
    let (pg, other) = (&own.pg, own.another().await);
    run(&other, "begin").await;
    let xid = one(&other, "select pg_current_xact_id()::xid").await;
    let is_over = format!("select rowlock.is_over('{xid}')");
    assert!(!is(pg, &is_over).await);
    run(&other, "savepoint s").await;
    run(&other, "create temp table t ()").await;
    let sub = one(&other, "select xmin from pg_class where relname = 't'").await;
    assert!(!is(pg, &format!("select rowlock.is_over('{sub}')")).await);
    run(&other, "rollback").await;
    assert!(is(pg, &is_over).await);
    assert!(is(pg, "select rowlock.is_over('3')").await);
    for sign in ["0", "1", "2", "2000000000", "3000000000", "4294967295"] {
        assert!(
            !is(pg, &format!("select rowlock.is_over('{sign}')")).await,
            "{sign}"
        );
    }
}

/// The jobs of a bundle look free, and their locks are over: who was set back tried to take them again, and failed.
#[tokio::test]
async fn what_is_in_a_bundle_is_not_claimed_by_another_that_was_set_back() {
    let own = flooded(50).await;
    let pg = &own.pg;
    let (jobs, end) = bundle(pg, 30, TOKEN).await;
    assert_eq!(jobs.len(), 30, "{end}");
    run(pg, "select rowlock.rewind('default')").await;
    let (none, other) = bundle(pg, 40, TOKEN + 1).await;
    assert!(none.is_empty(), "{other}");
    assert!(untouched(pg, &jobs, &end).await, "nobody has touched them");
}
