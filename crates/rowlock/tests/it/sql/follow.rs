//! Claims of one queue follow each other: the next starts where the last one stopped, whoever made it.

use super::kit::{enqueue, installed, number, one, rows, run, until};

/// Workers of one queue start where the last claim stopped, instead of walking over what the others have taken.
#[tokio::test]
async fn a_claim_may_start_where_the_last_one_stopped() {
    let own = installed().await;
    let pg = &own.pg;
    let jobs = enqueue(pg, 6).await;
    let claim = |kinds: &str, want: i32, follow: bool| {
        format!(
            "select id from rowlock.claim_batch('{{default}}', '{{{want}}}', {want}, 0, 99, kinds => {kinds}, follow => '{{{follow}}}', \
             after_at => array_fill('2020-01-01'::timestamptz, array[9]), after_id => array_fill(0::bigint, array[9])) \
             where id is not null order by id"
        )
    };
    let text = |ids: &[i64]| ids.iter().map(i64::to_string).collect::<Vec<_>>();
    let stopped = "select pg_sequence_last_value(('rowlock.cursor_id_' || no % 32)::regclass) from rowlock.queue";

    // It passed over jobs that another caller may take, so it says nothing.
    assert!(rows(pg, &claim("'{other}'", 6, true)).await.is_empty());
    assert_eq!(one(pg, stopped).await, "null");

    run(
        pg,
        &format!(
            "update rowlock.job set run_at = now() - interval '1 minute' where id = {}",
            jobs[0]
        ),
    )
    .await;
    assert_eq!(rows(pg, &claim("null", 100, true)).await, text(&jobs));
    assert_eq!(
        number(pg, stopped).await,
        jobs[5],
        "all are taken, up to the last"
    );

    // What is behind that place is not seen by who follows, and seen by who does not.
    run(
        pg,
        &format!(
            "update rowlock.job set lease_until = '-infinity' where id = {}",
            jobs[2]
        ),
    )
    .await;
    assert!(rows(pg, &claim("null", 100, true)).await.is_empty());
    assert_eq!(
        rows(pg, &claim("null", 100, false)).await,
        text(&jobs[2..3])
    );

    // Another queue that shares the sequences is not misled.
    run(pg, "insert into rowlock.queue (name, no) select 'neighbour', no + 32 from rowlock.queue where name = 'default'").await;
    run(
        pg,
        "select rowlock.enqueue('k', queue => 'neighbour', run_at => '2021-01-01')",
    )
    .await;
    let sql = claim("null", 100, true).replace("{default}", "{neighbour}");
    assert_eq!(rows(pg, &sql).await.len(), 1);

    // Nor is anybody misled by a place that lies ahead, since the clock was set back.
    run(
        pg,
        "select setval(('rowlock.cursor_at_' || no % 32)::regclass, \
           (extract(epoch from now() + interval '1 day' - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint << 11 | (no / 32 & 255)) \
         from rowlock.queue where name = 'default'",
    )
    .await;
    let more = enqueue(pg, 1).await;
    assert_eq!(rows(pg, &claim("null", 100, true)).await, text(&more));
}

/// What was given back lies before the place where the last claim stopped.
#[tokio::test]
async fn who_gives_jobs_back_makes_the_next_one_look_from_there() {
    let own = installed().await;
    let pg = &own.pg;
    let jobs = enqueue(pg, 6).await;
    let follow = "select id from rowlock.claim_batch('{default}', '{6}', 6, 0, 99, follow => '{true}', \
         after_at => array_fill('-infinity'::timestamptz, array[9]), after_id => array_fill(0::bigint, array[9])) where id is not null order by id";
    assert_eq!(rows(pg, follow).await.len(), 6, "all are taken");
    let more = enqueue(pg, 1).await;
    assert_eq!(
        rows(pg, follow).await,
        [more[0].to_string()],
        "it starts behind the six"
    );
    let given_back = jobs[2];
    run(
        pg,
        &format!("select rowlock.release('default', '{{{given_back}}}', '{{99}}')"),
    )
    .await;
    assert_eq!(
        rows(pg, follow).await,
        [given_back.to_string()],
        "that place is set back"
    );
    // Not further than needed: before it may lie all that was finished since vacuum last came by.
    run(
        pg,
        &format!(
            "update rowlock.job set lease_until = '-infinity' where id in ({}, {given_back})",
            jobs[1]
        ),
    )
    .await;
    run(
        pg,
        &format!("select rowlock.rewind('default', (select run_at from rowlock.job where id = {given_back}))"),
    )
    .await;
    assert_eq!(rows(pg, follow).await, [given_back.to_string()]);
    run(pg, "select rowlock.rewind('default')").await;
    assert_eq!(rows(pg, follow).await, [jobs[1].to_string()]);
}

/// A claim that wants few of the jobs that it sees did not say where it stopped, and whoever came next walked over what it had taken.
#[tokio::test]
async fn a_claim_that_wants_few_says_where_it_stopped_too() {
    let own = installed().await;
    let pg = &own.pg;
    let jobs = enqueue(pg, 100).await;
    let stopped = "select pg_sequence_last_value(('rowlock.cursor_id_' || no % 32)::regclass) from rowlock.queue";
    for n in 1..=3 {
        let claim = "select id from rowlock.claim_batch('{default}', '{25}', 25, 7, 99, follow => '{t}', \
             after_at => array_fill('-infinity'::timestamptz, array[9]), after_id => array_fill(0::bigint, array[9])) where id is not null order by id";
        let taken = rows(pg, claim).await;
        let expected: Vec<String> = jobs[25 * (n - 1)..25 * n]
            .iter()
            .map(i64::to_string)
            .collect();
        assert_eq!(taken, expected);
        assert_eq!(number(pg, stopped).await, jobs[25 * n - 1]);
    }
}

/// Who was told to look from the start walks over what the others have taken, and follows them again as soon as it is where they are.
#[tokio::test]
async fn who_was_set_back_is_told_when_it_has_caught_up() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "insert into rowlock.job (kind, payload, run_at) select 'k', '{}', '2021-01-01' from generate_series(1, 5000)",
    )
    .await;
    let claim = |want: i32, follow: bool, after: &str| {
        format!(
            "select payload ->> 'caught_up', count(*) over () - 1 from rowlock.claim_batch('{{default}}', '{{{want}}}', {want}, 0, 99, \
             follow => '{{{follow}}}', after_at => array_fill('2021-01-01'::timestamptz, array[9]), after_id => array_fill({after}::bigint, array[9])) \
             order by id desc limit 1"
        )
    };
    let few = claim(10, false, "0");
    assert_eq!(one(pg, &few).await, "false|10", "there is more");
    let first = number(pg, "select min(id) from rowlock.job").await;
    let followed = claim(4000, true, &format!("{first} + 9"));
    assert_eq!(one(pg, &followed).await, "true|4000", "it leads");

    run(
        pg,
        &format!("update rowlock.job set lease_until = '-infinity' where id < {first} + 100"),
    )
    .await;
    let last = claim(1, false, "0").replace(
        "'caught_up', count(*) over () - 1",
        "'last_id', (payload ->> 'last_at')::timestamptz = '2021-01-01'",
    );
    assert_eq!(
        one(pg, &last).await,
        format!("{}|t", first + 4009),
        "it is told where the others are"
    );
    let back = claim(59, false, "0");
    assert_eq!(
        one(pg, &back).await,
        "false|59",
        "there may be more of what came up behind"
    );
    let on = claim(60, false, &format!("{first} + 59"));
    assert_eq!(
        one(pg, &on).await,
        "false|40",
        "it stopped for its own bound, behind the others"
    );
    let there = claim(60, false, &format!("{first} + 3900"));
    assert_eq!(
        one(pg, &there).await,
        "false|60",
        "it has seen more than it took"
    );
    let further = claim(100, false, &format!("{first} + 4069"));
    assert_eq!(
        one(pg, &further).await,
        "true|100",
        "it is further than they"
    );
    run(
        pg,
        &format!("update rowlock.job set lease_until = '-infinity' where id < {first} + 60"),
    )
    .await;
    run(
        pg,
        &format!("delete from rowlock.job where id >= {first} + 60"),
    )
    .await;
    assert_eq!(
        one(pg, &claim(50, false, "0")).await,
        "false|50",
        "it has seen the end, and took less than was there"
    );
    assert_eq!(one(pg, &claim(50, false, "0")).await, "true|10");
}

/// The turn is over when all rows seen will be taken: another claim takes the next ones while the first still writes.
#[tokio::test]
async fn a_full_claim_gives_its_turn_back_before_it_is_committed() {
    let own = installed().await;
    let pg = &own.pg;
    let jobs = enqueue(pg, 300).await;
    let other = own.another().await;
    let claim = "select id from rowlock.claim_batch('{default}', '{150}', 150, 0, 99, follow => '{true}', \
         after_at => array_fill('-infinity'::timestamptz, array[9]), after_id => array_fill(0::bigint, array[9])) where id is not null order by id";
    let text = |ids: &[i64]| ids.iter().map(i64::to_string).collect::<Vec<_>>();
    run(&other, "begin").await;
    assert_eq!(rows(&other, claim).await, text(&jobs[..150]));
    assert_eq!(
        rows(pg, claim).await,
        text(&jobs[150..]),
        "it begins behind what is under way"
    );
    assert_eq!(
        number(
            pg,
            "select count(*) from rowlock.job where token = 99 and xmax <> 0"
        )
        .await,
        0,
        "and had the turn: it locked no row first"
    );
    // What the first does not take after all lies behind that place, and is found by a full scan.
    run(&other, "rollback").await;
    assert!(rows(pg, claim).await.is_empty());
    let sweep = "select count(id) from rowlock.sweep('default', 1000, 0, 7)";
    assert_eq!(number(pg, sweep).await, 150);
}

/// Only priority 0 is followed: a claim that takes others too keeps its turn, or the next one would see them as free and wait for it.
#[tokio::test]
async fn a_claim_of_several_priorities_keeps_its_turn() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "select rowlock.enqueue('k', priority => case when n <= 20 then 4 else 0 end) from generate_series(1, 300) n",
    )
    .await;
    let other = own.another().await;
    let claim = "select count(id) from rowlock.claim_batch('{default}', '{150}', 150, 0, 99, follow => '{true}', \
         after_at => array_fill('-infinity'::timestamptz, array[9]), after_id => array_fill(0::bigint, array[9]))";
    run(&other, "begin").await;
    assert_eq!(number(&other, claim).await, 150);
    assert_eq!(
        number(pg, claim).await,
        150,
        "it does without the turn, and without waiting for rows"
    );
    run(&other, "commit").await;
    let locked = "select count(*) from rowlock.job where xmax <> 0";
    assert_eq!(number(pg, locked).await, 150, "but locks them first");
}

/// Who is told to look before the place where the last claim stopped may see what is under way to somebody whose turn is over.
#[tokio::test]
async fn who_looks_behind_the_others_waits_for_nobody() {
    let own = installed().await;
    let pg = &own.pg;
    enqueue(pg, 300).await;
    let other = own.another().await;
    let claim = |follow: &str| {
        format!(
            "select count(id) from rowlock.claim_batch('{{default}}', '{{150}}', 150, 0, 99, follow => '{{{follow}}}', \
             after_at => array_fill('-infinity'::timestamptz, array[9]), after_id => array_fill(0::bigint, array[9]))"
        )
    };
    run(&other, "begin").await;
    assert_eq!(number(&other, &claim("true")).await, 150);
    assert_eq!(number(pg, &claim("false")).await, 150, "the other ones");
    run(&other, "rollback").await;
    assert_eq!(
        number(pg, "select count(id) from rowlock.claim(n => 200)").await,
        150
    );
}

/// A worker that is alone may claim on two connections; one that is not need not.
#[tokio::test]
async fn a_claim_says_whose_the_one_before_it_was() {
    let own = installed().await;
    let pg = &own.pg;
    let claim = |worker: i64, follow: bool| {
        format!(
            "select coalesce(payload ->> 'other', 'no') from rowlock.claim_batch('{{default}}', '{{100}}', 100, {worker}, 99, follow => '{{{follow}}}', \
             after_at => array_fill('2020-01-01'::timestamptz, array[9]), after_id => array_fill(0::bigint, array[9])) where id is null"
        )
    };
    for (worker, follow, others) in [
        (7, true, "no"), // there was none before it
        (7, true, "no"), // its own
        (8, true, "7"),
        (8, true, "no"),
        (7, false, "no"), // who does not follow does not ask
        (8, true, "no"),  // nor does it say where it stopped
        (7, true, "0"),
    ] {
        enqueue(pg, 1).await;
        assert_eq!(
            one(pg, &claim(worker, follow)).await,
            others,
            "{worker} {follow}"
        );
    }
    let ahead = "select pg_sequence_last_value(('rowlock.cursor_at_' || no % 32)::regclass) >> 11 \
                 <= extract(epoch from now() - timestamptz '2000-01-01 00:00:00+00') * 1000000 from rowlock.queue where name = 'default'";
    assert_eq!(one(pg, ahead).await, "t", "the time is told from the rest");
}

/// A full scan of a queue of 7500 jobs, the first of which others hold, beside 2501 of a lower priority, of which they hold all but the last. Claims stand at the 1000th when it begins, and may go on
/// before it has looked at anything. Which jobs it finds, by their numbers; the last is 10500.
async fn scan_beside_claims(held: i64, go_on_to: Option<i64>) -> Vec<String> {
    let own = installed().await;
    let pg = &own.pg;
    let (claims, holder, gate) = (
        own.another().await,
        own.another().await,
        own.another().await,
    );
    run(
        pg,
        "insert into rowlock.job (id, priority, kind, payload, created_at, run_at) select n, case when n >= 8000 then -4 else 0 end, 'k', '{}', t, t \
         from (select now() - interval '1 minute' as t) t, (select generate_series(1, 7500) as n union all select generate_series(8000, 10500)) n",
    )
    .await;
    run(pg, "select rowlock.ensure_queue('default')").await;
    let stop = |id: i64| {
        format!(
            "select rowlock.stopped_at(q.no, 7, j.run_at, j.id) from rowlock.queue q, rowlock.job j where j.id = {id}"
        )
    };
    run(&claims, &stop(1000)).await;
    run(
        &holder,
        &format!("begin; select from rowlock.job where id <= {held} or id between 8000 and 10499 for update"),
    )
    .await;
    run(
        &gate,
        "begin; lock table rowlock.bundle in access exclusive mode",
    )
    .await;
    let scan = rows(
        pg,
        "select id from rowlock.sweep('default', 1, 7, 99) where id is not null",
    );
    let claim = async {
        let waits = "select exists (select from pg_locks where not granted and relation = 'rowlock.bundle'::regclass)";
        until(&claims, waits, "for the scan to begin").await;
        if let Some(place) = go_on_to {
            run(&claims, &stop(place)).await;
        }
        run(&gate, "commit").await;
    };
    tokio::join!(scan, claim).0
}

/// It went along with them for as long as they found jobs, one locked row after the other, and took a third of the machine.
#[tokio::test]
async fn a_scan_does_not_follow_claims_that_go_on() {
    let nothing = [""; 0];
    assert_eq!(scan_beside_claims(7000, Some(3000)).await, nothing);
    assert_eq!(
        scan_beside_claims(7000, None).await,
        ["7001"],
        "what is ahead of claims that stand still is looked at"
    );
    assert_eq!(
        scan_beside_claims(4500, Some(3000)).await,
        ["4501"],
        "it looks once ahead of claims that go on"
    );
    assert_eq!(
        scan_beside_claims(500, Some(3000)).await,
        ["501"],
        "what is behind them is what it is for"
    );
}

/// Where claims keep up with what comes in, nothing is ahead of them, and what lies behind in lower priorities must be found all the same.
#[tokio::test]
async fn a_scan_beside_claims_that_keep_up_finds_lower_priorities() {
    assert_eq!(scan_beside_claims(7500, Some(7500)).await, ["10500"]);
}
