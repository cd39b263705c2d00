//! Where a claim begins, and how far it goes.

use super::kit::{claim_batch, installed, job, number, rows, run};

#[tokio::test]
async fn a_cursor_skips_what_lies_behind_it_and_a_claim_without_finds_it() {
    let own = installed().await;
    let pg = &own.pg;
    let mut all = Vec::new();
    for day in 1..=5 {
        all.push(job(pg, &format!("2021-01-0{day}"), 0).await);
    }
    let cursor = format!(
        "after_at => array_fill('2021-01-03'::timestamptz, array[9]), after_id => array_fill({}::bigint, array[9])",
        all[2]
    );
    assert_eq!(
        claim_batch(pg, &cursor).await.0,
        all[3..],
        "only what comes after the cursor"
    );
    assert_eq!(
        claim_batch(pg, &cursor).await.0,
        [0; 0],
        "nothing is left there"
    );
    assert_eq!(
        claim_batch(pg, "suspects => true").await.0,
        all[..3],
        "a claim without a cursor is always right"
    );
}

#[tokio::test]
async fn each_priority_has_its_own_cursor() {
    let own = installed().await;
    let pg = &own.pg;
    let (high, low) = (
        job(pg, "2021-01-01", 4).await,
        job(pg, "2021-01-01", -4).await,
    );
    // Past the high one, before the low one: the entries stand for the priorities 4 down to -4.
    let cursor = "after_at => array['2022-01-01'::timestamptz] || array_fill('-infinity'::timestamptz, array[8]), after_id => array_fill(0::bigint, array[9])";
    assert_eq!(claim_batch(pg, cursor).await.0, [low]);
    assert_eq!(claim_batch(pg, "look_back_ms => 0").await.0, [high]);
}

#[tokio::test]
async fn looking_back_finds_what_committed_late() {
    let own = installed().await;
    let pg = &own.pg;
    let id = number(
        pg,
        "select id from rowlock.enqueue('k', run_at => now() - interval '3 seconds')",
    )
    .await;
    let old = job(pg, "2021-01-01", 0).await;
    let cursor =
        "after_at => array_fill(now(), array[9]), after_id => array_fill(9999::bigint, array[9])";
    assert_eq!(
        claim_batch(pg, cursor).await.0,
        [0; 0],
        "both lie behind the cursor"
    );
    assert_eq!(
        claim_batch(pg, &format!("{cursor}, look_back_ms => 1000"))
            .await
            .0,
        [0; 0],
        "not far enough"
    );
    assert_eq!(
        claim_batch(pg, &format!("{cursor}, look_back_ms => 60000"))
            .await
            .0,
        [id],
        "three seconds are within a minute"
    );
    assert_eq!(claim_batch(pg, "look_back_ms => 0").await.0, [old]);
}

#[tokio::test]
async fn a_claim_visits_a_bounded_number_of_rows_and_says_where_it_stopped() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "insert into rowlock.job (kind, payload, run_at) select 'unknown', '{}', '2021-01-01'::timestamptz + g * interval '1 s' from generate_series(1, 5000) g",
    )
    .await;
    let known = number(pg, "select id from rowlock.enqueue('known')").await;
    let mut at = "null::timestamptz[]".to_owned();
    let mut id = "null::bigint[]".to_owned();
    let mut calls = 0;
    loop {
        calls += 1;
        assert!(
            calls <= 4,
            "5,000 rows are passed in a few calls of 2,000 and more"
        );
        let call = format!(
            "select coalesce(id, 0), payload ->> 'more', translate(payload ->> 'cursor_at', '[]', '{{}}'), translate(payload ->> 'cursor_id', '[]', '{{}}') from rowlock.claim_batch('{{default}}', '{{1}}', 1, 0, 99, \
             kinds => '{{known}}', after_at => {at}, after_id => {id})"
        );
        let all = rows(pg, &call).await;
        if all.len() == 2 {
            assert!(
                all[0].starts_with(&format!("{known}|")),
                "the known one is found: {all:?}"
            );
            break;
        }
        let cells: Vec<&str> = all[0].split('|').collect();
        assert_eq!(
            cells[1], "true",
            "the claim stopped at its own bound: {all:?}"
        );
        assert_ne!(cells[2], "null", "and says where: {all:?}");
        at = format!("'{}'", cells[2]);
        id = format!("'{}'", cells[3]);
    }
    assert!(calls >= 2, "one call visited all 5,000 rows");
}
