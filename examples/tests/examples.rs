//! Runs every example as its user would, and looks at what it says.

use std::process::Command;

use rowlock_testkit::TestDb;

/// Runs a program on a database, and returns what it printed. It must end by itself and with success.
fn run(program: &str, database: Option<&str>) -> String {
    let mut command = Command::new(program);
    command.env_remove("DATABASE_URL");
    if let Some(url) = database {
        command.env("DATABASE_URL", url);
    }
    let output = command.output().expect("the example can be started");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{program} ended with {}: {}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Runs an example on a database of its own.
async fn on_a_fresh_database(program: &'static str) -> String {
    let db = TestDb::new().await.expect("a database");
    let url = db.url().to_owned();
    tokio::task::spawn_blocking(move || run(program, Some(&url)))
        .await
        .expect("the example ran")
}

#[tokio::test]
async fn hello() {
    let said = on_a_fresh_database(env!("CARGO_BIN_EXE_hello")).await;
    assert_eq!(said, "welcome, ann@example.com\nhandled 1\n");
}

/// Once without a database, as on a machine where nothing runs.
#[test]
fn hello_on_a_private_postgres() {
    let said = run(env!("CARGO_BIN_EXE_hello"), None);
    assert_eq!(said, "welcome, ann@example.com\nhandled 1\n");
}

#[tokio::test]
async fn outbox() {
    let said = on_a_fresh_database(env!("CARGO_BIN_EXE_outbox")).await;
    assert!(
        said.contains("placed order 1\nrefused order 2\nplaced order 3\n"),
        "{said}"
    );
    assert!(
        said.contains("confirmed order 1\n") && said.contains("confirmed order 3\n"),
        "{said}"
    );
    assert!(!said.contains("confirmed order 2"), "{said}");
}

#[tokio::test]
async fn idempotent_payment() {
    let said = on_a_fresh_database(env!("CARGO_BIN_EXE_idempotent_payment")).await;
    assert_eq!(
        said,
        "bank: charging 4200 cents\n\
         attempt 1: the process stumbles after the charge\n\
         attempt 2: booked receipt-for-4200\n\
         charged 1 time, booked 1 time\n"
    );
}

#[tokio::test]
async fn batch_inserts() {
    let said = on_a_fresh_database(env!("CARGO_BIN_EXE_batch_inserts")).await;
    assert!(said.ends_with("handled 1000, stored 999\n"), "{said}");
    let batches = said.matches("storing up to").count();
    assert!((4..100).contains(&batches), "{batches} batches: {said}");
}

#[tokio::test]
async fn progress_and_cancel() {
    let said = on_a_fresh_database(env!("CARGO_BIN_EXE_progress_and_cancel")).await;
    for line in [
        "operator: job is running, {\"of\": 400, \"done\": 200}; cancelling it\n",
        "operator: answer is asked\n",
        "Cancelled\n",
        "operator: job is finished, cancelled\n",
    ] {
        assert!(said.contains(line), "{line:?} is not in {said}");
    }
    assert!(!said.contains("handler: done"), "{said}");
}

#[tokio::test]
async fn sql_only() {
    let said = on_a_fresh_database(env!("CARGO_BIN_EXE_sql_only")).await;
    assert_eq!(
        said,
        "job 1: answered\njob 2: answered\njob 3: answered\n\
         done {\"bytes\": 1920}\ndone {\"bytes\": 960}\n\
         dead (failed): width -1 is no width\n"
    );
}

#[tokio::test]
async fn priorities_and_queues() {
    let said = on_a_fresh_database(env!("CARGO_BIN_EXE_priorities_and_queues")).await;
    assert!(
        said.ends_with("order: first, usual, last, nightly, tenant a\n"),
        "{said}"
    );
}
