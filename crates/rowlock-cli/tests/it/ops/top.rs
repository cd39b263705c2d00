//! `rowlock top`, in a real terminal.

use rowlock_testkit::TestQueue;
use serde_json::json;

use super::support::{dead, enqueue, program, redacted, rowlock, state};
use crate::support::Terminal;

/// A terminal with `rowlock top` in it. `None` where tmux is not installed, which is said.
async fn open(queue: &TestQueue, columns: u16, rows: u16) -> Option<Terminal> {
    Terminal::open(
        &format!("DATABASE_URL='{}'", queue.db().url()),
        "top",
        columns,
        rows,
    )
    .await
}

#[tokio::test]
async fn queues_are_watched_paused_and_jobs_retried() {
    let queue = TestQueue::new().await.unwrap();
    enqueue(&queue, "mail", "email", json!({})).await;
    let failed = dead(&queue, "reports", "report", "out of paper").await;
    let Some(terminal) = open(&queue, 110, 30).await else {
        return;
    };
    let screen = terminal
        .shows(&["queues", "mail", "failures 1", "out of paper"])
        .await;
    assert!(screen.contains("wait p95"), "{screen}");

    terminal.press(&["p"]).await;
    terminal.shows(&["pause queue mail? y/n"]).await;
    terminal.press(&["n", "p", "y"]).await;
    terminal.shows(&["queue mail is paused", "⏸ mail"]).await;
    assert!(queue.client().queue("mail").await.unwrap().unwrap().paused);
    terminal.press(&["p"]).await;
    terminal.shows(&["queue mail goes on"]).await;

    terminal.press(&["Enter"]).await;
    terminal
        .shows(&["any other key closes", "queue mail", "per minute"])
        .await;
    terminal.press(&["x", "Tab", "Tab", "Enter"]).await;
    terminal
        .shows(&[
            "report in queue reports  dead (failed)",
            "attempt 1 failed on worker",
        ])
        .await;
    terminal.press(&["x", "r"]).await;
    terminal
        .shows(&[&format!("job {failed} is live again"), "nothing has failed"])
        .await;
    assert_eq!(state(&queue, failed).await.as_deref(), Some("ready"));

    terminal.press(&["?"]).await;
    terminal.shows(&["pause or resume queue"]).await;
    terminal.press(&["x", "q"]).await;
    let left = terminal.shows(&["left with 0"]).await;
    assert!(
        !left.contains("queues"),
        "the screen was not given back:\n{left}"
    );
}

#[tokio::test]
async fn forty_columns_are_enough() {
    let queue = TestQueue::new().await.unwrap();
    enqueue(&queue, "mail", "email", json!({})).await;
    dead(&queue, "reports", "report", "out of paper").await;
    let Some(terminal) = open(&queue, 40, 12).await else {
        return;
    };
    let screen = terminal
        .shows(&["queue", "ready", "dead", "mail", "reports", "? help"])
        .await;
    assert!(
        screen.lines().all(|line| line.chars().count() <= 40),
        "{screen}"
    );
    terminal.press(&["Tab"]).await;
    terminal.shows(&["nothing runs"]).await;
    terminal.press(&["Tab"]).await;
    terminal.shows(&["failures 1", "report"]).await;
    // A terminal that grows is used.
    terminal
        .tmux(&["resize-window", "-x", "120", "-y", "30"])
        .await;
    terminal.shows(&["queues", "running", "out of paper"]).await;
    terminal.press(&["C-c"]).await;
    terminal.shows(&["left with 0"]).await;
}

#[tokio::test]
async fn a_lost_connection_comes_back() {
    let queue = TestQueue::new().await.unwrap();
    enqueue(&queue, "mail", "email", json!({})).await;
    let Some(terminal) = open(&queue, 80, 24).await else {
        return;
    };
    terminal.shows(&["mail"]).await;
    let name = queue.db().name();
    let url = rowlock_testkit::shared().unwrap().url("postgres");
    let (admin, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let cut = format!(
        "alter database {name} allow_connections false;
         select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"
    );
    admin.batch_execute(&cut).await.unwrap();
    terminal
        .shows(&["no connection, trying again", "mail"])
        .await;
    admin
        .batch_execute(&format!("alter database {name} allow_connections true"))
        .await
        .unwrap();
    terminal.shows(&["q quit"]).await;
    terminal.press(&["p", "y"]).await;
    terminal.shows(&["queue mail is paused"]).await;
}

#[tokio::test]
async fn without_a_terminal_there_is_a_snapshot() {
    let queue = TestQueue::new().await.unwrap();
    enqueue(&queue, "mail", "email", json!({})).await;
    dead(&queue, "reports", "report", "out of paper").await;
    let none = rowlock(&queue, &["top"]).await.expect(1);
    assert_eq!(
        none.err,
        "rowlock: top needs a terminal, and this is none: use --once for one plain snapshot\n"
    );
    let once = rowlock(&queue, &["top", "--once"]).await.expect(0);
    assert!(
        once.out.contains("out of paper") && once.out.contains("mail"),
        "{}",
        once.out
    );
    let json = rowlock(&queue, &["top", "--once", "--json"])
        .await
        .expect(0)
        .json();
    insta::assert_json_snapshot!(redacted(json));
    let unreachable =
        super::support::run(program(&["top", "--once", "-d", "host=127.0.0.1 port=1"])).await;
    unreachable.expect(1);
}
