//! Every example of the program in the guide and in its own help: run, or at least understood. None may be a mistake.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::io::AsyncWriteExt;

use crate::help;
use crate::support::{DEADLINE, Place, of};

/// What ends by itself and stays in the test's database and directory. The others are only asked for their help.
const RUN: &[&str] = &[
    "archive", "config", "dead", "doctor", "enqueue", "jobs", "queues", "replay", "why", "workers",
];

/// The commands of a text, without what comes after them: a remark, a pipe, a file.
fn examples(text: &str) -> Vec<String> {
    let starts = |line: &str| {
        let word = line.split_whitespace().next().unwrap_or_default();
        word == "rowlock" || word == "jq" || word.starts_with("ROWLOCK_")
    };
    let lines = text.lines().map(str::trim).filter(|line| starts(line));
    let commands = lines.filter_map(|line| line.find("rowlock ").map(|at| &line[at..]));
    let end = |command: &str| {
        let marks = [" #", " | ", " > ", " && "];
        marks.iter().filter_map(|m| command.find(m)).min()
    };
    commands
        .filter(|c| !c.starts_with("rowlock = "))
        .map(|c| c[..end(c).unwrap_or(c.len())].trim().to_owned())
        .collect()
}

/// The pages of the guide.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_dir(root.join("docs/guide")).unwrap();
    let mut pages: Vec<PathBuf> = guide.map(|entry| entry.unwrap().path()).collect();
    pages.push(root.join("README.md"));
    pages
}

/// Runs a command as a shell would, and returns its exit code and what it complained about.
async fn shell(place: &Place, command: &str) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_rowlock");
    let words = command.strip_prefix("rowlock").unwrap();
    let is_run = words
        .split_whitespace()
        .next()
        .is_some_and(|word| RUN.contains(&word));
    // An address that is in the example is nobody's.
    let more = if is_run && !words.contains(" -d ") {
        ""
    } else {
        " --help"
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec {program} {words}{more}")]);
    shell
        .current_dir(place.path(""))
        .env("DATABASE_URL", place.queue.db().url())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = tokio::process::Command::from(shell)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // For those that read a payload.
    let mut input = child.stdin.take().unwrap();
    let _ = input.write_all(b"{}").await;
    drop(input);
    let output = tokio::time::timeout(DEADLINE, child.wait_with_output()).await;
    let ran = of(&output.expect("it ends").expect("an answer"));
    (ran.code, ran.err)
}

#[tokio::test]
async fn none_is_a_mistake() {
    let place = Place::new("[handler.k]\ncommand = \"true\"\n").await;
    for name in ["old.toml", "new.toml", "staging.toml", "production.toml"] {
        std::fs::copy(place.path("rowlock.toml"), place.path(name)).unwrap();
    }
    std::fs::write(place.path("jobs.ndjson"), "{\"kind\": \"k\"}\n").unwrap();
    place.enqueue(&["k", "{}", "--queue", "mail"]).await;
    let mut all: Vec<String> = Vec::new();
    for page in pages() {
        all.extend(examples(&std::fs::read_to_string(page).unwrap()));
    }
    assert!(all.len() >= 25, "they were not found: {all:#?}");
    for (_, text) in help::of_every_command().await {
        all.extend(examples(&text));
    }
    assert!(all.len() >= 100, "they were not found: {all:#?}");
    all.sort();
    all.dedup();
    for command in all {
        let (code, complaint) = shell(&place, &command).await;
        // What asks first is refused here, for nobody is there to answer; and of what is named little is here.
        let refused = complaint.contains("nobody is there to ask");
        // The times of the examples are in 2030, so that they do not look old.
        let early = command.contains(" 2030-") && complaint.contains("lies ahead");
        assert!(
            matches!(code, Some(0 | 3 | 10 | 20)) || refused && code == Some(1) || early,
            "{command}: {code:?} {complaint}"
        );
    }
}
