//! What a claim takes, and in which order.

use super::kit::{
    claim, claim_batch, complete, enqueue, ids, installed, job, move_clock, number, one, refused,
    rows, run, stop_clock,
};

#[tokio::test]
async fn priority_comes_first_then_time_then_id() {
    let own = installed().await;
    let pg = &own.pg;
    let late = job(pg, "2021-01-02", 0).await;
    let early = job(pg, "2021-01-01", 0).await;
    let same_time = job(pg, "2021-01-02", 0).await;
    let low = job(pg, "2020-01-01", -4).await;
    let high_late = job(pg, "2022-01-01", 4).await;
    let high_early = job(pg, "2021-06-01", 4).await;
    let middle = job(pg, "2023-01-01", 1).await;
    run(
        pg,
        "select rowlock.enqueue('k', delay => '1 hour', priority => 4)",
    )
    .await;

    let wanted = [high_early, high_late, middle, early, late, same_time, low];
    for (n, wanted) in wanted.into_iter().enumerate() {
        assert_eq!(
            ids(&claim(pg, "n => 1").await),
            [wanted],
            "claim number {}",
            n + 1
        );
    }
    assert_eq!(
        claim(pg, "n => 10").await,
        [],
        "the last one is not due yet"
    );
}

#[tokio::test]
async fn one_call_answers_in_order_and_takes_no_more_than_n() {
    let own = installed().await;
    let pg = &own.pg;
    let (second, first, third) = (
        job(pg, "2021-01-02", 0).await,
        job(pg, "2021-01-01", 3).await,
        job(pg, "2021-01-03", 0).await,
    );
    assert_eq!(ids(&claim(pg, "n => 2").await), [first, second]);
    assert_eq!(ids(&claim(pg, "n => 2").await), [third]);
}

#[tokio::test]
async fn queues_are_emptied_in_the_given_order() {
    let own = installed().await;
    let pg = &own.pg;
    run(pg, "select rowlock.enqueue('k', queue => q, priority => 4) from unnest('{a,b,c}'::text[]) q, generate_series(1, 3)").await;
    let taken = rows(pg, "select queue from rowlock.claim('{c,a}', 5)").await;
    assert_eq!(taken, ["c", "c", "c", "a", "a"]);
    // The library's form bounds each queue too.
    let taken = rows(pg, "select j.queue, count(*) from rowlock.claim_batch('{b,a}', '{2,9}', 9, 0, 5) c join rowlock.job j using (id) group by 1 order by 1").await;
    assert_eq!(taken, ["a|1", "b|2"]);
    assert_eq!(
        one(pg, "select queue from rowlock.job where token = 0").await,
        "b",
        "one of b is left, as only two were wanted"
    );
}

#[tokio::test]
async fn two_sessions_take_different_jobs_and_neither_waits() {
    let own = installed().await;
    let (pg, other) = (&own.pg, own.another().await);
    let all = enqueue(pg, 10).await;
    run(pg, "begin").await;
    let first = ids(&claim(pg, "n => 4").await);
    run(&other, "set statement_timeout = '20s'").await;
    let second = ids(&claim(&other, "n => 10").await);
    run(pg, "commit").await;
    assert_eq!(first, all[..4], "the first session takes the oldest");
    assert_eq!(
        second,
        all[4..],
        "the second takes the others, while the first is still open"
    );
}

#[tokio::test]
async fn many_sessions_at_once_take_each_job_once() {
    let own = installed().await;
    run(
        &own.pg,
        "insert into rowlock.job (kind, payload) select 'k', '{}' from generate_series(1, 2000)",
    )
    .await;
    let mut sessions = Vec::new();
    for _ in 0..6 {
        let pg = own.another().await;
        sessions.push(tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let taken = claim(&pg, "n => 7").await;
                if taken.is_empty() {
                    return mine;
                }
                mine.extend(ids(&taken));
                // Another claim that looked at the same moment may hold the lock of a row until it ends, though it leaves the job
                // to us: that is busy, never lost.
                let mut left = taken;
                while !left.is_empty() {
                    let said = complete(&pg, &left).await;
                    let (done, others) = said.split_once('|').expect("three lists");
                    assert!(others.starts_with("{}|"), "none is lost: {said}");
                    let done: Vec<&str> = done.trim_matches(['{', '}']).split(',').collect();
                    left.retain(|h| !done.contains(&&*h.id.to_string()));
                }
            }
        }));
    }
    let mut all = Vec::new();
    for session in sessions {
        all.extend(session.await.expect("the session ends well"));
    }
    // A session may see nothing while the last jobs are locked by others; whatever is left is still there.
    all.extend(ids(&claim(&own.pg, "n => 2000").await));
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(
        (count, all.len()),
        (2000, 2000),
        "jobs taken, and different ones among them"
    );
}

#[tokio::test]
async fn an_expired_lease_is_claimed_like_any_other_job_and_counted() {
    let own = installed().await;
    let pg = &own.pg;
    let id = enqueue(pg, 1).await[0];
    stop_clock(pg, 0).await;
    run(
        pg,
        "select * from rowlock.claim(lease_ms => 5000, worker => 12)",
    )
    .await;
    stop_clock(pg, 4_999).await;
    assert_eq!(claim(pg, "n => 10").await, [], "the lease still holds");
    stop_clock(pg, 5_000).await;
    assert_eq!(
        one(pg, "select state, crashed from rowlock.jobs").await,
        "ready|t",
        "the state is derived"
    );
    let again = one(
        pg,
        "select id, attempt, failures, crashes from rowlock.claim(n => 10)",
    )
    .await;
    assert_eq!(
        again,
        format!("{id}|2|0|1"),
        "a new attempt, and one crash; no failure"
    );
    let remembered = one(pg, "select errors -> 0 ->> 'attempt', errors -> 0 ->> 'worker', errors -> 0 ->> 'error', jsonb_array_length(errors) from rowlock.job").await;
    assert_eq!(
        remembered,
        "1|12|the lease expired: the worker died or lost its connection|1"
    );
}

#[tokio::test]
async fn unknown_kinds_are_left_for_others() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "select rowlock.enqueue(k) from unnest('{a,b,a}'::text[]) k",
    )
    .await;
    assert_eq!(
        rows(
            pg,
            "select kind from rowlock.claim(n => 10, kinds => '{a,c}')"
        )
        .await,
        ["a", "a"]
    );
    assert_eq!(
        one(pg, "select kind, attempt from rowlock.job where token = 0").await,
        "b|0",
        "the other kind was not touched"
    );
    assert_eq!(
        rows(pg, "select kind from rowlock.claim(n => 10)").await,
        ["b"]
    );
}

#[tokio::test]
async fn a_paused_queue_gives_nothing_but_takes_jobs_and_acks() {
    let own = installed().await;
    let pg = &own.pg;
    enqueue(pg, 2).await;
    let running = claim(pg, "n => 1").await;
    run(pg, "select rowlock.pause('default')").await;
    assert_eq!(
        claim(pg, "n => 10").await,
        [],
        "nothing is claimed while paused"
    );
    enqueue(pg, 1).await;
    assert_eq!(
        complete(pg, &running).await,
        format!("{{{}}}|{{}}|{{}}", running[0].id),
        "what runs may finish"
    );
    run(pg, "select rowlock.resume('default')").await;
    assert_eq!(claim(pg, "n => 10").await.len(), 2, "after resuming");
}

#[tokio::test]
async fn a_paused_kind_is_left_and_the_others_go_on() {
    let own = installed().await;
    let pg = &own.pg;
    run(pg, "select rowlock.enqueue(k) from unnest('{slow,quick}'::text[]) k; select rowlock.pause('default', 'slow')").await;
    assert_eq!(
        rows(pg, "select kind from rowlock.claim(n => 10)").await,
        ["quick"]
    );
    run(pg, "select rowlock.resume('default', 'slow')").await;
    assert_eq!(
        rows(pg, "select kind from rowlock.claim(n => 10)").await,
        ["slow"]
    );
    assert_eq!(
        one(pg, "select kinds from rowlock.queue").await,
        "{}",
        "nothing is left of the pause"
    );
}

#[tokio::test]
async fn a_suspect_is_not_claimed_ahead() {
    let own = installed().await;
    let pg = &own.pg;
    let all = enqueue(pg, 2).await;
    claim(pg, "n => 1, lease_ms => 1000").await;
    move_clock(pg, "1 minute").await;
    assert_eq!(
        claim_batch(pg, "suspects => false").await.0,
        all[1..],
        "a job whose lease expired needs a free slot"
    );
    assert_eq!(claim_batch(pg, "suspects => true").await.0, all[..1]);
}

#[tokio::test]
async fn the_simple_claim_does_not_starve_behind_thousands_of_running_jobs() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "insert into rowlock.job (kind, payload, run_at, lease_until, token) \
         select 'k', '{}', '2021-01-01', now() + interval '1 hour', 5 from generate_series(1, 5000)",
    )
    .await;
    let ready = enqueue(pg, 1).await;
    assert_eq!(
        ids(&claim(pg, "n => 1").await),
        ready,
        "it keeps no cursor, so it must go on by itself"
    );
    let known = number(pg, "select id from rowlock.enqueue('rare')").await;
    assert_eq!(ids(&claim(pg, "n => 3, kinds => '{rare}'").await), [known]);
}

#[tokio::test]
async fn a_job_that_keeps_killing_its_workers_is_parked_as_poison() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "select rowlock.set_queue('default', '{\"max_crashes\": 3}')",
    )
    .await;
    let id = number(
        pg,
        "select id from rowlock.enqueue('killer', '{\"n\": 1}', tags => '{t}', max_attempts => 50)",
    )
    .await;
    for round in 1..=3 {
        assert_eq!(
            claim(pg, &format!("worker => {round}, lease_ms => 1000")).await[0].attempt,
            round
        );
        move_clock(pg, &format!("{round} minutes")).await;
    }
    let (jobs, end) = claim_batch(pg, "suspects => true").await;
    assert_eq!(
        (jobs.len(), end.as_str()),
        (0, "f|1|false"),
        "parked, and the claim says so"
    );
    assert_eq!(number(pg, "select count(*) from rowlock.job").await, 0);
    let dead = one(pg, "select id, reason, attempt, failures, crashes, worker, payload, tags, options from rowlock.dead").await;
    assert_eq!(
        dead,
        format!("{id}|poison|3|0|3|3|{{\"n\": 1}}|{{t}}|{{\"max_attempts\": 50}}")
    );
    let errors = rows(pg, "select e ->> 'attempt', e ->> 'worker', e ->> 'error' from rowlock.dead, jsonb_array_elements(errors) e").await;
    assert_eq!(errors.len(), 3, "all its errors, oldest first: {errors:?}");
    assert_eq!(
        errors[0],
        "1|1|the lease expired: the worker died or lost its connection"
    );
    assert_eq!(
        errors[2],
        "3|3|poison: the lease expired under this job 3 times; it is parked, not tried again"
    );
}

#[tokio::test]
async fn crashes_are_bounded_by_max_attempts_unless_told_otherwise() {
    let own = installed().await;
    let pg = &own.pg;
    run(pg, "select rowlock.enqueue('k', max_attempts => 1)").await;
    claim(pg, "lease_ms => 1000").await;
    move_clock(pg, "1 minute").await;
    assert_eq!(
        claim(pg, "lease_ms => 1000").await.len(),
        1,
        "one crash proves nothing, whatever max_attempts says"
    );
    move_clock(pg, "2 minutes").await;
    assert_eq!(claim(pg, "n => 5").await, []);
    assert_eq!(
        one(pg, "select reason, crashes from rowlock.dead").await,
        "poison|2"
    );
}

#[tokio::test]
async fn a_job_past_its_expiry_is_never_run() {
    let own = installed().await;
    let pg = &own.pg;
    let id = number(
        pg,
        "select id from rowlock.enqueue('k', expires_at => now() + interval '10 minutes')",
    )
    .await;
    let other = number(
        pg,
        "select id from rowlock.enqueue('k', run_at => now() + interval '30 seconds')",
    )
    .await;
    move_clock(pg, "11 minutes").await;
    // The simple form claims again by itself when it parked something.
    assert_eq!(ids(&claim(pg, "n => 1").await), [other]);
    assert_eq!(
        one(
            pg,
            "select id, outcome, attempt, started_at is null from rowlock.finished"
        )
        .await,
        format!("{id}|expired|0|t")
    );
}

#[tokio::test]
async fn a_queue_without_history_keeps_nothing_of_expired_jobs() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "select rowlock.set_queue('default', '{\"retention\": \"0\"}')",
    )
    .await;
    run(
        pg,
        "select rowlock.enqueue('k', expires_at => now() + interval '10 minutes')",
    )
    .await;
    move_clock(pg, "11 minutes").await;
    assert_eq!(
        claim_batch(pg, "suspects => true").await,
        (vec![], "f|1|false".to_owned())
    );
    assert_eq!(
        one(
            pg,
            "select (select count(*) from rowlock.job), (select count(*) from rowlock.finished)"
        )
        .await,
        "0|0"
    );
}

#[tokio::test]
async fn claims_with_bad_arguments_are_refused() {
    let own = installed().await;
    let pg = &own.pg;
    for (call, said) in [
        (
            "rowlock.claim(n => 0)",
            "22023 rowlock: n '0' is out of range: claim from 1 to 10000 jobs at a time",
        ),
        (
            "rowlock.claim(n => 10001)",
            "22023 rowlock: n '10001' is out of range: claim from 1 to 10000 jobs at a time",
        ),
        (
            "rowlock.claim('{}')",
            "22023 rowlock: queues '{}' must name at least one queue",
        ),
        (
            "rowlock.claim(array[null]::text[])",
            "22023 rowlock: queues '{NULL}' must name at least one queue",
        ),
        (
            "rowlock.claim(lease_ms => 999)",
            "22023 rowlock: lease_ms '999' is out of range: it must be from 1000 to 86400000",
        ),
        (
            "rowlock.claim_batch('{a}', '{1}', 1, 0, 0)",
            "22023 rowlock: token '0' is no token: make a random number for each claim",
        ),
        (
            "rowlock.claim_batch('{a}', '{1}', 1, 0, null)",
            "22023 rowlock: token 'null' is no token: make a random number for each claim",
        ),
        (
            "rowlock.claim_batch('{a}', '{1,2}', 1, 0, 5)",
            "22023 rowlock: queues '{a}' must come with as many wants, and a want for all",
        ),
        (
            "rowlock.claim_batch('{a,b}', '{1,1}', 1, 0, 5, after_at => array_fill(now(), array[9]), after_id => array_fill(0::bigint, array[18]))",
            "22023 rowlock: after_at '9' entries, and after_id: each must have nine for each queue",
        ),
        (
            "rowlock.claim_batch('{a}', '{1}', 1, 0, 5, after_at => array_fill(now(), array[9]))",
            "22023 rowlock: after_at '9' entries, and after_id: each must have nine for each queue",
        ),
        (
            "rowlock.claim_batch('{a}', '{1}', 1, 0, 5, until_at => '{now}', until_id => '{0}')",
            "22023 rowlock: until_at '1' entries, and until_id: each must have nine for each queue",
        ),
        (
            "rowlock.sweep('a', 1, 0, 0)",
            "22023 rowlock: token '0' is no token: make a random number for each claim",
        ),
    ] {
        assert_eq!(refused(pg, &format!("select * from {call}")).await, said);
    }
}

/// Claims of one queue take turns, and who has the turn need not lock a row before writing its lease.
#[tokio::test]
async fn whose_turn_it_is_locks_no_row_first_and_who_does_not_get_it_claims_all_the_same() {
    let own = installed().await;
    let pg = &own.pg;
    let jobs = enqueue(pg, 4).await;
    let locked_first = "select count(*) from rowlock.job where lease_until > now() and xmax <> 0";

    assert_eq!(ids(&claim(pg, "n => 1").await), jobs[..1]);
    assert_eq!(number(pg, locked_first).await, 0, "it was its turn");

    // Somebody has the turn and is frozen in it.
    let other = own.another().await;
    run(&other, "begin").await;
    assert_eq!(ids(&claim(&other, "n => 1").await), jobs[1..2]);
    assert_eq!(
        ids(&claim(pg, "n => 1").await),
        jobs[2..3],
        "the next is taken, the one under way is skipped"
    );
    assert_eq!(number(pg, locked_first).await, 1, "it was not its turn");
    run(&other, "rollback").await;

    assert_eq!(
        ids(&claim(pg, "n => 4").await),
        [jobs[1], jobs[3]],
        "what the frozen claim took is free again"
    );
}
