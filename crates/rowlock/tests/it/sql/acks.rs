//! Acknowledgements: fenced by queue, id and token; done, lost or busy for each job by itself.

use tokio_postgres::Client as Pg;

use super::kit::{
    Held, claim, complete, enqueue, everything, ids, installed, is, move_clock, named, number, one,
    refused, rows, run, tids,
};

/// All acknowledgements, as expressions that give done, lost and busy of these jobs (`named`: queue, ids, tokens).
fn acks(named: &str, count: usize) -> Vec<(&'static str, String)> {
    let fill = |value: &str| format!("array_fill({value}, array[{count}])");
    vec![
        ("complete", format!("rowlock.complete({named})")),
        (
            "fail",
            format!("rowlock.fail({named}, {})", fill("'x'::text")),
        ),
        ("extend", format!("rowlock.extend({named}, 60000)")),
        (
            "snooze",
            format!("rowlock.snooze({named}, {})", fill("60000::bigint")),
        ),
        ("release", format!("rowlock.release({named})")),
    ]
}

async fn answer(pg: &Pg, ack: &str) -> String {
    one(pg, &format!("select done, lost, busy from {ack}")).await
}

#[tokio::test]
async fn a_mistyped_queue_is_lost_and_makes_no_queue() {
    let own = installed().await;
    let pg = &own.pg;
    run(pg, "select rowlock.enqueue('k', queue => 'mail')").await;
    let held = claim(pg, "queues => '{mail}'").await.remove(0);
    let before = everything(pg).await;
    let named = format!("'mial', '{{{}}}', '{{{}}}'", held.id, held.token);
    for (verb, ack) in acks(&named, 1) {
        let lost = format!("{{}}|{{{}}}|{{}}", held.id);
        assert_eq!(answer(pg, &ack).await, lost, "{verb}");
    }
    assert_eq!(everything(pg).await, before);
    assert_eq!(
        number(pg, "select count(*) from rowlock.queue where name = 'mial'").await,
        0
    );
}

#[tokio::test]
async fn only_the_holder_of_the_lease_can_say_anything_about_a_job() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "select rowlock.enqueue('k'); select rowlock.enqueue('k', queue => 'other')",
    )
    .await;
    let older = claim(pg, "lease_ms => 1000").await.remove(0);
    move_clock(pg, "1 minute").await;
    let newer = claim(pg, "lease_ms => 3600000").await.remove(0);
    assert_eq!((newer.id, newer.attempt), (older.id, older.attempt + 1));
    assert_ne!(newer.token, older.token, "each claim makes its own token");
    let before = everything(pg).await;

    let id = newer.id;
    for (what, queue, id, token) in [
        ("an older attempt", "default", id, older.token),
        ("another token", "default", id, newer.token + 1),
        ("token 0", "default", id, 0),
        ("another queue", "other", id, newer.token),
        (
            "a job that is not there",
            "default",
            4_000_000_000,
            newer.token,
        ),
    ] {
        let named = format!("'{queue}', '{{{id}}}', '{{{token}}}'");
        for (name, ack) in acks(&named, 1) {
            assert_eq!(
                answer(pg, &ack).await,
                format!("{{}}|{{{id}}}|{{}}"),
                "{name} by {what}"
            );
        }
        let by_tid = format!("rowlock.complete({named}, array['{}'])", newer.tid);
        assert_eq!(
            answer(pg, &by_tid).await,
            format!("{{}}|{{{id}}}|{{}}"),
            "complete by {what}, with the right tid"
        );
        let progress = format!("select rowlock.progress('{queue}', {id}, {token}, '{{}}')");
        assert_eq!(one(pg, &progress).await, "lost", "progress by {what}");
    }
    assert_eq!(
        everything(pg).await,
        before,
        "nothing was changed by any of them"
    );

    // A job that nobody holds has token 0: neither may one who guesses that.
    let free = one(pg, "select id from rowlock.job where queue = 'other'").await;
    for (name, ack) in acks(&format!("'other', '{{{free}}}', '{{0}}'"), 1) {
        assert_eq!(
            answer(pg, &ack).await,
            format!("{{}}|{{{free}}}|{{}}"),
            "{name} of a job that is not leased"
        );
    }
    assert_eq!(everything(pg).await, before);
    assert_eq!(
        complete(pg, &[newer]).await,
        format!("{{{id}}}|{{}}|{{}}"),
        "the holder itself"
    );
}

#[tokio::test]
async fn a_job_is_its_holders_until_it_is_claimed_again_even_past_the_lease() {
    let own = installed().await;
    let pg = &own.pg;
    enqueue(pg, 1).await;
    let late = claim(pg, "lease_ms => 1000").await;
    move_clock(pg, "1 hour").await;
    assert!(
        complete(pg, &late)
            .await
            .starts_with(&format!("{{{}}}|", late[0].id)),
        "late, but nobody else has it"
    );
}

#[tokio::test]
async fn done_lost_and_busy_in_one_call() {
    let own = installed().await;
    let (pg, other) = (&own.pg, own.another().await);
    for (name, _) in acks("", 1) {
        run(pg, "delete from rowlock.job").await;
        enqueue(pg, 4).await;
        let all = claim(pg, "n => 4").await;
        let lost = Held {
            token: 3,
            ..all[1].clone()
        };
        let given = [all[3].clone(), lost.clone(), all[2].clone(), all[0].clone()];
        run(
            &other,
            &format!(
                "begin; select from rowlock.job where id = {} for update",
                all[2].id
            ),
        )
        .await;
        run(pg, "set statement_timeout = '20s'").await;
        let ack = acks(&named(&given), 4)
            .into_iter()
            .find(|(n, _)| *n == name)
            .expect("there")
            .1;
        let said = answer(pg, &ack).await;
        let either = [
            format!(
                "{{{},{}}}|{{{}}}|{{{}}}",
                all[0].id, all[3].id, lost.id, all[2].id
            ),
            format!(
                "{{{},{}}}|{{{}}}|{{{}}}",
                all[3].id, all[0].id, lost.id, all[2].id
            ),
        ];
        assert!(
            either.contains(&said),
            "{name}: the locked row is busy and holds up none of the others: {said}"
        );
        run(&other, "rollback").await;
        let retry = acks(&named(&[all[2].clone()]), 1)
            .into_iter()
            .find(|(n, _)| *n == name)
            .expect("there")
            .1;
        assert_eq!(
            answer(pg, &retry).await,
            format!("{{{}}}|{{}}|{{}}", all[2].id),
            "{name}: again, when the lock is gone"
        );
        run(pg, "reset statement_timeout").await;
    }
}

#[tokio::test]
async fn a_locked_row_is_busy_for_the_fast_path_for_progress_and_for_cancel_too() {
    let own = installed().await;
    let (pg, other) = (&own.pg, own.another().await);
    enqueue(pg, 3).await;
    let held = claim(pg, "n => 2").await;
    let waiting = number(pg, "select max(id) from rowlock.job").await;
    run(
        &other,
        &format!(
            "begin; select from rowlock.job where id in ({}, {waiting}) for update",
            held[0].id
        ),
    )
    .await;
    run(pg, "set statement_timeout = '20s'").await;
    let progress = format!(
        "select rowlock.progress('default', {}, {}, '{{}}')",
        held[0].id, held[0].token
    );
    assert_eq!(one(pg, &progress).await, "busy");
    let cancelled = rows(
        pg,
        &format!(
            "select id, answer from rowlock.cancel(array[{}, {waiting}, {}]) order by id",
            held[0].id, held[1].id
        ),
    )
    .await;
    assert_eq!(
        cancelled,
        [
            format!("{}|busy", held[0].id),
            format!("{}|asked", held[1].id),
            format!("{waiting}|busy")
        ]
    );
    assert_eq!(
        complete(pg, &held).await,
        format!("{{{}}}|{{}}|{{{}}}", held[1].id, held[0].id),
        "by tid"
    );
    run(&other, "commit").await;
    assert_eq!(one(pg, &progress).await, "done");
    assert_eq!(
        one(
            pg,
            &format!("select answer from rowlock.cancel(array[{waiting}])")
        )
        .await,
        "cancelled"
    );
    assert!(
        complete(pg, &held[..1]).await.ends_with("|{}|{}"),
        "somebody locked it in between, so it goes by id"
    );
}

#[tokio::test]
async fn what_complete_keeps() {
    let own = installed().await;
    let pg = &own.pg;
    let id = number(
        pg,
        "select id from rowlock.enqueue('k', '{\"a\": 1}', priority => 2, tags => '{x,y}', metadata => '{\"m\": 1}', unique_key => 'u', \
         timeout => '5 s', max_attempts => 7, trace => 't')",
    )
    .await;
    run(pg, "select rowlock.enqueue('k')").await;
    let held = claim(pg, "n => 2, worker => 42").await;
    move_clock(pg, "10 seconds").await;
    let call = format!(
        "select done, lost, busy from rowlock.complete({}, {}, array['{{\"r\": [1]}}'::jsonb, null], array[3000, null])",
        named(&held),
        tids(&held)
    );
    assert!(one(pg, &call).await.ends_with("|{}|{}"));
    let kept = one(
        pg,
        &format!(
            "select kind, payload, priority, outcome, worker, attempt, failures, crashes, tags, metadata, result, \
             round(extract(epoch from finished_at - started_at) * 1000) from rowlock.finished where id = {id}"
        ),
    )
    .await;
    assert_eq!(
        kept, "k|{\"a\": 1}|2|done|42|1|0|0|{x,y}|{\"m\": 1}|{\"r\": [1]}|3000",
        "ran_ms says when the handler started"
    );
    let options = one(
        pg,
        &format!("select options from rowlock.finished where id = {id}"),
    )
    .await;
    assert_eq!(
        options,
        "{\"trace\": \"t\", \"timeout_ms\": 5000, \"unique_key\": \"u\", \"max_attempts\": 7}"
    );
    let plain = one(
        pg,
        &format!("select result, options, finished_at - started_at > interval '9 s' from rowlock.finished where id <> {id}"),
    )
    .await;
    assert_eq!(
        plain, "null|null|t",
        "without ran_ms, the start is the claim"
    );
}

#[tokio::test]
async fn a_handler_cannot_have_run_longer_than_its_lease() {
    let own = installed().await;
    let pg = &own.pg;
    enqueue(pg, 1).await;
    let held = claim(pg, "n => 1").await;
    let call = format!(
        "select from rowlock.complete({}, null, null, array[2000000000])",
        named(&held)
    );
    run(pg, &call).await;
    assert!(
        is(pg, "select started_at >= run_at from rowlock.finished").await,
        "an absurd ran_ms does not move the start before the claim"
    );
}

#[tokio::test]
async fn a_queue_without_history_keeps_nothing() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "select rowlock.set_queue('default', '{\"retention\": \"0\"}')",
    )
    .await;
    enqueue(pg, 3).await;
    let held = claim(pg, "n => 3").await;
    assert!(complete(pg, &held[..1]).await.ends_with("|{}|{}"), "by tid");
    assert!(
        answer(pg, &format!("rowlock.complete({})", named(&held[1..2])))
            .await
            .ends_with("|{}|{}"),
        "by id"
    );
    run(
        pg,
        &format!(
            "select from rowlock.fail({}, '{{x}}', null, '{{cancelled}}')",
            named(&held[2..])
        ),
    )
    .await;
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
async fn a_job_named_twice_in_one_call_is_done_once() {
    let own = installed().await;
    let pg = &own.pg;
    for (name, _) in acks("", 1) {
        run(pg, "delete from rowlock.job; delete from rowlock.finished").await;
        enqueue(pg, 2).await;
        let held = claim(pg, "n => 2").await;
        let twice = [held[0].clone(), held[1].clone(), held[0].clone()];
        let ack = acks(&named(&twice), 3)
            .into_iter()
            .find(|(n, _)| *n == name)
            .expect("there")
            .1;
        let said = answer(pg, &ack).await;
        let mut done: Vec<i64> = said
            .split('|')
            .next()
            .unwrap_or_default()
            .trim_matches(['{', '}'])
            .split(',')
            .map(|id| id.parse().expect("an id"))
            .collect();
        done.sort_unstable();
        done.dedup();
        assert_eq!(
            (done, said.ends_with("|{}|{}")),
            (ids(&held), true),
            "{name}: {said}"
        );
        let counted = number(
            pg,
            "select (select count(*) from rowlock.job) + (select count(*) from rowlock.finished)",
        )
        .await;
        assert_eq!(counted, 2, "{name}: there are still two jobs in all");
    }
    enqueue(pg, 1).await;
    let held = claim(pg, "n => 1, kinds => '{k}'").await;
    let twice = [held[0].clone(), held[0].clone()];
    assert_eq!(
        complete(pg, &twice)
            .await
            .matches(&held[0].id.to_string())
            .count(),
        1,
        "by tid"
    );
}

#[tokio::test]
async fn nothing_to_acknowledge_is_nothing_done() {
    let own = installed().await;
    for (name, ack) in acks("'default', '{}', '{}'", 0) {
        assert_eq!(answer(&own.pg, &ack).await, "{}|{}|{}", "{name}");
    }
}

#[tokio::test]
async fn snooze_and_release_cost_no_failure() {
    let own = installed().await;
    let pg = &own.pg;
    let id = enqueue(pg, 1).await[0];
    let held = claim(pg, "n => 1").await;
    run(
        pg,
        &format!("select from rowlock.snooze({}, '{{600000}}')", named(&held)),
    )
    .await;
    assert_eq!(
        one(pg, "select attempt, failures, crashes, token, lease_until, run_at > now() + interval '9 minutes' from rowlock.job").await,
        "1|0|0|0|-infinity|t"
    );
    move_clock(pg, "11 minutes").await;
    let held = claim(pg, "n => 1").await;
    assert_eq!((held[0].id, held[0].attempt), (id, 2));
    run(
        pg,
        &format!("select from rowlock.release({})", named(&held)),
    )
    .await;
    assert_eq!(
        one(
            pg,
            "select attempt, failures, crashes, token, lease_until from rowlock.job"
        )
        .await,
        "2|0|0|0|-infinity"
    );
    assert_eq!(
        claim(pg, "n => 1").await[0].attempt,
        3,
        "a released job is there for the next at once"
    );
}

#[tokio::test]
async fn a_running_job_that_is_cancelled_ends_when_its_handler_gives_up() {
    let own = installed().await;
    let pg = &own.pg;
    enqueue(pg, 4).await;
    let held = claim(pg, "n => 4").await;
    let all: Vec<String> = held.iter().map(|h| h.id.to_string()).collect();
    run(
        pg,
        &format!("select rowlock.cancel(array[{}])", all.join(",")),
    )
    .await;
    let told = one(
        pg,
        &format!("select cancelled from rowlock.extend({})", named(&held)),
    )
    .await;
    assert_eq!(
        told.matches(',').count(),
        3,
        "extend tells the holder: {told}"
    );
    run(
        pg,
        &format!(
            "select from rowlock.fail({}, '{{stopped}}')",
            named(&held[..1])
        ),
    )
    .await;
    run(
        pg,
        &format!(
            "select from rowlock.snooze({}, '{{600000}}')",
            named(&held[1..2])
        ),
    )
    .await;
    run(
        pg,
        &format!("select from rowlock.release({})", named(&held[2..3])),
    )
    .await;
    assert!(
        complete(pg, &held[3..]).await.ends_with("|{}|{}"),
        "it finished all the same"
    );
    assert_eq!(
        claim(pg, "n => 10").await,
        [],
        "those that were given back are ended by the next claim, not run"
    );
    let ends = rows(
        pg,
        "select outcome, failures from rowlock.finished order by id",
    )
    .await;
    assert_eq!(
        ends,
        ["cancelled|1", "cancelled|0", "cancelled|0", "done|0"]
    );
}

#[tokio::test]
async fn acks_with_bad_arguments_are_refused() {
    let own = installed().await;
    let pg = &own.pg;
    for (call, said) in [
        (
            "complete('q', null, null)",
            "ids '0' entries, but the other arrays have another length",
        ),
        (
            "complete('q', '{1}', '{1,2}')",
            "ids '1' entries, but the other arrays have another length",
        ),
        (
            "complete('q', '{1}', '{1}', '{}')",
            "ids '1' entries, but the other arrays have another length",
        ),
        (
            "fail('q', '{1}', '{1}', null)",
            "ids '1' entries, but the other arrays have another length",
        ),
        (
            "fail('q', '{1}', '{1}', '{x}', '{-1}')",
            "retry_ms '-1' is out of range: a retry may wait from 0 ms to a year",
        ),
        (
            "fail('q', '{1}', '{1}', '{x}', null, '{done}')",
            "fates 'done' may only hold refused, cancelled or null",
        ),
        (
            "snooze('q', '{1}', '{1}', '{-5}')",
            "delay_ms '-5' is out of range: a job may snooze from 0 ms to a year",
        ),
        (
            "snooze('q', '{1}', '{1}', '{31536000001}')",
            "delay_ms '31536000001' is out of range: a job may snooze from 0 ms to a year",
        ),
        (
            "extend('q', '{1}', '{1}', 10)",
            "lease_ms '10' is out of range: it must be from 1000 to 86400000",
        ),
        (
            "extend('', '{1}', '{1}')",
            "queue '' is empty: it needs 1 to 200 bytes",
        ),
    ] {
        assert_eq!(
            refused(pg, &format!("select rowlock.{call}")).await,
            format!("22023 rowlock: {said}"),
            "{call}"
        );
    }
    let huge = refused(
        pg,
        "select rowlock.progress('q', 1, 1, to_jsonb(repeat('x', 70000)))",
    )
    .await;
    assert_eq!(
        huge,
        "22023 rowlock: progress '70002 bytes' is too large: at most 65536 bytes are allowed"
    );
}

#[tokio::test]
async fn progress_is_seen_while_the_job_runs_and_gone_with_the_next_attempt() {
    let own = installed().await;
    let pg = &own.pg;
    enqueue(pg, 1).await;
    let held = claim(pg, "n => 1").await;
    run(
        pg,
        &format!(
            "select rowlock.progress('default', {}, {}, '{{\"of\": 2}}')",
            held[0].id, held[0].token
        ),
    )
    .await;
    assert_eq!(
        one(pg, "select progress from rowlock.jobs").await,
        "{\"of\": 2}"
    );
    run(
        pg,
        &format!("select from rowlock.fail({}, '{{x}}')", named(&held)),
    )
    .await;
    assert_eq!(one(pg, "select progress from rowlock.jobs").await, "null");
}
