//! A claim goes past what others hold: nothing free is left behind, and the order stays that of the queue.

use super::kit::{claim, enqueue, ids, installed, rows, run};

#[tokio::test]
async fn a_row_that_an_open_transaction_has_locked_is_skipped() {
    let own = installed().await;
    let pg = &own.pg;
    let jobs = enqueue(pg, 3).await;
    let other = own.another().await;
    run(
        &other,
        &format!(
            "begin; select from rowlock.job where id = {} for update",
            jobs[0]
        ),
    )
    .await;
    assert_eq!(ids(&claim(pg, "n => 2").await), jobs[1..]);
    run(&other, "rollback").await;
    // The mark of the lock stays in the row, and means nothing any more.
    assert_eq!(ids(&claim(pg, "n => 2").await), jobs[..1]);
}

/// Where others hold the first ones, what is taken instead is what comes next, not what lies first on disk.
#[tokio::test]
async fn past_what_others_hold_the_order_is_the_same() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "insert into rowlock.job (id, priority, kind, payload, run_at) \
         select n, case when n > 8 then -4 else 4 end, 'k', '{}', timestamptz '2021-01-01' + n * interval '1 s' from generate_series(10, 1, -1) n",
    )
    .await;
    let other = own.another().await;
    run(
        &other,
        "begin; select from rowlock.job where id in (1, 4) for update",
    )
    .await;
    for expected in [2, 3, 5] {
        assert_eq!(ids(&claim(pg, "n => 1").await), [expected]);
    }
    assert_eq!(ids(&claim(pg, "n => 4").await), [6, 7, 8, 9]);
}

/// What was set back has not caught up while there is something left that it did not try.
#[tokio::test]
async fn who_left_jobs_because_it_wanted_no_more_has_not_caught_up() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "insert into rowlock.job (id, kind, payload, run_at) select n, 'k', '{}', '2021-01-01' from generate_series(1, 5) n",
    )
    .await;
    run(
        pg,
        "select rowlock.stopped_at((rowlock.ensure_queue('default')).no, 7, '2022-01-01', 1)",
    )
    .await;
    let other = own.another().await;
    run(
        &other,
        "begin; select from rowlock.job where id = 1 for update",
    )
    .await;
    let claim = "select coalesce(id::text, payload ->> 'caught_up') from rowlock.claim_batch('{default}', '{1}', 1, 7, 99, follow => '{f}', \
                 after_at => array_fill('-infinity'::timestamptz, array[9]), after_id => array_fill(0::bigint, array[9]))";
    assert_eq!(rows(pg, claim).await, ["2", "false"]);
}

/// Steps that grew without bound were more than a number can say after some ten thousand rows, and the claim failed.
#[tokio::test]
async fn a_claim_passes_any_number_of_rows_that_others_hold() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "insert into rowlock.job (id, kind, payload) select n, 'k', '{}' from generate_series(1, 20001) n",
    )
    .await;
    let other = own.another().await;
    run(
        &other,
        "begin; select from rowlock.job where id <= 20000 for update",
    )
    .await;
    let claim = "select id from rowlock.claim_batch('{default}', '{1}', 1, 7, 99, look_back_ms => 1000) where id is not null";
    assert_eq!(rows(pg, claim).await, ["20001"]);
}

/// A look back that passed over one counted as complete: when the lock was given free again, only a full scan found the job.
#[tokio::test]
async fn a_claim_says_that_it_passed_over_what_was_locked() {
    let own = installed().await;
    let pg = &own.pg;
    let jobs = enqueue(pg, 2).await;
    let other = own.another().await;
    run(
        &other,
        &format!(
            "begin; select from rowlock.job where id = {} for update",
            jobs[0]
        ),
    )
    .await;
    let claim = "select coalesce(id::text, coalesce(payload ->> 'locked', 'nothing locked')) \
                 from rowlock.claim_batch('{default}', '{5}', 5, 7, 99, look_back_ms => 1000)";
    assert_eq!(rows(pg, claim).await, [&jobs[1].to_string(), "true"]);
    run(&other, "rollback").await;
    assert_eq!(
        rows(pg, claim).await,
        [&jobs[0].to_string(), "nothing locked"]
    );
}
