//! A job is found by its place, which is only a hint: rows move, and others come to where they were.

use super::kit::{Held, claim, complete, enqueue, installed, is, named, number, one, rows, run};

#[tokio::test]
async fn an_extend_moves_the_row_and_complete_still_finds_it_by_its_id() {
    let own = installed().await;
    let pg = &own.pg;
    let id = enqueue(pg, 1).await[0];
    let held = claim(pg, "n => 1").await;
    let extended = one(
        pg,
        &format!(
            "select done, lost, busy, tids[1], cancelled from rowlock.extend({}, 86400000)",
            named(&held)
        ),
    )
    .await;
    let moved = extended.split('|').nth(3).expect("a tid").to_owned();
    assert_ne!(moved, held[0].tid, "the row has moved");
    assert_eq!(extended, format!("{{{id}}}|{{}}|{{}}|{moved}|{{}}"));
    assert!(
        is(
            pg,
            "select lease_until > clock_timestamp() + interval '23 hours' from rowlock.job"
        )
        .await,
        "the lease is longer"
    );
    assert_eq!(
        complete(pg, &held).await,
        format!("{{{id}}}|{{}}|{{}}"),
        "with the old tid"
    );
    assert_eq!(
        one(pg, "select outcome from rowlock.finished").await,
        "done"
    );
}

#[tokio::test]
async fn complete_survives_a_table_rewrite() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "insert into rowlock.job (kind, payload) select 'k', '{}' from generate_series(1, 200)",
    )
    .await;
    let first = claim(pg, "n => 100").await;
    assert!(complete(pg, &first).await.ends_with("|{}|{}"));
    let held = claim(pg, "n => 100").await;
    run(pg, "vacuum full rowlock.job").await;
    assert!(
        is(
            pg,
            &format!(
                "select bool_or(ctid <> '{}') from rowlock.job where id = {}",
                held[0].tid, held[0].id
            )
        )
        .await,
        "the rows have moved"
    );
    let said = complete(pg, &held).await;
    assert_eq!(
        (said.matches(',').count(), said.ends_with("|{}|{}")),
        (99, true),
        "all 100 are done: {said}"
    );
    assert_eq!(
        one(
            pg,
            "select count(*), count(distinct id) from rowlock.finished"
        )
        .await,
        "200|200"
    );
}

#[tokio::test]
async fn a_tid_that_now_belongs_to_another_job_completes_nothing_but_its_own() {
    let own = installed().await;
    let pg = &own.pg;
    enqueue(pg, 2).await;
    let held = claim(pg, "n => 2").await;
    let crossed = [Held {
        tid: held[1].tid.clone(),
        ..held[0].clone()
    }];
    assert_eq!(
        complete(pg, &crossed).await,
        format!("{{{}}}|{{}}|{{}}", held[0].id)
    );
    assert_eq!(
        number(pg, "select id from rowlock.job").await,
        held[1].id,
        "the other is still there"
    );
}

/// A place is only a hint: a row that is now where another was is not finished in its stead.
#[tokio::test]
async fn a_row_in_the_place_of_another_is_not_finished_for_it() {
    for retention in ["0", "1 day"] {
        let own = installed().await;
        let pg = &own.pg;
        run(
            pg,
            &format!("select rowlock.set_queue('default', '{{\"retention\": \"{retention}\"}}')"),
        )
        .await;
        enqueue(pg, 3).await;
        let jobs = claim(pg, "n => 3").await;

        // The first is said to be where the second is, and both have the token of the same claim.
        let astray = Held {
            tid: jobs[1].tid.clone(),
            ..jobs[0].clone()
        };
        let said = complete(pg, std::slice::from_ref(&astray)).await;
        assert_eq!(
            said,
            format!("{{{}}}|{{}}|{{}}", jobs[0].id),
            "retention {retention}: the id decides"
        );
        assert_eq!(
            rows(pg, "select id from rowlock.job order by id").await,
            [jobs[1].id.to_string(), jobs[2].id.to_string()],
            "retention {retention}: the second is still there"
        );

        // In any order, and named twice, a job is finished once.
        let again = [jobs[2].clone(), jobs[1].clone(), jobs[2].clone()];
        complete(pg, &again).await;
        assert_eq!(
            number(pg, "select count(*) from rowlock.job").await,
            0,
            "retention {retention}: all are finished"
        );
        let kept = if retention == "0" { 0 } else { 3 };
        assert_eq!(
            number(pg, "select count(*) from rowlock.finished").await,
            kept,
            "retention {retention}: each is in the history once, if there is one"
        );
    }
}
