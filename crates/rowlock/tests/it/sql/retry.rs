//! Failures: when the next attempt is, and when there is none.

use proptest::prelude::*;
use rowlock::Backoff;
use tokio_postgres::Client as Pg;

use super::kit::{claim, enqueue, installed, named, number, one, rows, run, stop_clock};

/// Claims the next job, fails it, and says in how many ms it is due again; moves the clock there.
async fn fail_once(pg: &Pg, clock_ms: &mut i64) -> i64 {
    stop_clock(pg, *clock_ms).await;
    let held = claim(pg, "n => 1").await;
    assert_eq!(held.len(), 1, "a job is due");
    run(
        pg,
        &format!("select from rowlock.fail({}, array['boom'])", named(&held)),
    )
    .await;
    let ms = number(
        pg,
        &format!("select round(extract(epoch from run_at - rowlock.clock()) * 1000) from rowlock.job where id = {}", held[0].id),
    )
    .await;
    *clock_ms += ms;
    stop_clock(pg, *clock_ms).await;
    ms
}

fn close(ms: i64, wanted: i64, spread: f64) -> bool {
    (ms - wanted).abs() as f64 <= wanted as f64 * spread
}

#[tokio::test]
async fn each_shape_of_backoff() {
    let own = installed().await;
    let pg = &own.pg;
    let mut clock_ms = 0;
    for (policy, wanted, spread) in [
        (
            r#"{"type": "exponential", "base_ms": 60000, "jitter": 0}"#,
            [60_000, 120_000, 240_000, 480_000],
            0.0,
        ),
        (
            r#"{"type": "exponential", "base_ms": 60000, "factor": 3, "jitter": 0.1}"#,
            [60_000, 180_000, 540_000, 1_620_000],
            0.1,
        ),
        (
            r#"{"type": "exponential", "base_ms": 60000, "max_ms": 100000, "jitter": 0}"#,
            [60_000, 100_000, 100_000, 100_000],
            0.0,
        ),
        (
            r#"{"type": "linear", "base_ms": 60000, "jitter": 0}"#,
            [60_000, 120_000, 180_000, 240_000],
            0.0,
        ),
        (
            r#"{"type": "fixed", "base_ms": 45000, "jitter": 0}"#,
            [45_000; 4],
            0.0,
        ),
        (
            r#"{"type": "list", "ms": [10000, 60000, 30000], "jitter": 0}"#,
            [10_000, 60_000, 30_000, 30_000],
            0.0,
        ),
    ] {
        run(pg, "delete from rowlock.job").await;
        run(pg, &format!("select rowlock.enqueue('k', backoff => '{policy}', max_attempts => 10, run_at => '2020-01-01')")).await;
        for (n, wanted) in wanted.into_iter().enumerate() {
            let ms = fail_once(pg, &mut clock_ms).await;
            assert!(
                close(ms, wanted, spread),
                "{policy}: after failure {} it waits {ms} ms, not {wanted}",
                n + 1
            );
        }
    }
}

#[tokio::test]
async fn jitter_spreads_and_stays_within_its_share() {
    let own = installed().await;
    let spread = one(
        &own.pg,
        "select min(d) >= 45000, max(d) <= 75000, max(d) - min(d) > 10000 from (select rowlock.backoff_ms( \
         '{\"type\": \"fixed\", \"base_ms\": 60000, \"jitter\": 0.25}', 1, random()) as d from generate_series(1, 300)) s",
    )
    .await;
    assert_eq!(
        spread, "t|t|t",
        "60 s with a jitter of a quarter: from 45 to 75 s, and spread"
    );
}

#[tokio::test]
async fn the_job_overrules_its_kind_which_overrules_the_queue() {
    let own = installed().await;
    let pg = &own.pg;
    let fixed = |s: u32| format!(r#"{{"type": "fixed", "base_ms": {s}000, "jitter": 0}}"#);
    run(
        pg,
        &format!(
            r#"select rowlock.set_queue('default', '{{"backoff": {}, "max_attempts": 9, "kinds": {{"special": {{"backoff": {}, "max_attempts": 2}}}}}}')"#,
            fixed(100),
            fixed(200)
        ),
    )
    .await;
    let mut clock_ms = 0;
    for (enqueue, wanted, attempts) in [
        ("'plain'".to_owned(), 100_000, 9),
        ("'special'".to_owned(), 200_000, 2),
        (
            format!("'special', backoff => '{}', max_attempts => 4", fixed(300)),
            300_000,
            4,
        ),
    ] {
        run(pg, "delete from rowlock.job; delete from rowlock.dead").await;
        run(
            pg,
            &format!("select rowlock.enqueue({enqueue}, run_at => '2020-01-01')"),
        )
        .await;
        for n in 1..attempts {
            let ms = fail_once(pg, &mut clock_ms).await;
            assert!(
                close(ms, wanted, 0.0),
                "{enqueue}: failure {n} waits {ms} ms, not {wanted}"
            );
        }
        let last = claim(pg, "n => 1").await;
        let told = one(pg, "select max_attempts from rowlock.jobs").await;
        let died = one(
            pg,
            &format!(
                "select done = dead and dead = '{{{}}}' from rowlock.fail({}, '{{x}}')",
                last[0].id,
                named(&last)
            ),
        )
        .await;
        assert_eq!(
            died, "t",
            "{enqueue}: failure {attempts} is the last ({told})"
        );
        assert_eq!(
            one(pg, "select reason, failures from rowlock.dead").await,
            format!("failed|{attempts}")
        );
    }
}

#[tokio::test]
async fn a_dead_job_keeps_all_its_errors_in_order() {
    let own = installed().await;
    let pg = &own.pg;
    let id = number(
        pg,
        "select id from rowlock.enqueue('k', '{\"p\": 1}', max_attempts => 3, tags => '{t}')",
    )
    .await;
    for n in 1..=3 {
        let held = claim(pg, &format!("worker => {n}")).await;
        assert_eq!(held[0].attempt, n);
        let said = one(
            pg,
            &format!(
                "select done, lost, busy, dead from rowlock.fail({}, array['error {n}'], '{{0}}')",
                named(&held)
            ),
        )
        .await;
        let dead = if n == 3 {
            format!("{{{id}}}")
        } else {
            "{}".into()
        };
        assert_eq!(said, format!("{{{id}}}|{{}}|{{}}|{dead}"), "failure {n}");
    }
    assert_eq!(
        one(pg, "select id, reason, payload, failures, attempt, crashes, tags, options from rowlock.dead").await,
        format!("{id}|failed|{{\"p\": 1}}|3|3|0|{{t}}|{{\"max_attempts\": 3}}")
    );
    assert_eq!(
        rows(pg, "select e ->> 'attempt', e ->> 'worker', e ->> 'error', (e ->> 'at')::timestamptz is not null from rowlock.dead, jsonb_array_elements(errors) e").await,
        ["1|1|error 1|t", "2|2|error 2|t", "3|3|error 3|t"]
    );
    assert_eq!(number(pg, "select count(*) from rowlock.job").await, 0);
}

#[tokio::test]
async fn fates_and_retry_times_overrule_the_policy() {
    let own = installed().await;
    let pg = &own.pg;
    let all = enqueue(pg, 5).await;
    let held = claim(pg, "n => 5").await;
    let said = one(
        pg,
        &format!(
            "select array(select unnest(done) order by 1), lost, busy, dead from rowlock.fail({}, '{{a,b,c,d,null}}', \
             array[null, null, 3600000, 0, null], array['refused', 'cancelled', null, null, null])",
            named(&held)
        ),
    )
    .await;
    let list: Vec<String> = all.iter().map(i64::to_string).collect();
    assert_eq!(
        said,
        format!("{{{}}}|{{}}|{{}}|{{{}}}", list.join(","), all[0])
    );
    assert_eq!(
        one(
            pg,
            "select id, reason, errors -> 0 ->> 'error' from rowlock.dead"
        )
        .await,
        format!("{}|refused|a", all[0])
    );
    assert_eq!(
        one(
            pg,
            "select id, outcome, errors -> 0 ->> 'error' from rowlock.finished"
        )
        .await,
        format!("{}|cancelled|b", all[1])
    );
    let waits = rows(pg, "select id, round(extract(epoch from run_at - now()) / 60), failures, errors -> 0 ->> 'error' from rowlock.job order by id").await;
    assert_eq!(
        waits,
        [
            format!("{}|60|1|c", all[2]),
            format!("{}|0|1|d", all[3]),
            format!("{}|1|1|failed without a word", all[4]),
        ]
    );
}

#[tokio::test]
async fn errors_are_cut_and_bounded_in_number() {
    let own = installed().await;
    let pg = &own.pg;
    run(pg, "select rowlock.enqueue('k', max_attempts => 1000)").await;
    for n in 1..=103 {
        let held = claim(pg, "n => 1").await;
        let text = if n == 103 {
            "repeat('ä', 20000)".to_owned()
        } else {
            format!("'error {n}'")
        };
        run(
            pg,
            &format!(
                "select from rowlock.fail({}, array[{text}], '{{0}}')",
                named(&held)
            ),
        )
        .await;
    }
    assert_eq!(
        one(pg, "select jsonb_array_length(errors), errors -> 0 ->> 'error', errors -> 1 ->> 'error', failures from rowlock.job").await,
        "100|error 1|error 5|103",
        "the first and the newest are kept"
    );
    let cut = one(pg, "select right(errors -> 99 ->> 'error', 20), length(errors -> 99 ->> 'error') < 5000 from rowlock.job").await;
    assert_eq!(cut, "ä [cut: 40000 bytes]|t");
}

/// A policy as people may set it, with the edges.
fn any_backoff() -> impl Strategy<Value = Backoff> {
    let ms = || {
        prop_oneof![
            Just(0),
            1..1000u64,
            1000..100_000_000u64,
            Just(31_536_000_000)
        ]
        .prop_map(std::time::Duration::from_millis)
    };
    let shape = prop_oneof![
        (ms(), prop_oneof![Just(1.0), Just(2.0), 1.0..100.0f64])
            .prop_map(|(base, factor)| Backoff::exponential(base).factor(factor)),
        ms().prop_map(Backoff::linear),
        ms().prop_map(Backoff::fixed),
        proptest::collection::vec(ms(), 1..6).prop_map(Backoff::list),
    ];
    (shape, ms(), prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64])
        .prop_map(|(shape, max, jitter)| shape.max(max).jitter(jitter))
}

#[tokio::test]
async fn the_database_and_the_library_compute_the_same_backoff() {
    use proptest::strategy::ValueTree as _;
    let own = installed().await;
    let mut runner = proptest::test_runner::TestRunner::default();
    let strategy = (any_backoff(), prop_oneof![1..8u32, 8..1000u32], 0.0..1.0f64);
    let cases: Vec<(Backoff, u32, f64)> = (0..3000)
        .map(|_| strategy.new_tree(&mut runner).expect("a case").current())
        .collect();
    // All in one statement: the arithmetic is the same, and a round trip for each would take most of the time.
    let policies: Vec<serde_json::Value> = cases
        .iter()
        .map(|c| serde_json::to_value(&c.0).expect("JSON"))
        .collect();
    let failures: Vec<i32> = cases.iter().map(|c| c.1 as i32).collect();
    let lucks: Vec<f64> = cases.iter().map(|c| c.2).collect();
    let answers = own
        .pg
        .query(
            "select rowlock.backoff_ms(policy, failures, luck) from unnest($1::jsonb[], $2::int[], $3::float8[]) \
             with ordinality as c (policy, failures, luck, n) order by n",
            &[&policies, &failures, &lucks],
        )
        .await
        .expect("the policies are good");
    assert_eq!(answers.len(), cases.len());
    for ((policy, failures, luck), row) in cases.iter().zip(&answers) {
        let sql: i64 = row.get(0);
        let rust = policy.delay(*failures, *luck).as_millis() as i64;
        // powi and power may differ in the last bit, which may tip a rounding.
        let room = 1 + (rust as f64 * 1e-12) as i64;
        assert!(
            (sql - rust).abs() <= room,
            "{policy:?}, failure {failures}, luck {luck}: SQL says {sql} ms, Rust {rust}"
        );
    }
    let refused: i64 = own
        .pg
        .query_one(
            "select count(rowlock.check_backoff(p)) from unnest($1::jsonb[]) p",
            &[&policies],
        )
        .await
        .map(|row| row.get(0))
        .expect("what the library sends, the database takes");
    assert_eq!(refused, 3000);
}

#[tokio::test]
async fn bad_policies_are_refused_with_their_rule() {
    let own = installed().await;
    for (policy, said) in [
        ("5", "backoff '5' must be a JSON object with a \"type\""),
        (
            r#"{"type": "fibonacci"}"#,
            "backoff 'fibonacci' is no type of backoff: known are exponential, linear, fixed, list",
        ),
        (
            "{}",
            "backoff 'null' is no type of backoff: known are exponential, linear, fixed, list",
        ),
        (
            r#"{"type": "fixed"}"#,
            "backoff 'null' is out of range: base_ms must be from 0 to a year",
        ),
        (
            r#"{"type": "fixed", "base_ms": -1}"#,
            "backoff '-1' is out of range: base_ms must be from 0 to a year",
        ),
        (
            r#"{"type": "fixed", "base_ms": 1e30}"#,
            "backoff '1000000000000000000000000000000' is out of range: base_ms must be from 0 to a year",
        ),
        (
            r#"{"type": "fixed", "base_ms": "5"}"#,
            "backoff '5' is no number, as base_ms must be",
        ),
        (
            r#"{"type": "fixed", "base_ms": 5, "jitter": 2}"#,
            "backoff '2' is out of range: jitter must be from 0 to 1",
        ),
        (
            r#"{"type": "exponential", "base_ms": 5, "factor": 0}"#,
            "backoff '0' is out of range: factor must be from 1 to 100",
        ),
        (
            r#"{"type": "fixed", "base_ms": 5, "max": 7}"#,
            "backoff 'max' is no setting of a backoff: known are type, base_ms, factor, max_ms, jitter, ms",
        ),
        (
            r#"{"type": "list", "ms": []}"#,
            "backoff '[]' must be a list of 1 to 100 delays in ms, each from 0 to a year",
        ),
        (
            r#"{"type": "list", "ms": [1, "x"]}"#,
            "backoff '[1, \"x\"]' must be a list of 1 to 100 delays in ms, each from 0 to a year",
        ),
    ] {
        let call = format!("select rowlock.enqueue('k', backoff => '{policy}')");
        assert_eq!(
            super::kit::refused(&own.pg, &call).await,
            format!("22023 rowlock: {said}")
        );
    }
}
