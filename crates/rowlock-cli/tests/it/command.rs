//! Commands as handlers.

use std::path::Path;

use rowlock_testkit::FaultProxy;

use crate::support::{Place, Running};

/// A configuration with one handler that runs this shell script.
fn handler(script: &str, more: &str) -> String {
    let script = serde_json::to_string(script).unwrap();
    format!("[handler.k]\ncommand = {script}\n{more}\n")
}

#[tokio::test]
async fn the_payload_is_on_stdin_and_the_job_in_the_environment() {
    let script = r#"printf '{"rowlock": {"outcome": "done", "result": {"payload": %s, "id": %s, "kind": "%s", "queue": "%s", "attempt": %s,
        "key": "%s", "trace": "%s", "tags": %s, "metadata": %s, "extra": "%s", "notify": "%s"}}}' \
        "$(cat)" "$ROWLOCK_ID" "$ROWLOCK_KIND" "$ROWLOCK_QUEUE" "$ROWLOCK_ATTEMPT" "$ROWLOCK_KEY" "$ROWLOCK_TRACEPARENT" \
        "$ROWLOCK_TAGS" "$ROWLOCK_METADATA" "$EXTRA" "$NOTIFY_SOCKET" | tr -d '\n'"#;
    let place = Place::new(&handler(script, "env = { EXTRA = \"more\" }")).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let id = place
        .enqueue(&[
            "k",
            r#"{"n": 12345678901234567890}"#,
            "--queue",
            "q",
            "--tag",
            "t",
            "--metadata",
            "a=1",
            "--trace",
            trace,
        ])
        .await;
    let mut command = place.rowlock(&["work", "--drain"]);
    command.env("NOTIFY_SOCKET", place.path("nobody-listens"));
    assert_eq!(crate::support::run(command).await.code, Some(0));
    let fate = place.fate(id).await;
    assert_eq!(fate.state, "done", "{fate:?}");
    let result = fate.result.unwrap();
    assert_eq!(
        result["payload"].to_string(),
        r#"{"n":12345678901234567890}"#
    );
    assert_eq!(result["id"], id.0);
    assert_eq!(
        (&result["kind"], &result["queue"], &result["attempt"]),
        (&"k".into(), &"q".into(), &1.into())
    );
    assert_eq!(result["key"], format!("{}-{id}", place.queue.db().schema()));
    assert_eq!(result["trace"], trace);
    assert_eq!(result["tags"], serde_json::json!(["t"]));
    assert_eq!(result["metadata"], serde_json::json!({"a": 1}));
    assert_eq!(result["extra"], "more");
    assert_eq!(
        result["notify"], "",
        "the worker's socket is not for its handlers"
    );
}

#[tokio::test]
async fn the_exit_code_decides() {
    let config = handler(
        "exit $(cat | tr -dc 0-9)",
        "exit = { 10 = \"dead\", 11 = \"cancel\", 12 = \"snooze 1h\", 13 = \"retry 1h\", 14 = \"done\" }",
    );
    let place = Place::new(&config).await;
    let mut jobs = Vec::new();
    for code in [0, 10, 11, 12, 13, 14, 75, 1] {
        jobs.push((
            code,
            place
                .enqueue(&["k", &format!("{{\"code\": {code}}}")])
                .await,
        ));
    }
    place.drain().await;
    for (code, id) in jobs {
        let fate = place.fate(id).await;
        let (state, failures) = match code {
            0 | 14 => ("done", 0),
            10 => ("dead", 1),
            11 => ("cancelled", fate.failures),
            12 => ("scheduled", 0),
            _ => ("scheduled", 1),
        };
        assert_eq!(
            (fate.state.as_str(), fate.failures),
            (state, failures),
            "{code}: {fate:?}"
        );
        if failures > 0 {
            assert_eq!(
                fate.error,
                Some(format!("exited with code {code}")),
                "{code}"
            );
        }
    }
    let wait = place.ask("select round(extract(epoch from min(run_at) - now()) / 60)::text from rowlock.job where errors::text like '%code 13%'");
    assert_eq!(wait.await.as_deref(), Some("60"));
}

#[tokio::test]
async fn the_last_line_decides_before_the_exit_code() {
    let script = r#"echo some output; cat; echo; exit 9"#;
    let place = Place::new(&handler(script, "")).await;
    let line =
        r#"{"rowlock": {"outcome": "retry", "after": "2h", "error": "the upstream is busy"}}"#;
    let fate = place.run_job(&["k", line]).await;
    assert_eq!(
        (fate.state.as_str(), fate.error.as_deref()),
        ("scheduled", Some("the upstream is busy"))
    );
    let fate = place
        .run_job(&[
            "k",
            r#"{"rowlock": {"outcome": "dead", "error": "no such user"}}"#,
        ])
        .await;
    assert_eq!(
        (fate.state.as_str(), fate.error.as_deref()),
        ("dead", Some("no such user"))
    );
    let fate = place
        .run_job(&["k", r#"{"rowlock": {"outcome": "finished"}}"#])
        .await;
    assert!(
        fate.error
            .as_deref()
            .unwrap_or_default()
            .contains("outcome cannot be used"),
        "{fate:?}"
    );
}

#[tokio::test]
async fn standard_error_becomes_the_error() {
    let place = Place::new(&handler(
        "echo first >&2; echo 'it broke: ünïcode' >&2; exit 1",
        "",
    ))
    .await;
    let fate = place.run_job(&["k"]).await;
    assert_eq!(
        fate.error.as_deref(),
        Some("exited with code 1: first\nit broke: ünïcode")
    );
}

#[tokio::test]
async fn standard_error_is_logged_for_those_who_ask() {
    let script =
        "cat > /dev/null; echo 'page 1 of 2' >&2; printf 'page 2 of 2' >&2; echo to stdout";
    let place = Place::new(&handler(script, "")).await;
    for (level, told) in [
        ("info", false),
        ("debug", true),
        ("info,rowlock::handler=debug", true),
    ] {
        let id = place
            .enqueue(&["k", "{\"secret\": \"in the payload\"}"])
            .await;
        let ran = place.run(&["work", "--drain", "--log-level", level]).await;
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let lines: Vec<&str> = ran.err.lines().filter(|l| l.contains("page ")).collect();
        assert_eq!(
            lines.len(),
            if told { 2 } else { 0 },
            "{level}: {}",
            ran.err
        );
        for line in lines {
            assert!(line.contains("rowlock::handler"), "{line}");
            assert!(line.contains(&format!("job{{id={id} kind=k")), "{line}");
        }
        assert!(!ran.err.contains("in the payload"), "{}", ran.err);
        assert!(!ran.err.contains("to stdout"), "{}", ran.err);
    }
}

#[tokio::test]
async fn a_handler_that_prints_a_hundred_megabytes_does_no_harm() {
    let script = "yes | head -c 100000000; yes | head -c 100000000 >&2; echo the end >&2; exit 1";
    let place = Place::new(&handler(script, "")).await;
    let fate = place.run_job(&["k"]).await;
    let error = fate.error.unwrap();
    assert!(error.len() < 5000, "{}", error.len());
    assert!(
        error.contains("bytes cut]") && error.ends_with("the end"),
        "{error}"
    );
}

#[tokio::test]
async fn a_command_that_does_not_exist_fails_its_jobs_with_a_clear_error() {
    let place = Place::new("[handler.k]\ncommand = [\"./no-such-thing\"]\n").await;
    let check = place.run(&["config", "check"]).await;
    assert_eq!(check.code, Some(0));
    assert!(
        check
            .out
            .contains("warning: the command ./no-such-thing cannot be run here"),
        "{}",
        check.out
    );
    let fate = place.run_job(&["k"]).await;
    assert_eq!(fate.state, "scheduled");
    assert_eq!(
        fate.error.as_deref(),
        Some("cannot start \"./no-such-thing\": No such file or directory (os error 2)")
    );
}

#[tokio::test]
async fn a_handler_that_crashes_fails_its_job() {
    let place = Place::new(&handler("kill -SEGV $$", "")).await;
    let fate = place.run_job(&["k"]).await;
    assert_eq!(
        (fate.failures, fate.error.as_deref()),
        (1, Some("was killed by signal 11"))
    );
}

#[tokio::test]
async fn a_handler_that_hangs_is_ended_with_all_that_it_started() {
    // Neither the shell nor its child listens to TERM.
    let script = "trap '' TERM; (trap '' TERM; echo $BASHPID > DIR/child; exec sleep 1000) & echo waiting >&2; wait; wait";
    let config = format!(
        "[handler.k]\ncommand = [\"bash\", \"-c\", {}]\ntimeout = \"1s\"\nkill_grace = \"100ms\"\n",
        serde_json::to_string(script).unwrap()
    );
    let place = Place::new(&config).await;
    let fate = place.run_job(&["k"]).await;
    assert_eq!(
        fate.error.as_deref(),
        Some("timed out after 1s; the command was killed by signal 9: waiting")
    );
    assert!(
        !is_alive(&place.path("child")),
        "the grandchild is still there"
    );
}

#[tokio::test]
async fn the_timeout_of_the_job_ends_the_process_too() {
    let script = "echo $$ > DIR/pid; exec sleep 1000";
    let place = Place::new(&handler(script, "kill_grace = \"100ms\"")).await;
    let fate = place.run_job(&["k", "{}", "--timeout", "1s"]).await;
    assert_eq!(fate.error.as_deref(), Some("timed out after 1s"));
    assert!(!is_alive(&place.path("pid")));
}

#[tokio::test]
async fn exit_code_zero_of_a_handler_that_was_told_to_stop_is_no_success() {
    let script = "trap 'exit 0' TERM; sleep 1000 & wait";
    let place = Place::new(&handler(script, "timeout = \"500ms\"")).await;
    let fate = place.run_job(&["k"]).await;
    assert_eq!((fate.state.as_str(), fate.failures), ("scheduled", 1));
}

#[tokio::test]
async fn what_a_handler_leaves_running_does_not_hold_its_job() {
    // The sleeper keeps the pipes open.
    let place = Place::new(&handler("sleep 1000 & echo $! > DIR/left; exit 0", "")).await;
    let fate = place.run_job(&["k"]).await;
    assert_eq!(fate.state, "done");
    assert!(!is_alive(&place.path("left")));
}

#[tokio::test]
async fn a_handler_need_not_read_its_payload() {
    let place = Place::new(&handler("exec 0<&-; exit 0", "")).await;
    let payload = format!("{{\"big\": \"{}\"}}", "x".repeat(100_000));
    assert_eq!(place.run_job(&["k", &payload]).await.state, "done");
}

#[tokio::test]
async fn a_running_job_can_be_cancelled() {
    let script = "trap 'echo stopped >&2; exit 3' TERM; echo up > DIR/up; sleep 1000 & wait";
    let place = Place::new(&handler(script, "")).await;
    let up = place.fifo("up");
    let id = place.enqueue(&["k"]).await;
    let mut worker = Running::start(&place, &["--log-level", "debug"]).await;
    assert_eq!(up.read().await, "up");
    place
        .ask(&format!("select answer from rowlock.cancel(array[{id}])"))
        .await;
    worker.wait_for("outcome=\"cancelled\"").await;
    worker.signal(rustix::process::Signal::TERM);
    assert!(worker.ended().await.0.success());
    let fate = place.fate(id).await;
    assert_eq!(fate.state, "cancelled", "{fate:?}");
}

#[tokio::test]
async fn a_process_whose_lease_is_lost_is_ended() {
    let script = "trap 'echo stopped > DIR/up; exit 3' TERM; echo up > DIR/up; sleep 1000 & wait";
    let config = format!("[worker]\nlease = \"1s\"\n{}", handler(script, ""));
    let place = Place::new(&config).await;
    let proxy = FaultProxy::before(place.queue.db().url()).await.unwrap();
    let up = place.fifo("up");
    place.enqueue(&["k"]).await;
    let mut command = place.rowlock(&["work"]);
    command.env("DATABASE_URL", proxy.url());
    let _worker = Running::spawn(command);
    assert_eq!(up.read().await, "up");
    proxy.refuse().await;
    proxy.reset().await;
    assert_eq!(up.read().await, "stopped");
}

#[tokio::test]
async fn env_clear_leaves_only_what_is_named() {
    let script = "echo \"${SECRET_OF_WORKER:-none} ${DATABASE_URL:-none} $GIVEN\" >&2; exit 1";
    let place = Place::new(&handler(
        script,
        "env_clear = true\nenv = { GIVEN = { file = \"DIR/given\" } }",
    ))
    .await;
    std::fs::write(place.path("given"), "from a file\n").unwrap();
    let id = place.enqueue(&["k"]).await;
    let mut command = place.rowlock(&["work", "--drain"]);
    command.env("SECRET_OF_WORKER", "hunter2");
    crate::support::run(command).await;
    assert_eq!(
        place.fate(id).await.error.as_deref(),
        Some("exited with code 1: none none from a file")
    );
}

#[tokio::test]
async fn a_handler_for_any_kind_takes_what_has_no_other() {
    let config = format!(
        "{}[handler.\"*\"]\ncommand = \"echo any $ROWLOCK_KIND >&2; exit 1\"\n",
        handler("exit 0", "")
    );
    let place = Place::new(&config).await;
    let (own, other) = (place.enqueue(&["k"]).await, place.enqueue(&["x.y"]).await);
    place.drain().await;
    assert_eq!(place.fate(own).await.state, "done");
    assert_eq!(
        place.fate(other).await.error.as_deref(),
        Some("exited with code 1: any x.y")
    );
}

#[tokio::test]
async fn a_drain_says_what_it_leaves() {
    let place = Place::new(&handler("exit 0", "")).await;
    place.enqueue(&["k"]).await;
    let clean = place.drain().await;
    assert!(!clean.err.contains("jobs are left"), "{}", clean.err);
    let stranger = place.enqueue(&["stranger"]).await;
    let ran = place.drain().await;
    assert!(
        ran.err.contains("jobs are left") && ran.err.contains("queue=\"default\" jobs=1"),
        "{}",
        ran.err
    );
    assert_eq!(place.fate(stranger).await.state, "ready");
}

#[tokio::test]
async fn settings_of_a_queue_are_stored_at_the_start() {
    let config = format!(
        "[queue.q]\nconcurrency = 2\n[queue.q.stored]\nmax_attempts = 1\nretention = \"2d\"\nbackoff = \"fixed 9s\"\n{}",
        handler("exit 1", "")
    );
    let place = Place::new(&config).await;
    let id = place.enqueue(&["k", "{}", "--queue", "q"]).await;
    place.drain().await;
    assert_eq!(place.fate(id).await.state, "dead");
    let kept = place.ask("select retention::text || ' ' || (backoff ->> 'base_ms') from rowlock.queue where name = 'q'").await;
    assert_eq!(kept.as_deref(), Some("2 days 9000"));
}

/// Whether the process whose id is in the file is there. A zombie that its new parent has not reaped yet does not count.
fn is_alive(file: &Path) -> bool {
    let pid = std::fs::read_to_string(file).unwrap();
    match std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())) {
        Ok(stat) => !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .starts_with('Z'),
        Err(_) => false,
    }
}
