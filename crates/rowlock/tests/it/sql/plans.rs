//! The plans of the hot statements. They must not depend on statistics, which are always wrong in a queue table, nor on how
//! large the table was when a session first planned them.

use std::fmt::Write as _;

use serde_json::Value;

use super::kit::{Held, Session, ids, installed, named, number, one, rows, run, tids};

/// A session that shows the plan of every statement it runs, inside of functions too.
struct Explained(Session);

/// One statement and its plan.
struct Plan {
    query: String,
    root: Value,
}

impl Explained {
    async fn open(url: &str) -> Explained {
        let session = Session::open(url).await;
        run(
            &session.pg,
            "load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on; \
             set auto_explain.log_format = json; set auto_explain.log_level = notice; set auto_explain.log_analyze = on; \
             set auto_explain.log_buffers = on; set auto_explain.log_timing = off",
        )
        .await;
        let mut explained = Explained(session);
        explained.0.notices();
        explained
    }

    /// Runs a statement: its rows, and the plans of it and of all that it called.
    async fn plans(&mut self, sql: &str) -> (Vec<String>, Vec<Plan>) {
        let rows = rows(&self.0.pg, sql).await;
        let plans = self
            .0
            .notices()
            .iter()
            .filter_map(|notice| notice.split_once("plan:\n").map(|(_, json)| json))
            .map(|json| {
                let whole: Value = serde_json::from_str(json).expect("auto_explain writes JSON");
                Plan {
                    query: whole["Query Text"].as_str().unwrap_or_default().to_owned(),
                    root: whole["Plan"].clone(),
                }
            })
            .collect();
        (rows, plans)
    }

    /// As [`plans`](Self::plans), for a statement whose every plan must be a pinned one.
    async fn pinned(&mut self, situation: &str, sql: &str) -> (Vec<String>, Vec<Plan>) {
        let (rows, plans) = self.plans(sql).await;
        assert!(
            !plans.is_empty(),
            "{situation}: auto_explain said nothing of {sql}"
        );
        for plan in &plans {
            if let Err(wrong) = check(&plan.root) {
                panic!(
                    "{situation}: {wrong}\nin: {sql}\nat: {}\n{}",
                    plan.query,
                    drawn(&plan.root)
                );
            }
        }
        (rows, plans)
    }
}

/// A node and all below it.
fn nodes(node: &Value) -> Vec<&Value> {
    let mut all = vec![node];
    for child in node["Plans"].as_array().into_iter().flatten() {
        all.extend(nodes(child));
    }
    all
}

fn kind(node: &Value) -> &str {
    node["Node Type"].as_str().unwrap_or_default()
}

/// The pages that a node and those below it touched.
fn pages_of(node: &Value) -> i64 {
    let touched = |what: &str| node[what].as_i64().unwrap_or(0);
    touched("Shared Hit Blocks") + touched("Shared Read Blocks")
}

fn reads_jobs(node: &Value) -> bool {
    node["Relation Name"] == "job" && kind(node) != "ModifyTable"
}

/// Jobs are read by the claim index (one priority of one queue, from a point on), by the primary key, by a unique key or by
/// their place, and nothing sorts, hashes or stores what comes out of the claim index, which may be the whole queue.
fn check(plan: &Value) -> Result<(), String> {
    for node in nodes(plan) {
        if reads_jobs(node) {
            let condition = node["Index Cond"].as_str().unwrap_or_default();
            let fine = match (kind(node), node["Index Name"].as_str()) {
                ("Tid Scan", _) => true,
                ("Index Scan" | "Index Only Scan", Some("job_claim")) => {
                    // The columns are of domains: what is compared with a text shows as one.
                    let condition = condition
                        .replace("(queue)::text", "queue")
                        .replace("(priority)::smallint", "priority");
                    [
                        "(hashtextextended(queue, '0'::bigint) >> 5) << 4) - priority) = ",
                        "run_at",
                    ]
                    .iter()
                    .all(|part| condition.contains(part))
                }
                ("Index Scan" | "Index Only Scan", Some("job_pkey")) => ["(id = ", "(id >= "]
                    .iter()
                    .any(|part| condition.contains(part)),
                ("Index Scan", Some("job_unique")) => condition.contains("unique_key = "),
                _ => false,
            };
            if !fine {
                return Err(format!(
                    "jobs are read by {} {} {condition}",
                    kind(node),
                    node["Index Name"]
                ));
            }
        }
        let stores = [
            "Sort",
            "Incremental Sort",
            "Hash",
            "Hash Join",
            "Merge Join",
            "Materialize",
            "Memoize",
            "Gather",
        ];
        let walks = |n: &Value| reads_jobs(n) && n["Index Name"] == "job_claim";
        if stores.contains(&kind(node)) && nodes(node).into_iter().any(walks) {
            return Err(format!("there is a {} over the claim index", kind(node)));
        }
    }
    Ok(())
}

/// How jobs are read in these plans: `Tid Scan`, `job_claim`, …
fn readers(plans: &[Plan], part_of_query: &str) -> Vec<String> {
    let mut all: Vec<String> = plans
        .iter()
        .filter(|plan| plan.query.contains(part_of_query))
        .flat_map(|plan| nodes(&plan.root))
        .filter(|node| reads_jobs(node))
        .map(|node| node["Index Name"].as_str().unwrap_or(kind(node)).to_owned())
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Pages and rows that the claim's probe of the index touched.
fn probed(plans: &[Plan]) -> (i64, i64) {
    let probes = plans
        .iter()
        .flat_map(|plan| nodes(&plan.root))
        .filter(|node| node["Index Name"] == "job_claim");
    let (mut pages, mut rows) = (0, 0);
    for node in probes {
        let n = |name: &str| node[name].as_f64().unwrap_or(0.0);
        pages += (n("Shared Hit Blocks") + n("Shared Read Blocks")) as i64;
        rows += (n("Actual Rows") * n("Actual Loops")) as i64;
    }
    (pages, rows)
}

/// A plan for people.
fn drawn(plan: &Value) -> String {
    fn draw(node: &Value, depth: usize, out: &mut String) {
        let part = |name: &str| node[name].as_str().unwrap_or_default();
        let _ = writeln!(
            out,
            "{:depth$}{} {} {} {}",
            "",
            kind(node),
            part("Index Name"),
            part("Relation Name"),
            part("Index Cond")
        );
        for child in node["Plans"].as_array().into_iter().flatten() {
            draw(child, depth + 2, out);
        }
    }
    let mut out = String::new();
    draw(plan, 0, &mut out);
    out
}

fn held(rows: &[String]) -> Vec<Held> {
    rows.iter()
        .map(|row| {
            let cells: Vec<&str> = row.split('|').collect();
            Held {
                id: cells[0].parse().expect("an id"),
                token: cells[1].parse().expect("a token"),
                attempt: 0,
                tid: cells[2].to_owned(),
            }
        })
        .collect()
}

/// Claims a bundle, has one of its leases written, completes the others and closes it.
async fn bundle(explained: &mut Explained, situation: &str, expect_jobs: bool) {
    let pg = &explained.0.pg;
    run(
        pg,
        "select rowlock.set_queue('flood', '{\"retention\": \"0\"}')",
    )
    .await;
    if expect_jobs {
        let jobs = "insert into rowlock.job (queue, kind, payload, run_at) select 'flood', 'k', '{}', clock_timestamp() from generate_series(1, 120)";
        run(pg, jobs).await;
    }
    let token = number(pg, "select nextval('rowlock.job_id')").await;
    let claim = format!(
        "select id, {token}, tid, payload from rowlock.claim_bundle('flood', 200, 7, {token})"
    );
    let (mut jobs, plans) = explained.pinned(situation, &claim).await;
    assert_eq!(
        readers(&plans, "as plain"),
        ["job_claim"],
        "{situation}: the look ahead"
    );
    let end = jobs.pop().expect("what is said of all");
    // A small table, of which that is known: its one page would be read as a whole.
    run(&explained.0.pg, "vacuum analyze rowlock.bundle").await;
    if !expect_jobs {
        return;
    }
    assert_eq!(jobs.len(), 120, "{situation}: {end}");
    for part in ["for update skip locked", "j.ctid = v_ahead.tids["] {
        let read = readers(&plans, part);
        assert_eq!(read, ["Tid Scan"], "{situation}: {part}");
    }
    let others =
        "select id from rowlock.claim_batch('{flood}', '{50}', 50, 8, 88) where id is not null";
    let (taken, plans) = explained.pinned(situation, others).await;
    assert!(taken.is_empty(), "{situation}: {taken:?}");
    let read = readers(&plans, "j.queue = read_places.queue");
    assert_eq!(read, ["Tid Scan"], "{situation}: what is in bundles");
    let jobs = held(&jobs);
    let call = format!(
        "select rowlock.extend({})",
        named(&jobs[..1]).replace("default", "flood")
    );
    let (_, plans) = explained.pinned(situation, &call).await;
    let written = "set lease_until = bundle.lease_until";
    assert_eq!(readers(&plans, written), ["Tid Scan"], "{situation}");
    let mark = end.split_once("\"mark\": ").expect("a mark").1;
    let mark: String = mark.chars().take_while(char::is_ascii_digit).collect();
    let call = format!(
        "select rowlock.complete_untouched('flood', {}::tid[], '{{119}}', '{{{token}}}', '{{{mark}}}', '{{{token}}}')",
        tids(&jobs[1..])
    );
    let (done, plans) = explained.pinned(situation, &call).await;
    assert_eq!(
        done,
        ["f"],
        "{situation}: it was closed before it was complete"
    );
    assert_eq!(
        readers(&plans, "delete from rowlock.job"),
        ["Tid Scan"],
        "{situation}"
    );
    let call = call.replace(&format!(", '{{{token}}}')"), ")");
    let (done, plans) = explained.pinned(situation, &call).await;
    assert_eq!(done, ["t"], "{situation}: {call}");
    assert_eq!(
        readers(&plans, "j.xmax = v_xid"),
        ["Tid Scan"],
        "{situation}"
    );
    for plan in &plans {
        for node in nodes(&plan.root) {
            let walks = node["Relation Name"] == "bundle" && kind(node) == "Seq Scan";
            assert!(
                !walks,
                "{situation}: all bundles are walked over\n{}",
                drawn(&plan.root)
            );
        }
    }
    purge_beside(explained, situation).await;
    let close = format!(
        "delete from rowlock.job where queue = 'flood'; delete from rowlock.bundle; select rowlock.close_bundles('{{{token}}}')"
    );
    explained.plans(&close).await;
}

/// Purges where a bundle is open. The settings of purge reached to where it is looked up what is in bundles: with no join left to choose, that were loops within loops, which took
/// minutes for some thousand jobs and stayed in the session for its next claims.
async fn purge_beside(explained: &mut Explained, situation: &str) {
    let pg = &explained.0.pg;
    run(pg, "insert into rowlock.job (queue, kind, payload, run_at) select 'flood', 'k', '{}', clock_timestamp() from generate_series(1, 120)").await;
    let token = number(pg, "select nextval('rowlock.job_id')").await;
    let claim = format!("select id from rowlock.claim_bundle('flood', 100, 7, {token})");
    assert_eq!(rows(pg, &claim).await.len(), 101, "{situation}");
    let purge = "select purged from rowlock.purge('flood', max_jobs => 10)";
    let (purged, plans) = explained.pinned(situation, purge).await;
    assert_eq!(purged, ["10"], "{situation}");
    let looks = plans
        .iter()
        .filter(|plan| plan.query.contains("b.claimed_at, b.ids"));
    let looks: Vec<_> = looks.collect();
    assert!(!looks.is_empty(), "{situation}: nobody looked for bundles");
    for look in looks {
        let joins = nodes(&look.root)
            .into_iter()
            .map(kind)
            .filter(|kind| kind.starts_with("Hash ") || *kind == "Hash Join");
        assert!(joins.count() >= 2, "{situation}\n{}", drawn(&look.root));
    }
}

/// Calls the hot functions once; claims by `claim`, an expression that gives id, token and tid.
async fn call_all(explained: &mut Explained, situation: &str, claim: &str, expect_jobs: bool) {
    let (jobs, plans) = explained.pinned(situation, claim).await;
    assert_eq!(
        readers(&plans, "with ordinality as c (priority"),
        ["job_claim"],
        "{situation}: the probe"
    );
    let jobs = held(&jobs);
    if expect_jobs {
        assert_eq!(
            jobs.len(),
            6,
            "{situation}: six jobs are there to be claimed"
        );
        assert_eq!(
            readers(&plans, "set lease_until = v_lease"),
            ["Tid Scan"],
            "{situation}: the lease"
        );
    }
    let fresh = "select id from rowlock.claim_fresh('default', 6, 0, 4712)";
    let (_, plans) = explained.pinned(situation, fresh).await;
    assert_eq!(
        readers(&plans, "for update skip locked"),
        ["job_claim"],
        "{situation}: what is fresh"
    );
    assert_eq!(
        readers(&plans, "set lease_until = v_lease"),
        ["Tid Scan"],
        "{situation}: the lease of what is fresh"
    );
    bundle(explained, situation, expect_jobs).await;
    // On an empty table the statements run all the same, for jobs that are not there.
    let nobody = Held {
        id: 1,
        token: 7,
        attempt: 1,
        tid: "(0,1)".into(),
    };
    let of = |n: usize| jobs.get(n).cloned().unwrap_or_else(|| nobody.clone());

    let call = format!("select rowlock.extend({})", named(&[of(0), of(1)]));
    let (_, plans) = explained.pinned(situation, &call).await;
    assert_eq!(
        readers(&plans, "for update skip locked"),
        ["job_pkey"],
        "{situation}: extend looks up"
    );
    assert_eq!(
        readers(&plans, "set lease_until = v_until"),
        ["Tid Scan"],
        "{situation}: extend writes"
    );

    let call = "select rowlock.complete_untouched('default', '{\"(0,1)\"}', '{1}', '{7}', '{1}')";
    let (_, plans) = explained.pinned(situation, call).await;
    assert_eq!(
        readers(&plans, "j.xmin = v_xid"),
        ["Tid Scan"],
        "{situation}: complete deletes what nobody has touched"
    );

    // Nobody has touched this one since the claim: it is deleted without being locked first.
    if expect_jobs {
        let one = [of(5)];
        let call = format!("select rowlock.complete({}, {})", named(&one), tids(&one));
        let (_, plans) = explained.pinned(situation, &call).await;
        assert_eq!(
            readers(&plans, ""),
            ["Tid Scan"],
            "{situation}: complete goes by the place alone"
        );
    }

    // The first has moved, so both ways are taken.
    let both = [of(0), of(2)];
    let call = format!("select rowlock.complete({}, {})", named(&both), tids(&both));
    let (_, plans) = explained.pinned(situation, &call).await;
    assert_eq!(
        readers(&plans, "delete from rowlock.job"),
        ["Tid Scan"],
        "{situation}: complete deletes"
    );
    assert_eq!(
        readers(&plans, "for update skip locked"),
        ["job_pkey"],
        "{situation}: complete looks up"
    );

    let call = format!(
        "select rowlock.fail({}, array['x'], array[86400000], null)",
        named(&[of(1)])
    );
    let (_, plans) = explained.pinned(situation, &call).await;
    assert_eq!(
        readers(&plans, "retried as"),
        ["Tid Scan"],
        "{situation}: fail writes"
    );
    assert_eq!(
        readers(&plans, "for update skip locked"),
        ["job_pkey"],
        "{situation}: fail looks up"
    );

    for (name, call) in [
        (
            "snooze",
            format!(
                "select rowlock.snooze({}, array[86400000])",
                named(&[of(3)])
            ),
        ),
        (
            "release",
            format!("select rowlock.release({})", named(&[of(4)])),
        ),
        (
            "progress",
            format!(
                "select rowlock.progress('default', {}, {}, '{{}}')",
                of(4).id,
                of(4).token
            ),
        ),
        (
            "cancel",
            format!("select rowlock.cancel(array[{}])", of(3).id),
        ),
        ("arm", "select rowlock.arm('{default}', 1000)".to_owned()),
    ] {
        let (_, plans) = explained.pinned(situation, &call).await;
        let all = readers(&plans, "");
        let allowed: &[&str] = if name == "arm" {
            &["job_claim"]
        } else {
            &["Tid Scan", "job_pkey"]
        };
        assert!(
            !all.is_empty() && all.iter().all(|r| allowed.contains(&r.as_str())),
            "{situation}: {name} reads jobs by {all:?}"
        );
    }
}

const CLAIM: &str = "select id, token, tid from rowlock.claim('{default}', 6)";

/// Every function on the first and on the tenth call of a new session, and of one that has been there since the table was empty.
async fn first_and_tenth(
    situation: &str,
    old: &mut Explained,
    url: &str,
    claim: &str,
    expect_jobs: bool,
) {
    let mut new = Explained::open(url).await;
    for (whose, session) in [("a new session", &mut new), ("an old session", old)] {
        call_all(
            session,
            &format!("{situation}, {whose}, first call"),
            claim,
            expect_jobs,
        )
        .await;
        for _ in 2..10 {
            let (jobs, _) = session.plans(claim).await;
            let jobs = held(&jobs);
            if !jobs.is_empty() {
                let call = format!("select rowlock.complete({}, {})", named(&jobs), tids(&jobs));
                session.plans(&call).await;
            }
        }
        call_all(
            session,
            &format!("{situation}, {whose}, tenth call"),
            claim,
            expect_jobs,
        )
        .await;
    }
}

#[tokio::test]
async fn the_plans_hold_on_empty_small_bulk_loaded_analysed_and_dead_tables() {
    let own = installed().await;
    let (pg, url) = (&own.pg, own.db.url());
    run(
        pg,
        "alter table rowlock.job set (autovacuum_enabled = off); select rowlock.set_queue('default', '{\"retention\": \"0\"}')",
    )
    .await;
    let mut old = Explained::open(url).await;

    first_and_tenth("empty", &mut old, url, CLAIM, false).await;
    run(pg, "analyze rowlock.job").await;
    first_and_tenth("empty and analysed", &mut old, url, CLAIM, false).await;

    run(
        pg,
        "insert into rowlock.job (kind, payload) select 'k', '{}' from generate_series(1, 400)",
    )
    .await;
    first_and_tenth("small", &mut old, url, CLAIM, true).await;
    run(pg, "analyze rowlock.job").await;
    first_and_tenth("small and analysed", &mut old, url, CLAIM, true).await;

    // Without statistics at all: a table that was never analysed.
    run(pg, "truncate rowlock.job").await;
    run(
        pg,
        "insert into rowlock.job (kind, payload, run_at, priority) select 'k', '{}', now() - interval '1 hour' + g * interval '1 ms', \
         case when g % 100 = 0 then 1 else 0 end from generate_series(1, 1000000) g",
    )
    .await;
    first_and_tenth("a million rows, bulk-loaded", &mut old, url, CLAIM, true).await;
    let (_, plans) = old
        .pinned(
            "a million rows",
            "select * from rowlock.sweep('default', 5, 0, 77, overdue => true)",
        )
        .await;
    assert_eq!(
        readers(&plans, "with ordinality as c (priority"),
        ["job_claim"],
        "the sweep's probe"
    );
    let (pages, rows) = probed(&plans);
    assert!(
        rows <= 100 && pages < 500,
        "a sweep for five of a million visited {rows} rows, {pages} pages"
    );
    run(pg, "analyze rowlock.job").await;
    first_and_tenth("a million rows, analysed", &mut old, url, CLAIM, true).await;

    under_a_million_dead_rows(&own, &mut old).await;
}

/// A transaction elsewhere holds vacuum back while a million jobs are finished: the way in which Postgres queues die.
async fn under_a_million_dead_rows(own: &super::kit::Installed, old: &mut Explained) {
    let (pg, url) = (&own.pg, own.db.url());
    let horizon = own.another().await;
    run(
        &horizon,
        "begin isolation level repeatable read; select count(*) from rowlock.queue",
    )
    .await;
    let cursor = one(
        pg,
        "select max(run_at), max(id) from rowlock.job where run_at <= now()",
    )
    .await;
    let (at, id) = cursor.split_once('|').expect("a time and an id");
    run(pg, "delete from rowlock.job").await;
    run(
        pg,
        "insert into rowlock.job (kind, payload, run_at) select 'k', '{}', now() from generate_series(1, 600)",
    )
    .await;
    run(pg, "vacuum rowlock.job").await;

    // What everybody who has no cursor pays, and what naive ways of looking for work pay.
    let (_, plans) = old.pinned("a million dead rows, no cursor", CLAIM).await;
    let (pages, _) = probed(&plans);
    assert!(
        pages > 5_000,
        "the dead rows are not there: a claim without a cursor touched {pages} pages only"
    );
    let (_, plans) = old
        .plans("select max(priority) from rowlock.job where queue = 'default'")
        .await;
    let pages = pages_of(&plans[0].root);
    assert!(
        pages > 1_000,
        "asking the index for the highest priority touched {pages} pages only"
    );

    let hinted = format!(
        "select id, 4711, tid from rowlock.claim_batch('{{default}}', '{{6}}', 6, 0, 4711, \
         after_at => array_fill('{at}'::timestamptz, array[9]), after_id => array_fill({id}::bigint, array[9])) where id is not null"
    );
    for statistics in ["stale", "fresh"] {
        if statistics == "fresh" {
            run(pg, "analyze rowlock.job").await;
        }
        let situation = format!("a million dead rows, {statistics} statistics");
        first_and_tenth(&situation, old, url, &hinted, true).await;
        let (jobs, plans) = old.pinned(&situation, &hinted).await;
        let (pages, rows) = probed(&plans);
        assert_eq!(jobs.len(), 6, "{situation}: the claim found {jobs:?}");
        assert!(
            rows <= 500 && pages < 1_000,
            "{situation}: the claim visited {rows} rows and {pages} pages"
        );
    }
    // Who looks for queues that have no row passes by those that have one.
    let (_, plans) = old.plans("select rowlock.heal_queues()").await;
    let pages: i64 = plans.iter().map(|plan| pages_of(&plan.root)).sum();
    assert!(pages < 500, "looking for queues touched {pages} pages");
    let dead = number(
        pg,
        "select n_dead_tup from pg_stat_user_tables where relname = 'job'",
    )
    .await;
    assert!(
        dead > 900_000,
        "vacuum was to be held back, but there are {dead} dead rows"
    );
    run(&horizon, "commit").await;
}

#[tokio::test]
async fn what_holds_vacuum_back() {
    let own = installed().await;
    let pg = &own.pg;
    run(pg, "alter table rowlock.job set (autovacuum_enabled = off)").await;
    let other = own.another().await;
    let left = "select pg_relation_size('rowlock.job') > 0";
    let mut outcome = Vec::new();
    for begin in [
        "begin isolation level read committed; select count(*) from rowlock.queue",
        "begin isolation level repeatable read; select count(*) from rowlock.queue",
        "begin isolation level read committed; create temporary table writes (n int)",
    ] {
        run(pg, "truncate rowlock.job").await;
        run(&other, begin).await;
        let jobs = super::kit::enqueue(pg, 3).await;
        let claimed = super::kit::claim(pg, "n => 3").await;
        assert_eq!(ids(&claimed), jobs, "all three are claimed");
        assert_eq!(
            super::kit::complete(pg, &claimed)
                .await
                .matches(',')
                .count(),
            2,
            "all three are done"
        );
        run(pg, "vacuum (truncate on) rowlock.job").await;
        outcome.push(one(pg, left).await);
        run(&other, "rollback").await;
    }
    assert_eq!(
        outcome,
        ["f", "t", "t"],
        "an idle READ COMMITTED transaction lets vacuum work; a snapshot that is kept, and a transaction that wrote, do not"
    );
}

/// Who wants one job and finds that others hold the next thousand tried them one by one.
#[tokio::test]
async fn a_claim_passes_what_others_hold_in_few_steps() {
    let own = installed().await;
    run(
        &own.pg,
        "insert into rowlock.job (id, kind, payload) select n, 'k', '{}' from generate_series(1, 1001) n",
    )
    .await;
    let holder = own.another().await;
    run(
        &holder,
        "begin; select from rowlock.job where id <= 1000 for update",
    )
    .await;
    let mut explained = Explained::open(own.db.url()).await;
    let claim =
        "select id from rowlock.claim_batch('{default}', '{1}', 1, 7, 99) where id is not null";
    let (found, plans) = explained.plans(claim).await;
    assert_eq!(found, ["1001"]);
    let tries = plans
        .iter()
        .filter(|p| p.query.contains("j.queue = lock_places.queue"))
        .count();
    assert!((1..=10).contains(&tries), "{tries} tries");
}
