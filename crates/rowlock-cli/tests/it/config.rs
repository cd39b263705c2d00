//! `rowlock config`: no database is needed.

use std::path::Path;

use tempfile::TempDir;

use crate::support::{Ran, program, run};

fn place(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

async fn rowlock(dir: &Path, arguments: &[&str]) -> Ran {
    run(program(dir, arguments)).await
}

const MISTAKES: &str = r#"# A file with many mistakes.
[databse]
url = "postgres://localhost/app"

[worker]
concurency = 10
poll = 5
grace = "a while"
order = "strickt"
lease = "0s"

[queue.mail]
wait = 3

[queue.mail.stored]
paused = true

[handler.email.welcome]
command = ["true"]

[handler.report]
url = "https://reports.internal/run"
secret = 5
timeout = "30"

[handler.report.status]
404 = "drop"
600 = "dead"

[log]
level = "loud=="
format = "yaml"

[table.orders]
comand = ["true"]

[table.shop.items]
command = ["true"]

[table.events]
url = "https://events.internal/row"
pendng = "sent_at is null"
on_done = { sett = "sent_at = now()" }
on_failed = { park_after = 0, after = 5 }
batch = 0

[table.mails]
command = ["true"]
on_done = { set = "sent = true" }
key = ["a b"]

[table.parcels]
command = ["true"]
on_done = "remove"
order_by = 5

[table.letters]
command = ["true"]
"#;

#[tokio::test]
async fn every_mistake_is_shown_at_its_place() {
    let dir = place(&[("rowlock.toml", MISTAKES)]);
    let ran = rowlock(dir.path(), &["config", "check"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""));
    insta::assert_snapshot!(ran.out);
}

#[tokio::test]
async fn a_syntax_error_is_shown_at_its_place() {
    let dir = place(&[("rowlock.toml", "[worker]\nconcurrency = \n")]);
    let ran = rowlock(dir.path(), &["config", "check"]).await;
    assert_eq!(ran.code, Some(1));
    insta::assert_snapshot!(ran.out);
}

#[tokio::test]
async fn work_refuses_what_check_refuses() {
    let dir = place(&[(
        "rowlock.toml",
        "[worker]\nconcurency = 1\n[handler.k]\ncommand = \"true\"\n",
    )]);
    let ran = rowlock(dir.path(), &["work"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    insta::assert_snapshot!(ran.err);
}

#[tokio::test]
async fn a_check_as_json() {
    let dir = place(&[(
        "rowlock.toml",
        "[worker]\nconcurency = 1\n[handler.k]\ncommand = [\"./nowhere\"]\n",
    )]);
    let ran = rowlock(dir.path(), &["config", "check", "--json"]).await;
    assert_eq!(ran.code, Some(1));
    insta::assert_snapshot!(ran.out);
}

#[tokio::test]
async fn a_file_that_is_not_there() {
    let dir = place(&[]);
    let ran = rowlock(dir.path(), &["config", "check", "other.toml"]).await;
    assert_eq!(ran.code, Some(1));
    assert_eq!(
        ran.err,
        "rowlock: cannot read the configuration other.toml: No such file or directory (os error 2)\n"
    );
    let ran = rowlock(dir.path(), &["work"]).await;
    assert_eq!(ran.code, Some(1));
    assert_eq!(
        ran.err,
        "rowlock: there is no rowlock.toml here: say which configuration with -c FILE or ROWLOCK_CONFIG\n"
    );
}

#[tokio::test]
async fn each_value_is_shown_with_its_origin_and_no_secret() {
    let text = "[database]\nurl = \"postgres://ann:hunter2@db.example/app\"\n[worker]\nconcurrency = 4\npoll = \"500ms\"\n[queue.mail]\nweight = 3\n\
        [handler.hook]\nurl = \"https://h.example/x?token=hunter2\"\nsecret = { env = \"HOOK\" }\nheaders = { Authorization = \"hunter2\" }\n";
    let dir = place(&[("rowlock.toml", text)]);
    let mut command = program(dir.path(), &["config", "show", "--concurrency", "9"]);
    command
        .env("ROWLOCK_WORKER_POLL", "2s")
        .env("HOOK", "hunter2")
        .env("USER", "ann");
    let ran = run(command).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(!ran.out.contains("hunter2"));
    insta::assert_snapshot!(ran.out);
}

#[tokio::test]
async fn configurations_are_compared_by_what_they_mean() {
    let a = "[worker]\npoll = \"1m30s\"\nconcurrency = 4\n[queue.b]\nweight = 2\n[queue.a]\n[handler.k]\ncommand = [\"true\"]\nexit = { 0 = \"done\" }\n";
    let b = "# The same.\nhandler.k = { command = [ 'true' ] }\nqueue.a.weight = 1\nqueue.b = { weight = 2 }\n\n[worker]\nconcurrency = 0x4\norder = \"weighted\"\npoll = \"90s\"\n";
    let dir = place(&[
        ("a.toml", a),
        ("b.toml", b),
        (
            "c.toml",
            &b.replace("90s", "5s").replace("'true'", "'false'"),
        ),
    ]);
    let ran = rowlock(dir.path(), &["config", "diff", "a.toml", "b.toml"]).await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "they mean the same\n"),
        "{}",
        ran.err
    );
    let ran = rowlock(dir.path(), &["config", "diff", "a.toml", "c.toml"]).await;
    assert_eq!(ran.code, Some(1));
    insta::assert_snapshot!(ran.out);
    let ran = rowlock(
        dir.path(),
        &["config", "diff", "--json", "a.toml", "c.toml"],
    )
    .await;
    assert_eq!(ran.code, Some(1));
    let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        answer[1],
        serde_json::json!({"setting": "worker.poll", "a": "1m30s", "b": "5s"})
    );
}

#[tokio::test]
async fn secrets_that_differ_are_said_to_differ_and_not_shown() {
    let one = "[handler.k]\nurl = \"http://x\"\nsecret = \"hunter2\"\n";
    let dir = place(&[
        ("a.toml", one),
        ("b.toml", &one.replace("hunter2", "hunter3")),
    ]);
    let ran = rowlock(dir.path(), &["config", "diff", "a.toml", "b.toml"]).await;
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.out.contains("*** (differs)") && !ran.out.contains("hunter"),
        "{}",
        ran.out
    );
}

/// The configurations that the documentation and `contrib` show.
fn shown() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let mut all = Vec::new();
    for path in [
        "docs/guide/work.md",
        "docs/guide/configuration.md",
        "docs/guide/any-table-as-a-queue.md",
    ] {
        let text = read(path);
        let blocks = text.split("```toml\n").skip(1);
        let whole = blocks.map(|b| b.split("```").next().unwrap_or_default().to_owned());
        // Those that are only a piece of one do not say so.
        all.extend(
            whole
                .filter(|b| b.starts_with("# rowlock.toml"))
                .map(|b| (path.to_owned(), b)),
        );
    }
    let yaml = read("contrib/kubernetes.yaml");
    let (_, rest) = yaml
        .split_once("rowlock.toml: |\n")
        .expect("a configuration");
    let (block, _) = rest.split_once("\n---").expect("an end");
    all.push((
        "contrib/kubernetes.yaml".into(),
        block.replace("\n    ", "\n").trim().to_owned(),
    ));
    all
}

#[tokio::test]
async fn what_the_documentation_shows_is_right() {
    let shown = shown();
    assert_eq!(shown.len(), 4);
    for (from, text) in shown {
        let dir = place(&[("rowlock.toml", &text)]);
        let ran = rowlock(dir.path(), &["config", "check"]).await;
        assert_eq!(ran.code, Some(0), "{from}: {}", ran.out);
    }
}

#[tokio::test]
async fn the_documentation_shows_every_setting() {
    let (_, text) = shown()
        .into_iter()
        .find(|(from, _)| from.contains("configuration"))
        .unwrap();
    let dir = place(&[("rowlock.toml", &text)]);
    let ran = rowlock(dir.path(), &["config", "show", "--json"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let answer: Vec<serde_json::Value> = serde_json::from_str(&ran.out).unwrap();
    let missing: Vec<_> = answer.iter().filter(|a| a["origin"] == "default").collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(answer.len() > 50);
}
