//! Terminals that are narrow, full, closed or not there. (`top` has its own tests.)

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::support::{DEADLINE, Place, Ran, Terminal, of};

/// Commands that print, a little or much.
const PRINTING: &[&[&str]] = &[
    &["jobs", "list"],
    &["jobs", "list", "--json"],
    &["jobs", "show", "1"],
    &["dead"],
    &["queues"],
    &["queues", "show", "default"],
    &["workers"],
    &["why", "1"],
    &["doctor", "--only", "schema"],
    &["top", "--once"],
    &["migrate"],
    &["migrate", "--sql"],
    &["enqueue", "k"],
    &["completions", "bash"],
    &["config", "check"],
    &["config", "show"],
    &["work", "--drain"],
    &["jobs", "delete", "--all", "--dry-run"],
];

async fn run(command: Command) -> Ran {
    // Not `output()`: that would capture what these tests give it to write to.
    let child = tokio::process::Command::from(command)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("a start");
    let ended = tokio::time::timeout(DEADLINE, child.wait_with_output()).await;
    of(&ended.expect("an end").expect("an answer"))
}

/// The writing end of a pipe that nobody reads.
fn closed() -> OwnedFd {
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    ours.into()
}

fn full() -> std::fs::File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

async fn place() -> Place {
    let place = Place::new("[handler.nothing]\ncommand = \"true\"\n").await;
    place.enqueue(&["k", "{}"]).await;
    place
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_error() {
    let place = place().await;
    for arguments in PRINTING {
        let mut command = place.rowlock(arguments);
        command.stdout(closed()).stderr(Stdio::piped());
        let ran = run(command).await;
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{arguments:?}: {}", ran.err);
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_written_is_a_failure() {
    let place = place().await;
    for arguments in PRINTING {
        let mut command = place.rowlock(arguments);
        command.stdout(full()).stderr(Stdio::piped());
        let ran = run(command).await;
        assert_eq!(ran.code, Some(1), "{arguments:?}: {}", ran.err);
        assert!(
            ran.err
                .contains("cannot write the answer: No space left on device"),
            "{arguments:?}: {}",
            ran.err
        );
    }
}

#[tokio::test]
async fn errors_that_cannot_be_written_still_have_their_exit_code() {
    let place = place().await;
    for (arguments, code) in [
        (&["jobs", "show", "4711"][..], 3),
        (&["jobs", "delete"], 2),
        (&["jobs", "--state", "asleep"], 2),
        (&["jobs", "-d", "host=127.0.0.1 port=1"], 1),
        (&["work", "-d", "host=127.0.0.1 port=1"], 1),
        (&["queues", "show", "mial"], 3),
    ] {
        for fails in [OwnedFd::from(full()), closed()] {
            let mut command = place.rowlock(arguments);
            command.stdout(Stdio::null()).stderr(fails);
            assert_eq!(run(command).await.code, Some(code), "{arguments:?}");
        }
    }
}

#[tokio::test]
async fn forty_columns_are_enough_for_lists() {
    let place = place().await;
    let id = place
        .enqueue(&["a.kind.with.a.longer.name", "--queue", "reports"])
        .await;
    let environment = format!("DATABASE_URL='{}'", place.queue.db().url());
    let Some(terminal) = Terminal::open(&environment, "jobs", 40, 40).await else {
        return;
    };
    let screen = terminal.shows(&["left with 0"]).await;
    assert!(
        screen.contains(&format!("id       {id}\n")),
        "one below the other:\n{screen}"
    );
    assert!(
        screen.contains("kind     a.kind.with.a.longer.name"),
        "{screen}"
    );
    // A table that fits stays one.
    let Some(terminal) = Terminal::open(&environment, "jobs", 79, 40).await else {
        return;
    };
    let screen = terminal.shows(&["left with 0"]).await;
    assert!(screen.contains(" id  state  queue"), "{screen}");
}

#[tokio::test]
async fn colours_are_for_terminals_that_want_them() {
    let place = place().await;
    let url = place.queue.db().url();
    for (more, coloured) in [("", true), ("NO_COLOR=1", false)] {
        let environment = format!("DATABASE_URL='{url}' {more}");
        let Some(terminal) = Terminal::open(&environment, "jobs show 1", 80, 40).await else {
            return;
        };
        terminal.shows(&["left with 0"]).await;
        let screen = terminal.tmux(&["capture-pane", "-p", "-e"]).await;
        assert_eq!(screen.contains('\u{1b}'), coloured, "{more}:\n{screen}");
    }
    let ran = place.run(&["jobs", "show", "1"]).await;
    assert!(!ran.out.contains('\u{1b}'), "{}", ran.out);
}
