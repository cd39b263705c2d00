//! `rowlock demo`, with a PostgreSQL of its own.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::{DEADLINE, Place, Terminal, program, run};

/// A directory that the server's own user may enter, should this be root's.
fn directory() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// Runs it for two seconds, and returns its summary.
async fn demo(dir: &TempDir, more: &[&str]) -> Value {
    let words = ["demo", "--data-dir", "data", "--duration", "2s", "--json"];
    let ran = run(program(dir.path(), &[&words, more].concat())).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

fn number(summary: &Value, name: &str) -> u64 {
    summary[name].as_u64().unwrap()
}

#[tokio::test]
async fn the_data_stay_unless_one_starts_over() {
    let dir = directory();
    let first = demo(&dir, &[]).await;
    assert!(number(&first, "finished") > 0, "{first}");
    let second = demo(&dir, &[]).await;
    assert!(
        number(&second, "finished") > number(&first, "finished"),
        "{first} {second}"
    );
    // As fast as that, so that one run has more than two before it could not.
    let third = demo(&dir, &["--fresh", "--rate", "1"]).await;
    assert!(
        number(&third, "finished") <= number(&third, "handled"),
        "{third}"
    );
    assert!(
        number(&third, "finished") < number(&first, "finished"),
        "{first} {third}"
    );
}

#[tokio::test]
async fn a_signal_drains_and_stops_all() {
    let dir = directory();
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = program(dir.path(), &["demo", "--data-dir", "data"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = tokio::process::Command::from(command)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ran = tokio::time::timeout(DEADLINE, async {
            // The first line is drawn before anything has run.
            while let Some(line) = lines.next_line().await.unwrap() {
                if !line.contains(" 0 handled") {
                    break;
                }
            }
            let pid = i32::try_from(child.id().unwrap()).unwrap();
            kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
            let mut last = String::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                last = line;
            }
            (child.wait_with_output().await.unwrap(), last)
        });
        let (ended, last) = ran.await.expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(0), "{said}");
        assert!(said.contains("finishing what runs"), "{said}");
        assert!(last.contains("attempts handled"), "{last}");
        assert!(
            !dir.path().join("data/cluster/postmaster.pid").exists(),
            "the server has stopped too"
        );
    }
}

#[tokio::test]
async fn a_database_that_is_given_is_used_and_left_running() {
    let place = Place::new("").await;
    let ran = place.run(&["demo", "--duration", "2s"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        ran.err
            .starts_with("working in the database that was given: "),
        "{}",
        ran.err
    );
    assert!(ran.out.contains(" attempts handled; "), "{}", ran.out);
    let finished = place
        .ask("select count(*)::text from rowlock.finished where kind = 'email.welcome'")
        .await;
    assert_ne!(finished.as_deref(), Some("0"));
}

#[tokio::test]
async fn a_directory_of_something_else_is_left_alone() {
    let dir = directory();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let file = dir.path().join("data/thesis.txt");
    std::fs::write(&file, "years of work").unwrap();
    let words = ["demo", "--data-dir", "data", "--fresh", "--duration", "1s"];
    let ran = run(program(dir.path(), &words)).await;
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "years of work");
}

#[tokio::test]
async fn it_is_drawn_in_place_at_any_width() {
    let place = Place::new("").await;
    let environment = format!("DATABASE_URL='{}'", place.queue.db().url());
    for columns in [40, 80] {
        let Some(terminal) = Terminal::open(&environment, "demo", columns, 30).await else {
            return;
        };
        // The third drawing has been drawn over two.
        let screen = terminal.shows(&["rowlock demo   3 s", "imports"]).await;
        assert_eq!(screen.matches("rowlock demo ").count(), 1, "{screen}");
        assert_eq!(screen.matches("payments").count(), 1, "{screen}");
        terminal.press(&["C-c"]).await;
        terminal
            .shows(&["finishing what runs", "left with 0"])
            .await;
    }
}
