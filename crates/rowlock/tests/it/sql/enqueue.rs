//! Bad input: refused with the value and the rule, from SQL and from Rust alike, and nothing is changed.

use std::time::Duration;

use rowlock::{Backoff, Error, NewJob};
use serde_json::json;

use super::kit::{
    claim, complete, everything, ids, installed, is, number, one, refused, rows, run,
};

/// Calls that must be refused, and what is said.
async fn all_refused(pg: &tokio_postgres::Client, cases: &[(&str, &str)]) {
    let before = everything(pg).await;
    for (call, said) in cases {
        let got = refused(pg, &format!("select rowlock.{call}")).await;
        let short: String = call.chars().take(200).collect();
        assert_eq!(&got, said, "{short}");
        assert_eq!(
            everything(pg).await,
            before,
            "nothing is changed by {short}"
        );
    }
}

#[tokio::test]
async fn enqueue_refuses_bad_values() {
    let own = installed().await;
    all_refused(
        &own.pg,
        &[
            ("enqueue(null)", "22023 rowlock: kind 'null' is empty: it needs 1 to 200 bytes"),
            ("enqueue('')", "22023 rowlock: kind '' is empty: it needs 1 to 200 bytes"),
            ("enqueue(repeat('k', 201))", "22023 rowlock: kind 'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk' has 201 bytes: at most 200 are allowed"),
            ("enqueue(repeat('ä', 101))", "22023 rowlock: kind 'ääääääääääääääääääääääääääääääääääääääääääääääääääääääääääää' has 202 bytes: at most 200 are allowed"),
            ("enqueue(E'a\\nb')", "22023 rowlock: kind 'a?b' has a control character: only printable text is allowed"),
            ("enqueue(E'a\\u007fb')", "22023 rowlock: kind 'a?b' has a control character: only printable text is allowed"),
            ("enqueue('k', queue => '')", "22023 rowlock: queue '' is empty: it needs 1 to 200 bytes"),
            ("enqueue('k', queue => null)", "22023 rowlock: queue 'null' is empty: it needs 1 to 200 bytes"),
            ("enqueue('k', queue => repeat('q', 300))", "22023 rowlock: queue 'qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq' has 300 bytes: at most 200 are allowed"),
            ("enqueue('k', queue => E'q\\t')", "22023 rowlock: queue 'q?' has a control character: only printable text is allowed"),
            ("enqueue('k', '[1, 2]')", "22023 rowlock: payload 'array' is not a JSON object"),
            ("enqueue('k', '\"text\"')", "22023 rowlock: payload 'string' is not a JSON object"),
            ("enqueue('k', '7')", "22023 rowlock: payload 'number' is not a JSON object"),
            ("enqueue('k', 'null')", "22023 rowlock: payload 'null' is not a JSON object"),
            ("enqueue('k', null)", "22023 rowlock: payload 'null' is not a JSON object"),
            ("enqueue('k', jsonb_build_object('a', repeat('x', 1048576)))", "22023 rowlock: payload '1048585 bytes' is too large: this queue takes at most 1048576 bytes"),
            ("enqueue('k', priority => 5)", "22023 rowlock: priority '5' is out of range: it must be from -4 to 4"),
            ("enqueue('k', priority => -5)", "22023 rowlock: priority '-5' is out of range: it must be from -4 to 4"),
            ("enqueue('k', priority => 2147483647)", "22023 rowlock: priority '2147483647' is out of range: it must be from -4 to 4"),
            ("enqueue('k', priority => null)", "22023 rowlock: priority 'null' is out of range: it must be from -4 to 4"),
            ("enqueue('k', run_at => '30000-01-01')", "22023 rowlock: run_at '30000-01-01 00:00:00+00' is out of range: it must lie between the years 2000 and 2999"),
            ("enqueue('k', run_at => '1999-12-31')", "22023 rowlock: run_at '1999-12-31 00:00:00+00' is out of range: it must lie between the years 2000 and 2999"),
            ("enqueue('k', run_at => '-infinity')", "22023 rowlock: run_at '-infinity' is out of range: it must lie between the years 2000 and 2999"),
            ("enqueue('k', run_at => 'infinity')", "22023 rowlock: run_at 'infinity' is out of range: it must lie between the years 2000 and 2999"),
            ("enqueue('k', delay => '-1 second')", "22023 rowlock: delay '-00:00:01' is negative"),
            ("enqueue('k', delay => '901 years')", "22023 rowlock: delay '901 years' is too long: run_at must lie before the year 3000"),
            ("enqueue('k', delay => '1 s', run_at => '2040-01-01')", "22023 rowlock: delay '00:00:01' and run_at are both given: say one of them"),
            ("enqueue('k', max_attempts => 0)", "22023 rowlock: max_attempts '0' must be a whole number from 1 to 1000"),
            ("enqueue('k', max_attempts => 1001)", "22023 rowlock: max_attempts '1001' must be a whole number from 1 to 1000"),
            ("enqueue('k', timeout => '-1 s')", "22023 rowlock: timeout_ms '-1000' must be a whole number from 1 to 2592000000"),
            ("enqueue('k', timeout => '31 days')", "22023 rowlock: timeout_ms '2678400000' must be a whole number from 1 to 2592000000"),
            ("enqueue('k', expires_at => '2020-01-01')", "22023 rowlock: expires_at '2020-01-01T00:00:00+00:00' has passed: such a job would never run"),
            ("enqueue('k', expires_at => 'infinity')", "22023 rowlock: expires_at 'infinity' is out of range: it must lie between the years 2000 and 2999"),
            ("enqueue('k', tags => array_fill('t'::text, array[1000000]))", "22023 rowlock: tags '[\"t\", \"t\", \"t\", \"t\", \"t\", \"t\", \"t\", \"t\", \"t\", \"t\", \"t\", \"t\",' has 1000000 entries: at most 32 are allowed"),
            ("enqueue('k', tags => array[repeat('t', 201)])", "22023 rowlock: tag 'tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt' has 201 bytes: at most 200 are allowed"),
            ("enqueue('k', tags => array['a', null])", "22023 rowlock: tag 'null' is no text"),
            ("enqueue('k', metadata => '[]')", "22023 rowlock: metadata 'array' is not a JSON object"),
            ("enqueue('k', metadata => jsonb_build_object('a', repeat('x', 70000)))", "22023 rowlock: metadata '70009 bytes' is too large: at most 65536 bytes are allowed"),
            ("enqueue('k', unique_key => '')", "22023 rowlock: unique_key '' must be a text of 1 to 500 bytes"),
            ("enqueue('k', unique_key => repeat('u', 501))", "22023 rowlock: unique_key 'uuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuu' must be a text of 1 to 500 bytes"),
            ("enqueue('k', unique_key => 'u', on_conflict => 'ignore')", "22023 rowlock: on_conflict 'ignore' is neither keep nor replace"),
            ("enqueue('k', on_conflict => 'ignore')", "22023 rowlock: on_conflict 'ignore' is neither keep nor replace"),
            ("enqueue('k', trace => repeat('x', 201))", "22023 rowlock: trace 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' must be a text of at most 200 bytes"),
            // What Postgres itself refuses before a function is called.
            ("enqueue('k', '{\"a\": \"\\u0000\"}')", "22P05 unsupported Unicode escape sequence"),
            ("enqueue(E'\\xff')", "22021 invalid byte sequence for encoding \"UTF8\": 0xff"),
            ("enqueue('k', jsonb_build_object('a', E'\\xc3\\x28'))", "22021 invalid byte sequence for encoding \"UTF8\": 0xc3 0x28"),
            ("enqueue('k', priority => 3000000000)", "42883 function rowlock.enqueue(unknown, priority => bigint) does not exist"),
        ],
    )
    .await;
}

#[tokio::test]
async fn enqueue_many_refuses_bad_values() {
    let own = installed().await;
    run(
        &own.pg,
        "select rowlock.enqueue('already there', unique_key => 'u')",
    )
    .await;
    all_refused(
        &own.pg,
        &[
            ("enqueue_many('{}')", "22023 rowlock: jobs 'object' is not a JSON list of objects"),
            ("enqueue_many(null)", "22023 rowlock: jobs 'null' is not a JSON list of objects"),
            ("enqueue_many('[1]')", "22023 rowlock: jobs 'number' stands in the list, where only JSON objects may"),
            ("enqueue_many((select jsonb_agg('{}'::jsonb) from generate_series(1, 10001)))", "22023 rowlock: jobs '10001' entries are too many for one call: at most 10000"),
            ("enqueue_many('[{\"payload\": {}}]')", "22023 rowlock: kind 'null' is empty: it needs 1 to 200 bytes"),
            ("enqueue_many('[{\"kind\": 5}]')", "22023 rowlock: kind '5' is no text"),
            ("enqueue_many('[{\"kind\": \"k\", \"queue\": {\"a\": 1}}]')", "22023 rowlock: queue '{\"a\": 1}' is no text"),
            ("enqueue_many('[{\"kind\": \"k\", \"run_at\": 1700000000}]')", "22023 rowlock: run_at '1700000000' is no text"),
            ("enqueue_many('[{\"kind\": \"k\", \"run_at\": \"soon\"}]')", "22007 invalid input syntax for type timestamp with time zone: \"soon\""),
            ("enqueue_many('[{\"kind\": \"k\", \"run_at\": \"infinity\"}]')", "22023 rowlock: run_at 'infinity' is out of range: it must lie between the years 2000 and 2999"),
            ("enqueue_many('[{\"kind\": \"k\", \"delay_ms\": -1}]')", "22023 rowlock: delay_ms '-1' must be a whole number from 0 to 28401840000000"),
            ("enqueue_many('[{\"kind\": \"k\", \"delay_ms\": 1.5}]')", "22023 rowlock: delay_ms '1.5' must be a whole number from 0 to 28401840000000"),
            ("enqueue_many('[{\"kind\": \"k\", \"delay_ms\": \"5\"}]')", "22023 rowlock: delay_ms '5' must be a whole number from 0 to 28401840000000"),
            ("enqueue_many('[{\"kind\": \"k\", \"delay_ms\": 1, \"run_at\": \"2040-01-01\"}]')", "22023 rowlock: delay_ms '1' and run_at are both given: say one of them"),
            ("enqueue_many('[{\"kind\": \"k\", \"priority\": 9}]')", "22023 rowlock: priority '9' must be a whole number from -4 to 4"),
            ("enqueue_many('[{\"kind\": \"k\", \"payload\": null}]')", "22023 rowlock: payload 'null' is not a JSON object"),
            ("enqueue_many('[{\"kind\": \"k\"}, {\"kind\": \"k\", \"payload\": 5}]')", "22023 rowlock: payload 'number' is not a JSON object"),
            ("enqueue_many('[{\"kind\": \"k\"}, {\"kind\": \"k\", \"prioritty\": 1}]')", "22023 rowlock: option 'prioritty' is unknown: known are max_attempts, timeout_ms, expires_at, expires_in_ms, tags, metadata, unique_key, on_conflict, backoff, trace"),
            ("enqueue_many('[{\"kind\": \"k\", \"tags\": \"x\"}]')", "22023 rowlock: tags '\"x\"' must be a list of texts"),
            ("enqueue_many('[{\"kind\": \"k\", \"tags\": [1]}]')", "22023 rowlock: tag '1' is no text"),
            ("enqueue_many('[{\"kind\": \"k\", \"unique_key\": 5}]')", "22023 rowlock: unique_key '5' must be a text of 1 to 500 bytes"),
            ("enqueue_many('[{\"kind\": \"k\", \"unique_key\": \"u\", \"on_conflict\": \"merge\"}]')", "22023 rowlock: on_conflict 'merge' is neither keep nor replace"),
            ("enqueue_many('[{\"kind\": \"k\", \"timeout_ms\": 0}]')", "22023 rowlock: timeout_ms '0' must be a whole number from 1 to 2592000000"),
            ("enqueue_many('[{\"kind\": \"k\", \"expires_in_ms\": 0}]')", "22023 rowlock: expires_in_ms '0' must be a whole number from 1 to 28401840000000"),
            ("enqueue_many('[{\"kind\": \"k\", \"max_attempts\": \"many\"}]')", "22023 rowlock: max_attempts 'many' must be a whole number from 1 to 1000"),
            // One bad job and the good ones in other queues are not enqueued either.
            ("enqueue_many('[{\"kind\": \"k\", \"queue\": \"a\"}, {\"kind\": \"\", \"queue\": \"b\"}]')", "22023 rowlock: kind '' is empty: it needs 1 to 200 bytes"),
        ],
    )
    .await;
}

#[tokio::test]
async fn enqueue_batch_refuses_bad_values() {
    let own = installed().await;
    all_refused(
        &own.pg,
        &[
            ("enqueue_batch('q', null, null, '{0}')", "22023 rowlock: kinds 'null' entries, but the other arrays have another length"),
            ("enqueue_batch('q', '{k}', null)", "22023 rowlock: kinds '1' entries, but the other arrays have another length"),
            ("enqueue_batch('q', '{k}', '{}')", "22023 rowlock: kinds '1' entries, but the other arrays have another length"),
            ("enqueue_batch('q', '{k}', array['{}'::jsonb], '{1,2}')", "22023 rowlock: kinds '1' entries, but the other arrays have another length"),
            ("enqueue_batch('q', '{k}', array['{}'::jsonb], '{7}')", "22023 rowlock: priority '7' is out of range: it must be from -4 to 4"),
            ("enqueue_batch('q', '{k}', array['{}'::jsonb], null, '{infinity}')", "22023 rowlock: run_at 'infinity' is out of range: it must lie between the years 2000 and 2999"),
            ("enqueue_batch('q', '{k}', array['{}'::jsonb], null, null, '{-1}')", "22023 rowlock: delay_ms '-1' is negative"),
            ("enqueue_batch('q', '{k}', array['{}'::jsonb], null, null, '{28401840000001}')", "22023 rowlock: delay_ms '28401840000001' is too long: a job may be put off for at most 900 years"),
            ("enqueue_batch('q', '{k}', array['{}'::jsonb], null, null, null, array['5'::jsonb])", "22023 rowlock: options '5' must be a JSON object"),
            ("enqueue_batch('q', '{k,null}', array['{}', '{}']::jsonb[])", "22023 rowlock: kind 'null' is empty: it needs 1 to 200 bytes"),
            ("enqueue_batch('q', '{k,k}', array['{}', '[]']::jsonb[])", "22023 rowlock: payload 'array' is not a JSON object"),
        ],
    )
    .await;
}

#[tokio::test]
async fn enqueue_plain_refuses_what_enqueue_refuses() {
    let own = installed().await;
    for there in [false, true] {
        if there {
            run(&own.pg, "select rowlock.ensure_queue('q')").await;
        }
        all_refused(
            &own.pg,
            &[
                ("enqueue_plain('', 'k', '{}', 0)", "22023 rowlock: queue '' is empty: it needs 1 to 200 bytes"),
                ("enqueue_plain(E'a\\nb', 'k', '{}', 0)", "22023 rowlock: queue 'a?b' has a control character: only printable text is allowed"),
                ("enqueue_plain(repeat('q', 201), 'k', '{}', 0)", "22023 rowlock: queue 'qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq' has 201 bytes: at most 200 are allowed"),
                ("enqueue_plain('q', repeat('k', 201), '{}', 0)", "22023 rowlock: kind 'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk' has 201 bytes: at most 200 are allowed"),
                ("enqueue_plain('q', '', '{}', 0)", "22023 rowlock: kind '' is empty: it needs 1 to 200 bytes"),
                ("enqueue_plain('q', null, '{}', 0)", "22023 rowlock: kind 'null' is empty: it needs 1 to 200 bytes"),
                ("enqueue_plain('q', E'a\\nb', '{}', 0)", "22023 rowlock: kind 'a?b' has a control character: only printable text is allowed"),
                ("enqueue_plain('q', 'k', '[]', 0)", "22023 rowlock: payload 'array' is not a JSON object"),
                ("enqueue_plain('q', 'k', null, 0)", "22023 rowlock: payload 'null' is not a JSON object"),
                ("enqueue_plain('q', 'k', '{}', 5)", "22023 rowlock: priority '5' is out of range: it must be from -4 to 4"),
                ("enqueue_plain('q', 'k', '{}', null)", "22023 rowlock: priority 'null' is out of range: it must be from -4 to 4"),
                ("enqueue_plain(null, 'k', '{}', 0)", "22023 rowlock: queue 'null' is empty: it needs 1 to 200 bytes"),
                ("enqueue_plain('q', 'k', jsonb_build_object('a', repeat('x', 1100000)), 0)", "22023 rowlock: payload '1100009 bytes' is too large: this queue takes at most 1048576 bytes"),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn enqueue_plain_makes_the_queue_and_takes_large_payloads() {
    let own = installed().await;
    let pg = &own.pg;
    for payload in [
        "'{\"n\": 1}'",
        "jsonb_build_object('a', repeat('x', 600000))",
    ] {
        let id = number(
            pg,
            &format!("select rowlock.enqueue_plain('new', 'k', {payload}, -3)"),
        )
        .await;
        assert_eq!(
            one(pg, &format!("select queue, kind, priority, payload = {payload}, run_at = created_at, lease_until from rowlock.job where id = {id}")).await,
            "new|k|-3|t|t|-infinity",
            "{payload}"
        );
    }
    assert!(
        is(
            pg,
            "select exists (select from rowlock.queue where name = 'new')"
        )
        .await
    );
}

/// Whether it is too large for its queue is found out behind the insert.
#[tokio::test]
async fn a_payload_that_is_too_large_for_its_queue_leaves_nothing_behind() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "select rowlock.set_queue('small', '{\"max_payload_bytes\": 2000}')",
    )
    .await;
    // Of these lengths: just right, just too long, and so long that it is measured before.
    let payload = |bytes: usize| format!("jsonb_build_object('a', repeat('x', {}))", bytes - 9);
    for bytes in [2000, 2001, 100_000] {
        for sql in [
            format!(
                "select rowlock.enqueue_plain('small', 'k', {}, 0)",
                payload(bytes)
            ),
            format!(
                "select id from rowlock.enqueue('k', {}, 'small')",
                payload(bytes)
            ),
            format!(
                "select id from rowlock.enqueue('k', {}, 'small', tags => '{{t}}')",
                payload(bytes)
            ),
        ] {
            run(pg, "truncate rowlock.job").await;
            if bytes == 2000 {
                run(pg, &sql).await;
            } else {
                assert_eq!(
                    refused(pg, &sql).await,
                    format!(
                        "22023 rowlock: payload '{bytes} bytes' is too large: this queue takes at most 2000 bytes"
                    ),
                    "{sql}"
                );
            }
            let stored = number(pg, "select count(*) from rowlock.job").await;
            assert_eq!(stored, i64::from(bytes == 2000), "{sql}");
        }
    }
}

/// The limit is on what a worker gets. Such jobs came in, and if there was more than a gigabyte of one, no claim of it could be answered.
#[tokio::test]
async fn a_payload_that_is_small_only_where_it_is_stored_is_refused() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "create temporary table payload (what text, it jsonb); \
         insert into payload select 'compressed', jsonb_build_object('a', repeat('x', 1100000)); \
         insert into payload select 'numbers', jsonb_build_object('a', (select jsonb_agg(1e131071::numeric) from generate_series(1, 9)))",
    )
    .await;
    for (what, bytes) in [("compressed", 1_100_009), ("numbers", 1_179_673)] {
        let stored = number(
            pg,
            &format!("select pg_column_size(it) from payload where what = '{what}'"),
        )
        .await;
        assert!(stored < 60_000, "{stored}");
        for call in [
            "enqueue('k', it)",
            "enqueue('k', it, tags => '{t}')",
            "enqueue_plain('q', 'k', it, 0)",
            "enqueue_many(jsonb_build_array('{\"kind\": \"k\"}'::jsonb, jsonb_build_object('kind', 'k', 'payload', it)))",
        ] {
            assert_eq!(
                refused(
                    pg,
                    &format!("select rowlock.{call} from payload where what = '{what}'")
                )
                .await,
                format!(
                    "22023 rowlock: payload '{bytes} bytes' is too large: this queue takes at most 1048576 bytes"
                ),
                "{call}"
            );
        }
    }
    assert_eq!(number(pg, "select count(*) from rowlock.job").await, 0);
}

#[tokio::test]
async fn a_large_payload_does_not_hide_a_bad_neighbour() {
    let own = installed().await;
    let large = "jsonb_build_object('a', repeat('x', 600000))";
    all_refused(
        &own.pg,
        &[
            (&format!("enqueue_batch('q', array['k', E'a\\nb'], array[{large}, '{{}}'])"), "22023 rowlock: kind 'a?b' has a control character: only printable text is allowed"),
            (&format!("enqueue_batch('q', '{{k,k}}', array[{large}, '{{}}'], '{{0,9}}')"), "22023 rowlock: priority '9' is out of range: it must be from -4 to 4"),
            (&format!("enqueue_batch('q', '{{k,k}}', array[{large}, '{{}}'], null, '{{null,infinity}}')"), "22023 rowlock: run_at 'infinity' is out of range: it must lie between the years 2000 and 2999"),
            (&format!("enqueue_batch('q', '{{k,k}}', array[{large}, '[]'])"), "22023 rowlock: payload 'array' is not a JSON object"),
        ],
    )
    .await;
    run(
        &own.pg,
        &format!("select rowlock.enqueue_batch('q', '{{k,k}}', array[{large}, '{{}}'])"),
    )
    .await;
    assert_eq!(
        number(&own.pg, "select count(*) from rowlock.job").await,
        2,
        "within the limit it is welcome"
    );
}

/// In a table it takes less room than it has bytes.
#[tokio::test]
async fn a_compressed_payload_is_measured_all_the_same() {
    let own = installed().await;
    run(
        &own.pg,
        "create table stored as select array[jsonb_build_object('a', repeat('x', 1100000))] as payloads",
    )
    .await;
    assert_eq!(
        refused(
            &own.pg,
            "select rowlock.enqueue_batch('q', '{k}', payloads) from stored"
        )
        .await,
        "22023 rowlock: payload '1100009 bytes' is too large: this queue takes at most 1048576 bytes"
    );
}

#[tokio::test]
async fn the_limit_on_payloads_is_the_queues() {
    let own = installed().await;
    let pg = &own.pg;
    // {"a": "…"} has nine bytes beside the value.
    let of = |bytes: usize| format!("jsonb_build_object('a', repeat('x', {}))", bytes - 9);
    run(
        pg,
        &format!("select rowlock.enqueue('k', {})", of(1_048_576)),
    )
    .await;
    run(pg, "select rowlock.set_queue('small', '{\"max_payload_bytes\": 2000}'), rowlock.set_queue('big', '{\"max_payload_bytes\": 3000000}')").await;
    run(
        pg,
        &format!(
            "select rowlock.enqueue('k', {}, queue => 'small')",
            of(2000)
        ),
    )
    .await;
    run(
        pg,
        &format!(
            "select rowlock.enqueue('k', {}, queue => 'big')",
            of(3_000_000)
        ),
    )
    .await;
    for (queue, bytes, limit) in [
        ("small", 2001, 2000),
        ("big", 3_000_001, 3_000_000),
        ("default", 1_048_577, 1_048_576),
    ] {
        let said = format!(
            "22023 rowlock: payload '{bytes} bytes' is too large: this queue takes at most {limit} bytes"
        );
        let many = format!(
            "select rowlock.enqueue_many(jsonb_build_array(jsonb_build_object('kind', 'k', 'queue', '{queue}', 'payload', {})))",
            of(bytes)
        );
        assert_eq!(
            refused(
                pg,
                &format!(
                    "select rowlock.enqueue('k', {}, queue => '{queue}')",
                    of(bytes)
                )
            )
            .await,
            said
        );
        assert_eq!(refused(pg, &many).await, said);
        assert_eq!(
            refused(
                pg,
                &format!(
                    "select rowlock.enqueue_batch('{queue}', '{{k}}', array[{}])",
                    of(bytes)
                )
            )
            .await,
            said
        );

        let text = json!({"a": "x".repeat(bytes - 8)});
        let job = || {
            NewJob::new("k", &text)
                .expect("JSON")
                .queue(queue.to_owned())
        };
        let compact = bytes; // the library writes no space after the colon, Postgres does
        for (how, error) in [
            (
                "enqueue",
                own.client
                    .enqueue_new(job())
                    .await
                    .expect_err("too large")
                    .to_string(),
            ),
            (
                "enqueue_all",
                own.client
                    .enqueue_all([job()])
                    .await
                    .expect_err("too large")
                    .to_string(),
            ),
            (
                "bulk",
                own.client
                    .bulk([job()])
                    .await
                    .expect_err("too large")
                    .to_string(),
            ),
        ] {
            assert!(
                error.contains("payload")
                    && error.contains("too large")
                    && error.contains(&limit.to_string()),
                "{how}, {compact}: {error}"
            );
        }
    }
    assert_eq!(number(pg, "select count(*) from rowlock.job").await, 3);
    assert_eq!(
        refused(
            pg,
            "select rowlock.set_queue('x', '{\"max_payload_bytes\": 1}')"
        )
        .await,
        "22023 rowlock: max_payload_bytes '1' must be a whole number from 1024 to 268435456"
    );
}

#[tokio::test]
async fn the_library_refuses_bad_values_and_changes_nothing() {
    let own = installed().await;
    let job = || NewJob::new("k", &json!({})).expect("a job");
    let at = |text: &str| text.parse().expect("a time");
    let before = everything(&own.pg).await;
    for (bad, said) in [
        (NewJob::new("", &json!({})).expect("made"), r#"kind "" is empty: it needs 1 to 200 bytes"#.to_owned()),
        (NewJob::new("k".repeat(201), &json!({})).expect("made"), format!("kind {:?} has 201 bytes: at most 200 are allowed", "k".repeat(60))),
        (NewJob::new("a\nb", &json!({})).expect("made"), r#"kind "a\nb" has a control character: only printable text is allowed"#.into()),
        (NewJob::new("k", &[1, 2]).expect("made"), r#"payload "array" is not a JSON object"#.into()),
        (NewJob::new("k", &json!({"a": "\0"})).expect("made"), r#"payload "\\u0000" holds a NUL character, which Postgres cannot store"#.into()),
        (job().queue(""), r#"queue "" is empty: it needs 1 to 200 bytes"#.into()),
        (job().priority(5), r#"priority "5" is out of range: it must be from -4 to 4"#.into()),
        (job().run_at(at("9999-01-01T00:00:00Z")), r#"run_at "9999-01-01T00:00:00Z" is out of range: it must lie between the years 2000 and 2999"#.into()),
        (job().run_at(at("1969-01-01T00:00:00Z")), r#"run_at "1969-01-01T00:00:00Z" is out of range: it must lie between the years 2000 and 2999"#.into()),
        (job().delay(Duration::MAX), "delay \"18446744073709551615.999999999s\" is too long: run_at must lie before the year 3000".into()),
        (job().max_attempts(0), r#"max_attempts "0" must be a whole number from 1 to 1000"#.into()),
        (job().timeout(Duration::ZERO), r#"timeout "0ns" must be from 1 ms to 30 days"#.into()),
        (job().backoff(Backoff::list([])), r#"backoff "[]" must be a list of 1 to 100 delays, each from 0 to a year"#.into()),
        ((0..1000).fold(job(), |job, _| job.tag("t")), r#"tags "t" has 1000 entries: at most 32 are allowed"#.into()),
        (job().tag("a\u{7}"), r#"tag "a\u{7}" has a control character: only printable text is allowed"#.into()),
        (job().metadata("m", "x".repeat(70_000)), r#"metadata "70008 bytes" is too large: at most 65536 bytes are allowed here"#.into()),
        (job().unique(""), r#"unique_key "" must be a text of 1 to 500 bytes"#.into()),
        (job().trace("x".repeat(201)), format!("trace {:?} must be a text of at most 200 bytes", "x".repeat(60))),
        (job().expires(at("2020-01-01T00:00:00Z")), r#"expires_at "2020-01-01T00:00:00Z" has passed: such a job would never run"#.into()),
    ] {
        let good = job();
        for (how, error) in [
            ("enqueue", own.client.enqueue_new(bad.clone()).await.expect_err("bad")),
            ("enqueue_all", own.client.enqueue_all([good.clone(), bad.clone()]).await.expect_err("bad")),
            ("bulk", own.client.bulk([good, bad.clone()]).await.expect_err("bad")),
        ] {
            assert!(matches!(error, Error::Invalid(_)), "{how}: {error:?}");
            assert_eq!(error.to_string(), said, "{how}");
            assert!(!error.is_retryable(), "{how}: a bad value stays bad");
        }
    }
    assert_eq!(everything(&own.pg).await, before);
}

#[tokio::test]
async fn one_bad_enqueue_does_not_hurt_those_that_travel_with_it() {
    let own = installed().await;
    let client = &own.client;
    run(
        &own.pg,
        "select rowlock.set_queue('default', '{\"max_payload_bytes\": 1024}')",
    )
    .await;
    let enqueues = (0..60).map(|n| {
        // Only the database knows that this queue takes so little.
        let text = "x".repeat(if n == 37 { 5000 } else { 10 });
        let job = NewJob::new("k", &json!({"text": text})).expect("a job");
        async move { client.enqueue_new(job).await }
    });
    let answers = futures_util::future::join_all(enqueues).await;
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer.is_err(), n == 37, "job {n}: {answer:?}");
    }
    let error = answers[37].as_ref().expect_err("too large").to_string();
    assert_eq!(
        error,
        r#"payload "5012 bytes" is too large: this queue takes at most 1024 bytes"#
    );
    assert_eq!(
        number(&own.pg, "select count(*) from rowlock.job").await,
        59
    );
}

#[tokio::test]
async fn an_enqueue_that_is_rolled_back_leaves_nothing() {
    let own = installed().await;
    let pg = &own.pg;
    let before = everything(pg).await;
    run(
        pg,
        "begin; select rowlock.enqueue('k', queue => 'new'), rowlock.enqueue_many('[{\"kind\": \"k\"}]'), \
         rowlock.enqueue_batch('q', '{k}', array['{}'::jsonb]); rollback",
    )
    .await;
    assert_eq!(everything(pg).await, before);
    // Beside a transaction that is making the same queue: no waiting, and the queue's row comes later.
    let other = own.another().await;
    run(pg, "begin; select rowlock.enqueue('k', queue => 'new')").await;
    run(
        &other,
        "set statement_timeout = '20s'; select rowlock.enqueue('k', queue => 'new')",
    )
    .await;
    run(pg, "rollback").await;
    assert_eq!(
        one(pg, "select count(*) from rowlock.job where queue = 'new'").await,
        "1"
    );
    assert_eq!(
        rows(pg, "select queue from rowlock.claim('{new}', 5)").await,
        ["new"],
        "it can be worked all the same"
    );
}

#[tokio::test]
async fn ids_beyond_four_billion() {
    let own = installed().await;
    let pg = &own.pg;
    run(
        pg,
        "select setval('rowlock.job_id', 3000000000), setval('rowlock.worker_id', 4000000000)",
    )
    .await;
    let id = number(pg, "select id from rowlock.enqueue('k')").await;
    assert_eq!(id, 3_000_000_001);
    let bulk = own
        .client
        .enqueue_new(NewJob::new("k", &json!({})).expect("a job"))
        .await
        .expect("enqueued")
        .id;
    assert_eq!(bulk.0, id + 1);
    run(
        pg,
        "select rowlock.enqueue_many('[{\"kind\": \"k\", \"unique_key\": \"u\"}]')",
    )
    .await;
    let worker = number(
        pg,
        "select rowlock.register_worker('w', 'h', 1, 'v', '{default}', '{}', 1)",
    )
    .await;
    let held = claim(pg, &format!("n => 3, worker => {worker}")).await;
    assert_eq!(ids(&held), [id, id + 1, id + 2]);
    assert_eq!(
        one(
            pg,
            &format!("select place, state, worker, worker_name from rowlock.find_job({id})")
        )
        .await,
        "live|running|4000000001|w"
    );
    run(
        pg,
        &format!(
            "select rowlock.extend({}), rowlock.progress('default', {id}, {}, '{{}}')",
            super::kit::named(&held),
            held[0].token
        ),
    )
    .await;
    assert_eq!(
        complete(pg, &held[..1]).await,
        format!("{{{id}}}|{{}}|{{}}")
    );
    run(
        pg,
        &format!(
            "select rowlock.fail({}, '{{x}}', null, '{{refused}}')",
            super::kit::named(&held[1..2])
        ),
    )
    .await;
    assert_eq!(
        rows(
            pg,
            &format!("select id, answer from rowlock.cancel(array[{}])", id + 2)
        )
        .await,
        [format!("{}|asked", id + 2)]
    );
    assert_eq!(
        rows(
            pg,
            &format!(
                "select id, new_id, answer from rowlock.retry(array[{id}, {}]) order by id",
                id + 1
            )
        )
        .await,
        [
            format!("{id}|{}|copied", id + 3),
            format!("{0}|{0}|revived", id + 1)
        ]
    );
    assert_eq!(
        one(
            pg,
            &format!("select place, state from rowlock.find_job({id})")
        )
        .await,
        "finished|done"
    );
    let casts = rows(
        pg,
        "select proname from pg_proc where pronamespace = 'rowlock'::regnamespace \
         and prosrc ~ '(job_?id|\\mids?(\\[[a-z]+\\])?)\\)?::int(eger|4)?\\M'",
    )
    .await;
    assert!(
        casts.is_empty(),
        "these functions cast an id to 32 bits: {casts:?}"
    );
}
