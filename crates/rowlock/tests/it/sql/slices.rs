//! Full scans go by slices, from one milestone to the next: whatever those are, everything is found, however much there is ahead.

use std::collections::BTreeSet;

use tokio_postgres::Client as Pg;

use super::kit::{Installed, installed, number, rows, run};

/// Jobs with these ids, in the order of the queue.
async fn queue_of(n: usize) -> Installed {
    let own = installed().await;
    let sql = format!(
        "insert into rowlock.job (id, kind, payload, run_at) \
         select n, 'k', '{{}}', timestamptz '2021-01-01' + n * interval '1 s' from generate_series(1, {n}) n"
    );
    run(&own.pg, &sql).await;
    run(&own.pg, "select rowlock.ensure_queue('default')").await;
    own
}

/// A full scan, whenever the last one was: the jobs that it found.
async fn sweep(pg: &Pg, want: usize) -> Vec<i64> {
    sweep_for(pg, want, "null").await
}

/// The same, for jobs of these kinds.
async fn sweep_for(pg: &Pg, want: usize, kinds: &str) -> Vec<i64> {
    run(
        pg,
        "select setval(('rowlock.sweep_' || no % 32)::regclass, 1) from rowlock.queue",
    )
    .await;
    let sql = format!(
        "select coalesce(id, 0) from rowlock.sweep('default', {want}, 1, 7, kinds => {kinds})"
    );
    let found = rows(pg, &sql).await;
    assert_eq!(found.last().map(String::as_str), Some("0"), "{found:?}");
    let ids = found[..found.len() - 1].iter();
    ids.map(|id| id.parse().expect("an id")).collect()
}

async fn milestones(pg: &Pg) -> i64 {
    number(pg, "select count(*) from rowlock.milestone").await
}

/// Where claims are there is always something to take, and a scan that has one slot would never come to what was left behind.
#[tokio::test]
async fn what_was_left_behind_is_found_however_much_there_is_ahead() {
    let own = queue_of(100).await;
    let pg = &own.pg;
    run(
        pg,
        "insert into rowlock.milestone select 'default', 0, run_at, id from rowlock.job where id in (20, 40, 60, 80)",
    )
    .await;
    run(
        pg,
        "update rowlock.job set lease_until = 'infinity', token = 1 where id <= 85 and id not in (5, 25, 45, 65);
         select rowlock.stopped_at(no, 1, timestamptz '2021-01-01' + 85 * interval '1 s', 85) from rowlock.queue",
    )
    .await;
    let mut found = BTreeSet::new();
    for _ in 0..4 {
        found.extend(sweep(pg, 1).await);
    }
    assert_eq!(found, BTreeSet::from([5, 25, 45, 65]));
    assert_eq!(sweep(pg, 1).await, [86], "and then what is next");
}

/// The next scan of whoever looks for these kinds (an array, or null) begins after the `n`-th slice.
fn goes_on_after(n: u32, kinds: &str) -> String {
    format!(
        "select setval(('rowlock.slice_' || no % 32)::regclass,
                       ({n}::bigint << 16) | ((no / 32 & 255) << 8) | (hashtextextended(coalesce({kinds}::text[]::text, ''), 0) & 255))
           from rowlock.queue"
    )
}

/// In any priority, between any milestones, each job is found once.
#[tokio::test]
async fn whatever_the_milestones_are_all_is_found() {
    for (seed, stones) in [(0.1, 0), (0.2, 1), (0.3, 2), (0.4, 7), (0.5, 30)] {
        let own = queue_of(500).await;
        let pg = &own.pg;
        let sql = format!(
            "select setseed({seed});
             update rowlock.job set priority = floor(random() * 9) - 4, run_at = timestamptz '2021-01-01' + floor(random() * 20) * interval '1 s';
             insert into rowlock.milestone
             select 'default', priority, run_at, case when random() < 0.5 then id else 0 end from rowlock.job order by random() limit {stones}"
        );
        run(pg, &sql).await;
        run(pg, &goes_on_after(3, "null")).await;
        let mut found = Vec::new();
        // Each comes at least one slice further.
        for _ in 0..=stones {
            found.extend(sweep(pg, 1000).await);
        }
        found.sort_unstable();
        assert_eq!(found, (1..=500).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[tokio::test]
async fn where_there_is_little_milestones_are_forgotten() {
    let own = queue_of(10).await;
    let pg = &own.pg;
    run(
        pg,
        "insert into rowlock.milestone select 'default', 0, run_at, id from rowlock.job",
    )
    .await;
    run(
        pg,
        "insert into rowlock.milestone values ('other', 0, '2021-01-01', 1)",
    )
    .await;
    // How long a slice takes is measured, so it may take more than one.
    for _ in 0..1000 {
        if milestones(pg).await == 1 {
            return;
        }
        sweep(pg, 100).await;
    }
    panic!("{} milestones are left", milestones(pg).await);
}

#[tokio::test]
async fn claims_leave_milestones_where_they_have_come_to() {
    let own = queue_of(60).await;
    let pg = &own.pg;
    run(
        pg,
        "select rowlock.set_queue('default', '{\"retention\": \"0\"}');
         create or replace function rowlock.is_milestone(jobs integer) returns boolean language sql volatile return jobs > 0",
    )
    .await;
    let cursor = "after_at => array_fill('-infinity'::timestamptz, array[9]), after_id => array_fill(0::bigint, array[9])";
    let last = "select id from rowlock.milestone order by run_at desc, id desc limit 1";
    run(
        pg,
        &format!("select rowlock.claim_bundle('default', 30, 7, 99, {cursor})"),
    )
    .await;
    assert_eq!(number(pg, last).await, 30);
    let follow = format!("follow => '{{t}}', {cursor}");
    run(
        pg,
        &format!("select rowlock.claim_batch('{{default}}', '{{25}}', 25, 7, 98, {follow})"),
    )
    .await;
    assert_eq!(number(pg, last).await, 55);
    run(pg, "update rowlock.job set run_at = clock_timestamp() where id > 55; select rowlock.claim_fresh('default', 10, 7, 97)").await;
    assert_eq!(milestones(pg).await, 3);
    // Who keeps no cursor does not sweep either, and would leave them for ever.
    run(
        pg,
        "update rowlock.job set lease_until = '-infinity'; select rowlock.claim('{default}', 60)",
    )
    .await;
    assert_eq!(milestones(pg).await, 3);
}

/// One slice for each scan, besides where the claims are.
const ONE_BY_ONE: &str = "create or replace function rowlock.scan_for() returns interval language sql immutable return interval '0'";

/// Where it was to go on got lost on the way into the sequence, and each scan began with the same slice.
#[tokio::test]
async fn a_scan_goes_on_where_the_last_one_stopped() {
    let own = queue_of(100).await;
    let pg = &own.pg;
    run(pg, ONE_BY_ONE).await;
    run(
        pg,
        "insert into rowlock.milestone select 'default', 0, run_at, id from rowlock.job where id % 5 = 0;
         update rowlock.job set lease_until = 'infinity', token = 1 where id <> 77;
         select rowlock.stopped_at(no, 1, timestamptz '2021-01-01' + 100 * interval '1 s', 100) from rowlock.queue",
    )
    .await;
    run(pg, &goes_on_after(0, "null")).await;
    let next = "select pg_sequence_last_value(('rowlock.slice_' || no % 32)::regclass) >> 16 from rowlock.queue";
    for n in 1..=15 {
        assert!(sweep(pg, 5).await.is_empty());
        assert_eq!(number(pg, next).await, n);
    }
    assert_eq!(sweep(pg, 5).await, [77]);
    for _ in 17..=20 {
        assert!(sweep(pg, 5).await.is_empty());
    }
    assert_eq!(number(pg, next).await, 0, "from the start again");
}

/// A slice that ends in a lower priority does not reach to where the higher one is claimed: that always fills the room.
#[tokio::test]
async fn what_was_left_behind_is_found_in_any_priority() {
    let own = queue_of(100).await;
    let pg = &own.pg;
    run(pg, ONE_BY_ONE).await;
    run(
        pg,
        "update rowlock.job set priority = 1 where id <= 90;
         update rowlock.job set lease_until = 'infinity', token = 1 where id <= 50 and id <> 5 or id > 90;
         insert into rowlock.milestone select 'default', priority, run_at, id from rowlock.job where id in (20, 40, 95)",
    )
    .await;
    let mut found = BTreeSet::new();
    for _ in 0..6 {
        found.extend(sweep(pg, 1).await);
    }
    assert!(found.contains(&5), "{found:?}");
}

/// Claims of priority 0 that go on meanwhile are nothing to a slice of a higher priority.
#[tokio::test]
async fn a_slice_of_a_higher_priority_is_scanned_to_its_end() {
    let own = queue_of(10_000).await;
    let pg = &own.pg;
    run(
        pg,
        "update rowlock.job set priority = 1, lease_until = case when id < 10000 then 'infinity'::timestamptz else lease_until end, token = 1;
         select rowlock.stopped_at(no, 1, '2022-01-01', 1) from rowlock.queue",
    )
    .await;
    let scan = "select id from rowlock.scan('default', 1, 7, 9, null, null,
                  rowlock.slice(null, null, null, 4, '2023-01-01', 0, array_fill('2023-01-01'::timestamptz, array[9]), array_fill(0::bigint, array[9])),
                  '2021-06-01', 1) where id is not null";
    assert_eq!(rows(pg, scan).await, ["10000"]);
}

#[tokio::test]
async fn a_scan_of_a_paused_queue_forgets_nothing() {
    let own = queue_of(10).await;
    let pg = &own.pg;
    run(
        pg,
        "insert into rowlock.milestone select 'default', 0, run_at, id from rowlock.job; select rowlock.pause('default')",
    )
    .await;
    for _ in 0..5 {
        assert!(sweep(pg, 5).await.is_empty());
    }
    assert_eq!(milestones(pg).await, 10);
}

/// With more slices than scans come to, each scan looks into one of them anywhere.
#[tokio::test]
async fn of_many_slices_none_is_left_out() {
    let own = queue_of(200).await;
    let pg = &own.pg;
    run(pg, ONE_BY_ONE).await;
    run(
        pg,
        "insert into rowlock.milestone select 'default', 0, run_at, id from rowlock.job where id % 2 = 0;
         update rowlock.job set lease_until = 'infinity', token = 1 where id <> 3;
         select rowlock.stopped_at(no, 1, timestamptz '2021-01-01' + 200 * interval '1 s', 200) from rowlock.queue",
    )
    .await;
    for _ in 0..5000 {
        // As if others had always been ahead of it.
        run(pg, &goes_on_after(50, "null")).await;
        if sweep(pg, 5).await == [3] {
            return;
        }
    }
    panic!("it was never found");
}

/// Who has other kinds passes over what this one is after: that the slice was scanned by somebody says nothing.
#[tokio::test]
async fn scans_for_other_kinds_do_not_count() {
    let own = queue_of(50).await;
    let pg = &own.pg;
    run(pg, ONE_BY_ONE).await;
    run(
        pg,
        "insert into rowlock.milestone select 'default', 0, run_at, id from rowlock.job where id % 2 = 0;
         update rowlock.job set lease_until = 'infinity', token = 1 where id <> 33;
         update rowlock.job set kind = 'mine' where id = 33;
         select rowlock.stopped_at(no, 1, timestamptz '2021-01-01' + 50 * interval '1 s', 50) from rowlock.queue",
    )
    .await;
    for _ in 0..5000 {
        // The others have just been there.
        run(pg, &goes_on_after(17, "'{theirs}'")).await;
        if sweep_for(pg, 5, "'{mine}'").await == [33] {
            return;
        }
    }
    panic!("it was never found");
}
