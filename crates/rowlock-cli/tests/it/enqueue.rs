//! `rowlock enqueue`.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{Place, of};

const CONFIG: &str = "[handler.k]\ncommand = \"true\"\n";

async fn row(place: &Place, id: rowlock::JobId) -> Value {
    let text = place
        .ask(&format!(
            "select to_jsonb(j)::text from rowlock.job j where id = {id}"
        ))
        .await;
    serde_json::from_str(&text.unwrap()).unwrap()
}

fn with_input(place: &Place, arguments: &[&str], input: &str) -> crate::support::Ran {
    let mut child = place
        .rowlock(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    of(&child.wait_with_output().unwrap())
}

#[tokio::test]
async fn every_option_arrives() {
    let place = Place::new(CONFIG).await;
    let id = place
        .enqueue(&[
            "mail",
            r#"{"to": "x"}"#,
            "--queue",
            "q",
            "--priority",
            "-2",
            "--run-at",
            "2030-01-31T08:00:00Z",
            "--max-attempts",
            "7",
            "--timeout",
            "1m30s",
            "--expires",
            "2031-01-01T00:00:00Z",
            "--tag",
            "a",
            "--tag",
            "b",
            "--metadata",
            "n=1",
            "--metadata",
            "s=text",
            "--unique",
            "key",
            "--backoff",
            "fixed 5s, jitter 0",
            "--trace",
            "tp",
        ])
        .await;
    let row = row(&place, id).await;
    assert_eq!(row["payload"], json!({"to": "x"}));
    assert_eq!(
        (&row["kind"], &row["queue"], &row["priority"]),
        (&"mail".into(), &"q".into(), &(-2).into())
    );
    assert!(
        row["run_at"].as_str().unwrap().starts_with("2030-01-31"),
        "{row}"
    );
    assert!(
        row["expires_at"]
            .as_str()
            .unwrap()
            .starts_with("2031-01-01")
            || row["expires_at"]
                .as_str()
                .unwrap()
                .starts_with("2030-12-31"),
        "{row}"
    );
    assert_eq!(
        (&row["max_attempts"], &row["timeout_ms"]),
        (&7.into(), &90_000.into())
    );
    assert_eq!(
        (&row["tags"], &row["metadata"]),
        (&json!(["a", "b"]), &json!({"n": 1, "s": "text"}))
    );
    assert_eq!(
        (&row["unique_key"], &row["trace"]),
        (&"key".into(), &"tp".into())
    );
    assert_eq!(row["backoff"]["base_ms"], 5000);
}

#[tokio::test]
async fn the_payload_may_come_from_standard_input() {
    let place = Place::new(CONFIG).await;
    let ran = with_input(
        &place,
        &["enqueue", "k", "-"],
        "{\"n\": 12345678901234567890}\n",
    );
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "job 1 is enqueued\n"),
        "{}",
        ran.err
    );
    assert_eq!(
        row(&place, rowlock::JobId(1)).await["payload"].to_string(),
        r#"{"n":12345678901234567890}"#
    );
}

#[tokio::test]
async fn a_key_that_is_taken_is_said_and_replaced_on_demand() {
    let place = Place::new(CONFIG).await;
    let first = place.enqueue(&["k", r#"{"n": 1}"#, "--unique", "u"]).await;
    let ran = place
        .run(&["enqueue", "k", r#"{"n": 2}"#, "--unique", "u"])
        .await;
    assert_eq!(
        (ran.code, ran.out),
        (
            Some(0),
            format!("job {first} was there already with this key\n")
        )
    );
    assert_eq!(row(&place, first).await["payload"], json!({"n": 1}));
    place
        .enqueue(&["k", r#"{"n": 3}"#, "--unique", "u", "--replace"])
        .await;
    assert_eq!(row(&place, first).await["payload"], json!({"n": 3}));
}

#[tokio::test]
async fn bad_input_is_refused_by_name() {
    let place = Place::new(CONFIG).await;
    for (arguments, code, part) in [
        (&["enqueue", "k", "{"][..], 2, "the payload is no JSON"),
        (&["enqueue", "k", "[1]"], 2, "is not a JSON object"),
        (&["enqueue", "k", "--priority", "9"], 2, "from -4 to 4"),
        (&["enqueue", "k", "--delay", "soon"], 2, "is no duration"),
        (&["enqueue", "k", "--run-at", "tomorrow"], 2, "is no time"),
        (&["enqueue", "k", "--expires", "later"], 2, "neither a time"),
        (
            &["enqueue", "k", "--backoff", "exponental 1s"],
            2,
            "did you mean \"exponential\"?",
        ),
        (
            &["enqueue", "k", "--metadata", "novalue"],
            2,
            "is no KEY=VALUE",
        ),
        (&["enqueue", "k", "--replace"], 2, "--unique"),
        (
            &["enqueue", "--bulk", "x", "--queue", "q"],
            2,
            "cannot be used with",
        ),
        (&["enqueue"], 2, "<KIND>"),
        (
            &["enqueue", "--bulk", "not-there.ndjson"],
            1,
            "cannot read not-there.ndjson",
        ),
    ] {
        let ran = place.run(arguments).await;
        assert_eq!(ran.code, Some(code), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(part), "{arguments:?}: {}", ran.err);
    }
    assert_eq!(
        place
            .ask("select count(*)::text from rowlock.job")
            .await
            .as_deref(),
        Some("0")
    );
}

#[tokio::test]
async fn a_file_is_loaded_whole() {
    let place = Place::new(CONFIG).await;
    let lines: String = (0..25_000)
        .map(|n| format!("{{\"kind\": \"k\", \"payload\": {{\"n\": {n}}}}}\n"))
        .collect();
    std::fs::write(
        place.path("jobs.ndjson"),
        lines + "\n  \n{\"kind\": \"k\", \"queue\": \"q\", \"tags\": [\"last\"]}",
    )
    .unwrap();
    let ran = place.run(&["enqueue", "--bulk", "jobs.ndjson"]).await;
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (Some(0), "25,001 jobs loaded\n", "")
    );
    assert_eq!(
        place
            .ask("select count(*)::text from rowlock.job")
            .await
            .as_deref(),
        Some("25001")
    );
}

#[tokio::test]
async fn a_handler_may_load_a_file() {
    // Handlers have a trace in their environment, which is no reason to refuse.
    let place = Place::new(CONFIG).await;
    std::fs::write(place.path("jobs.ndjson"), "{\"kind\": \"k\"}").unwrap();
    let mut command = place.rowlock(&["enqueue", "--bulk", "jobs.ndjson"]);
    command.env("TRACEPARENT", "tp");
    let ran = crate::support::run(command).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}

#[tokio::test]
async fn bad_lines_are_named_and_nothing_is_loaded_unless_asked() {
    let place = Place::new(CONFIG).await;
    let lines = "{\"kind\": \"k\"}\nnot json\n{\"kind\": \"k\", \"priority\": 9}\n{\"kind\": \"k\", \"que\": \"x\"}\n{\"kind\": \"k\"}\n";
    std::fs::write(place.path("jobs.ndjson"), lines).unwrap();
    let ran = place.run(&["enqueue", "--bulk", "jobs.ndjson"]).await;
    assert_eq!(ran.code, Some(1));
    insta::assert_snapshot!(ran.out);
    assert_eq!(
        place
            .ask("select count(*)::text from rowlock.job")
            .await
            .as_deref(),
        Some("0")
    );

    let ran = with_input(
        &place,
        &["enqueue", "--bulk", "-", "--skip-bad", "--json"],
        lines,
    );
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&answer["loaded"], &answer["skipped"]),
        (&2.into(), &3.into())
    );
    assert_eq!(answer["errors"][0]["line"], 2);
    assert_eq!(
        place
            .ask("select count(*)::text from rowlock.job")
            .await
            .as_deref(),
        Some("2")
    );
}

#[tokio::test]
async fn a_payload_that_the_queue_does_not_take_is_named_by_its_line() {
    let place = Place::new(CONFIG).await;
    place
        .ask("select rowlock.set_queue('small', '{\"max_payload_bytes\": 1024}')::text")
        .await;
    let big = "x".repeat(2000);
    let lines = format!(
        "{{\"kind\": \"k\", \"queue\": \"small\"}}\n{{\"kind\": \"k\", \"queue\": \"small\", \"payload\": {{\"big\": \"{big}\"}}}}\n"
    );
    std::fs::write(place.path("jobs.ndjson"), lines).unwrap();
    let ran = place.run(&["enqueue", "--bulk", "jobs.ndjson"]).await;
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.out.contains(
            "jobs.ndjson:2: payload has 2011 bytes: at most 1024 are allowed in queue \"small\""
        ),
        "{}",
        ran.out
    );
}
