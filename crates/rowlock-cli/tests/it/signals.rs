//! Starting, reloading and stopping.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use crate::support::{Fifo, Place, Running, program, run};

/// A handler that says when it is up and goes on when it is told to.
const GATED: &str = "[handler.k]\ncommand = \"echo up > DIR/up; cat DIR/go > /dev/null\"\n";

async fn gated(config: &str) -> (Place, Fifo, Fifo) {
    let place = Place::new(config).await;
    let (up, go) = (place.fifo("up"), place.fifo("go"));
    (place, up, go)
}

#[tokio::test]
async fn one_signal_lets_running_jobs_finish() {
    let (place, up, go) = gated(GATED).await;
    let id = place.enqueue(&["k"]).await;
    let mut worker = Running::start(&place, &[]).await;
    up.read().await;
    worker.signal(Signal::TERM);
    worker.wait_for("stopping: finishing what runs").await;
    go.write("go").await;
    let (status, _) = worker.ended().await;
    assert!(status.success());
    assert_eq!(place.fate(id).await.state, "done");
}

#[tokio::test]
async fn two_signals_give_running_jobs_back() {
    let (place, up, _go) = gated(GATED).await;
    let id = place.enqueue(&["k"]).await;
    let mut worker = Running::start(&place, &[]).await;
    up.read().await;
    worker.signal(Signal::TERM);
    worker.wait_for("stopping: finishing what runs").await;
    worker.signal(Signal::INT);
    worker.wait_for("stopping at once").await;
    let (status, _) = worker.ended().await;
    assert!(status.success());
    let fate = place.fate(id).await;
    assert_eq!(
        (fate.state.as_str(), fate.failures, fate.error),
        ("ready", 0, None)
    );
}

#[tokio::test]
async fn a_reload_loses_no_job_and_works_by_the_new_configuration() {
    let (place, up, go) = gated(GATED).await;
    let old = place.enqueue(&["k"]).await;
    let mut worker = Running::start(&place, &[]).await;
    up.read().await;

    place.configure("[handler.k]\ncommand = \"echo new > DIR/up\"\n");
    worker.signal(Signal::HUP);
    worker.wait_for("working by the new configuration").await;
    let new = place.enqueue(&["k"]).await;
    assert_eq!(
        up.read().await,
        "new",
        "the new worker works while the old one finishes"
    );
    go.write("go").await;
    worker.wait_for("worker stopped").await;
    worker.signal(Signal::TERM);
    assert!(worker.ended().await.0.success());
    for id in [old, new] {
        let fate = place.fate(id).await;
        assert_eq!((fate.state.as_str(), fate.attempt), ("done", 1), "{fate:?}");
    }
}

#[tokio::test]
async fn a_bad_new_configuration_is_refused_and_work_goes_on() {
    let (place, up, go) = gated(GATED).await;
    // In the file, and not in the environment, which would win over it.
    let database = |url: &str| {
        format!(
            "[database]\nurl = \"{url}\"\nschema = \"{}\"\n",
            place.queue.db().schema()
        )
    };
    place.configure(&format!("{}{GATED}", database(place.queue.db().url())));
    let mut worker = Running::spawn(program(&place.path(""), &["work"]));
    worker.wait_for("worker started").await;
    let nobody = database("postgres://127.0.0.1:1/app");
    for (bad, reason) in [
        (
            GATED.replace("command", "comand"),
            "did you mean \"command\"?",
        ),
        ("[".to_owned(), "the new configuration is refused"),
        (
            format!("{nobody}{GATED}"),
            "the old one stays in force: cannot reach the database",
        ),
    ] {
        place.configure(&bad);
        worker.signal(Signal::HUP);
        worker.wait_for(reason).await;
    }
    let id = place.enqueue(&["k"]).await;
    up.read().await;
    go.write("go").await;
    worker.signal(Signal::TERM);
    assert!(worker.ended().await.0.success());
    assert_eq!(place.fate(id).await.state, "done");
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_said_at_once() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("rowlock.toml"),
        "[handler.k]\ncommand = \"true\"\n",
    )
    .unwrap();
    let mut command = program(dir.path(), &["work"]);
    command.env("DATABASE_URL", "postgres://ann:hunter2@127.0.0.1:1/app");
    let ran = run(command).await;
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.contains("127.0.0.1:1") && ran.err.contains("refused"),
        "{}",
        ran.err
    );
    assert!(!ran.err.contains("hunter2"), "{}", ran.err);
}

#[tokio::test]
async fn a_database_without_the_queue_says_what_to_do() {
    let place = Place::new("[handler.k]\ncommand = \"true\"\n").await;
    let ran = place.run(&["work", "--schema", "elsewhere"]).await;
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("run `rowlock migrate`"), "{}", ran.err);
}

#[tokio::test]
async fn two_workers_with_the_same_name_are_two_workers() {
    let (place, up, go) = gated(&format!(
        "[worker]\nname = \"twin\"\nconcurrency = 1\n{GATED}"
    ))
    .await;
    let one = Running::start(&place, &[]).await;
    let two = Running::start(&place, &[]).await;
    let jobs = [place.enqueue(&["k"]).await, place.enqueue(&["k"]).await];
    // One job each: the first does not end before the second has begun.
    up.read().await;
    let both = place.ask("select count(distinct id)::text from rowlock.worker where name = 'twin' and state = 'running'").await;
    assert_eq!(both.as_deref(), Some("2"));
    go.write("go").await;
    up.read().await;
    go.write("go").await;
    for worker in [one, two] {
        worker.signal(Signal::TERM);
        assert!(worker.ended().await.0.success());
    }
    for id in jobs {
        assert_eq!(place.fate(id).await.state, "done");
    }
}

#[tokio::test]
async fn a_full_disk_for_logs_does_not_stop_the_worker() {
    let place = Place::new("[log]\nlevel = \"trace\"\n[handler.k]\ncommand = \"exit 0\"\n").await;
    let id = place.enqueue(&["k"]).await;
    let mut command = place.rowlock(&["work", "--drain"]);
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    command.stderr(full);
    let child = tokio::process::Command::from(command)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .status();
    let status = tokio::time::timeout(crate::support::DEADLINE, child)
        .await
        .unwrap()
        .unwrap();
    assert!(status.success());
    assert_eq!(place.fate(id).await.state, "done");
}

#[tokio::test]
async fn logs_can_be_json() {
    let place = Place::new("[log]\nformat = \"json\"\n[handler.k]\ncommand = \"exit 1\"\n").await;
    place.enqueue(&["k"]).await;
    let ran = place.drain().await;
    let lines: Vec<serde_json::Value> = ran
        .err
        .lines()
        .map(|l| serde_json::from_str(l).expect(l))
        .collect();
    assert!(
        lines
            .iter()
            .any(|l| l["message"] == "job failed" && l["kind"] == "k"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn the_service_manager_hears_how_it_goes() {
    let place = Place::new("[handler.k]\ncommand = \"true\"\n").await;
    let path = place.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(crate::support::DEADLINE))
        .unwrap();
    let heard = move |wanted: &str| {
        let mut buffer = [0; 1024];
        loop {
            let n = socket.recv(&mut buffer).expect("a message");
            let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
            if text.contains(wanted) {
                return text;
            }
        }
    };
    let mut command = place.rowlock(&["work"]);
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "100000");
    let worker = Running::spawn(command);
    let (worker, heard) = tokio::task::spawn_blocking(move || {
        heard("READY=1");
        heard("WATCHDOG=1");
        (worker, heard)
    })
    .await
    .unwrap();
    worker.signal(Signal::HUP);
    let (worker, heard) = tokio::task::spawn_blocking(move || {
        assert!(heard("RELOADING=1").contains("MONOTONIC_USEC="));
        heard("READY=1");
        (worker, heard)
    })
    .await
    .unwrap();
    worker.signal(Signal::TERM);
    tokio::task::spawn_blocking(move || heard("STOPPING=1"))
        .await
        .unwrap();
    assert!(worker.ended().await.0.success());
}
