//! Health and metrics.

use rowlock_testkit::FaultProxy;
use rustix::process::Signal;

use crate::support::{Place, Running, get, until_ready};

const CONFIG: &str = "[http]\naddress = \"127.0.0.1:0\"\n[handler.k]\ncommand = \"echo up > DIR/up; cat DIR/go > /dev/null\"\n[handler.fails]\ncommand = \"exit 1\"\n";

/// The address that the worker says it serves on; then waits until it works.
async fn address(worker: &mut Running) -> String {
    let line = worker.wait_for("serving health and metrics").await;
    let address = line.rsplit("address=").next().unwrap().trim().to_owned();
    worker.wait_for("worker started").await;
    format!("http://{address}")
}

#[tokio::test]
async fn health_follows_the_life_of_the_worker() {
    let place = Place::new(CONFIG).await;
    let (up, go) = (place.fifo("up"), place.fifo("go"));
    place.enqueue(&["k"]).await;
    let mut worker = Running::spawn(place.rowlock(&["work"]));
    let address = address(&mut worker).await;
    up.read().await;
    until_ready(&address).await;
    assert_eq!(get(&address, "/livez").await, (200, "alive\n".into()));
    assert_eq!(get(&address, "/readyz").await, (200, "ready\n".into()));
    worker.signal(Signal::TERM);
    worker.wait_for("stopping").await;
    assert_eq!(get(&address, "/livez").await.0, 200);
    assert_eq!(get(&address, "/readyz").await, (503, "draining\n".into()));
    assert_eq!(get(&address, "/elsewhere").await.0, 404);
    go.write("go").await;
    assert!(worker.ended().await.0.success());
}

#[tokio::test]
async fn a_worker_without_its_database_is_alive_and_not_ready() {
    let place = Place::new(CONFIG).await;
    let proxy = FaultProxy::before(place.queue.db().url()).await.unwrap();
    let mut command = place.rowlock(&["work"]);
    command.env("DATABASE_URL", proxy.url());
    let mut worker = Running::spawn(command);
    let address = address(&mut worker).await;
    proxy.refuse().await;
    proxy.reset().await;
    assert_eq!(get(&address, "/livez").await.0, 200);
    let (status, why) = get(&address, "/readyz").await;
    assert_eq!(status, 503, "{why}");
    let (status, text) = get(&address, "/metrics").await;
    assert_eq!(status, 200);
    assert!(text.contains("rowlock_database_up 0\n"), "{text}");
}

#[tokio::test]
async fn metrics_have_what_the_worker_counts_and_what_the_database_knows() {
    let place = Place::new(CONFIG).await;
    let (up, go) = (place.fifo("up"), place.fifo("go"));
    // Dead before the worker is watched: a worker counts a failure before the database knows of it.
    let odd = "odd \"queue\"";
    let fails = ["fails", "{}", "--max-attempts", "1", "--priority", "1"];
    place
        .enqueue(&[&fails[..], &["--queue", odd]].concat())
        .await;
    place.drain().await;
    place.enqueue(&fails).await;
    place.enqueue(&["k"]).await;
    place
        .enqueue(&["k", "{}", "--delay", "1h", "--queue", odd])
        .await;
    let mut command = place.rowlock(&["work"]);
    command.args(["--concurrency", "1"]);
    let mut worker = Running::spawn(command);
    let address = address(&mut worker).await;
    up.read().await;
    let (status, text) = get(&address, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "rowlock_finished_total{queue=\"default\",outcome=\"failed\"} 1",
        "rowlock_run_seconds_bucket{queue=\"default\",le=\"600\"} 1",
        "# TYPE rowlock_wait_seconds histogram",
        "# HELP rowlock_claimed_total Jobs claimed",
        "rowlock_queue_running{queue=\"default\"} ",
        "rowlock_queue_dead{queue=\"odd \\\"queue\\\"\"} 1",
        "rowlock_queue_scheduled{queue=\"odd \\\"queue\\\"\"} 1",
        "rowlock_queue_oldest_wait_seconds{queue=\"odd \\\"queue\\\"\"} 0",
        "rowlock_queue_paused{queue=\"default\"} 0",
        "rowlock_table_bytes{table=\"job\"} ",
        "rowlock_index_bytes{table=\"finished\"} ",
        "rowlock_horizon_age_seconds ",
        "rowlock_horizon_age_transactions ",
        "rowlock_database_up 1",
        "rowlock_running 1",
    ] {
        assert!(
            text.lines().any(|l| l.starts_with(line)),
            "{line} is not in\n{text}"
        );
    }
    go.write("go").await;
    worker.signal(Signal::TERM);
    assert!(worker.ended().await.0.success());
}

#[tokio::test]
async fn a_worker_that_may_only_work_still_tells_how_full_the_queues_are() {
    let place = Place::new(CONFIG).await;
    place.enqueue(&["k", "{}", "--delay", "1h"]).await;
    let url = place.acting_as("worker").await;
    let mut command = place.rowlock(&["work"]);
    command.env("DATABASE_URL", url);
    let mut worker = Running::spawn(command);
    let address = address(&mut worker).await;
    until_ready(&address).await;
    let (status, text) = get(&address, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "rowlock_queue_scheduled{queue=\"default\"} 1",
        "rowlock_table_bytes{table=\"job\"} ",
        "rowlock_running 0",
        "rowlock_database_up 1",
    ] {
        assert!(
            text.lines().any(|l| l.starts_with(line)),
            "{line} is not in\n{text}"
        );
    }
    worker.signal(Signal::TERM);
    assert!(worker.ended().await.0.success());
    place.forget("worker").await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let place = Place::new(CONFIG).await;
    let ran = place.run(&["work", "--http", &address]).await;
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err
            .contains(&format!("cannot serve on http.address {address}")),
        "{}",
        ran.err
    );
}
