//! What `contrib/` says about the program is true: its commands and flags are there, its configuration is good, its probes are answered.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Place, Running, get, program, run, until_ready};

const PROGRAM: &str = "/usr/local/bin/rowlock";
const CONFIG: &str = "/etc/rowlock/rowlock.toml";

fn contrib(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../contrib", name]
        .iter()
        .collect();
    std::fs::read_to_string(path).unwrap()
}

/// The program takes these words; with `--help` behind them it does nothing.
async fn takes(words: &[&str]) {
    let words = [words, &["--help"]].concat();
    let ran = run(program(&std::env::temp_dir(), &words)).await;
    assert_eq!(ran.code, Some(0), "{words:?}: {}", ran.err);
}

/// The configuration in the manifest.
fn manifest_config() -> String {
    let manifest = contrib("kubernetes.yaml");
    let after = manifest.split_once("  rowlock.toml: |\n").unwrap().1;
    let lines = after
        .lines()
        .take_while(|l| l.is_empty() || l.starts_with("    "));
    lines
        .map(|l| l.strip_prefix("    ").unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The value of a key that the manifest has once.
fn manifest_value(key: &str) -> String {
    let manifest = contrib("kubernetes.yaml");
    let values: Vec<&str> = manifest
        .lines()
        .filter_map(|l| l.trim().trim_start_matches("- ").strip_prefix(key))
        .collect();
    let [value] = values[..] else {
        panic!("{key} is there {} times", values.len());
    };
    value.trim_start_matches(':').trim().to_owned()
}

/// `grace` of a configuration, and how long it is.
fn seconds(text: &str) -> u64 {
    text.trim_end_matches('s').parse().unwrap()
}

#[tokio::test]
async fn the_unit_starts_what_there_is() {
    let unit = contrib("rowlock.service");
    let mut commands = 0;
    for line in unit.lines().filter(|l| l.starts_with("Exec")) {
        let Some(words) = line.split_once('=').unwrap().1.strip_prefix(PROGRAM) else {
            continue;
        };
        assert!(words.ends_with(CONFIG), "{line}");
        takes(&words.split_whitespace().collect::<Vec<_>>()).await;
        commands += 1;
    }
    assert_eq!(commands, 2, "{unit}");
    if Command::new("systemd-analyze")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        eprintln!("skipped: systemd-analyze is not installed");
        return;
    }
    // It wants the program and the user to be there.
    let unit = unit
        .replace(PROGRAM, env!("CARGO_BIN_EXE_rowlock"))
        .replace("User=rowlock", "User=root");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rowlock.service");
    std::fs::write(&file, unit).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]);
    let ran = run({
        verify.arg(&file);
        verify
    })
    .await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{}", ran.out);
}

#[tokio::test]
async fn the_manifest_has_a_good_configuration_and_flags_that_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let config = manifest_config();
    std::fs::write(dir.path().join("rowlock.toml"), &config).unwrap();
    let ran = run(program(dir.path(), &["config", "check", "rowlock.toml"])).await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "rowlock.toml is fine\n"),
        "{config}"
    );

    let arguments = manifest_value("args");
    let arguments = arguments.trim_matches(['[', ']']).split(", ");
    let arguments: Vec<&str> = arguments.collect();
    assert_eq!(arguments.last(), Some(&CONFIG));
    takes(&arguments).await;

    // The name of the pod becomes the name of the worker.
    assert!(contrib("kubernetes.yaml").contains("name: ROWLOCK_WORKER_NAME"));
    let mut show = program(dir.path(), &["config", "show", "rowlock.toml", "--json"]);
    show.env("ROWLOCK_WORKER_NAME", "rowlock-work-0");
    let shown: Value = serde_json::from_str(&run(show).await.out).unwrap();
    let setting = |name: &str| {
        let entries = shown.as_array().unwrap();
        let entry = entries.iter().find(|e| e["setting"] == name);
        entry.unwrap_or_else(|| panic!("{name} is not in {shown:#}"))["value"].clone()
    };
    assert_eq!(setting("worker.name"), "rowlock-work-0");
    let grace = seconds(setting("worker.grace").as_str().unwrap());
    let patience: u64 = manifest_value("terminationGracePeriodSeconds")
        .parse()
        .unwrap();
    assert!(grace < patience, "{grace} {patience}");
    let port = manifest_value("prometheus.io/port").replace('"', "");
    assert_eq!(setting("http.address"), format!("0.0.0.0:{port}"));
}

#[tokio::test]
async fn the_probes_of_the_manifest_are_answered() {
    let place = Place::new(&manifest_config()).await;
    let command = place.rowlock(&["work", "--http", "127.0.0.1:0", "--log-format", "text"]);
    let mut worker = Running::spawn(command);
    let line = worker.wait_for("serving health and metrics").await;
    let address = line.rsplit("address=").next().unwrap().trim().to_owned();
    worker.wait_for("worker started").await;
    until_ready(&format!("http://{address}")).await;
    let manifest = contrib("kubernetes.yaml");
    let paths: Vec<&str> = manifest
        .lines()
        .filter_map(|l| l.split_once("httpGet: { path: "))
        .map(|(_, rest)| rest.split(',').next().unwrap())
        .collect();
    assert_eq!(paths, ["/livez", "/readyz"]);
    for path in paths {
        let (status, text) = get(&format!("http://{address}"), path).await;
        assert_eq!(status, 200, "{path}: {text}");
    }
    worker.signal(Signal::TERM);
    assert!(worker.ended().await.0.success());
}

#[tokio::test]
async fn the_image_is_built_of_what_there_is() {
    let file = contrib("Containerfile");
    let after = |word: &str| {
        let line = file.lines().find_map(|l| l.strip_prefix(word));
        line.unwrap_or_else(|| panic!("{word} is not in\n{file}"))
            .trim()
            .to_owned()
    };
    let list = |text: &str| serde_json::from_str::<Vec<String>>(text).unwrap();
    assert_eq!(list(&after("ENTRYPOINT")).last().unwrap(), PROGRAM);
    let words = list(&after("CMD"));
    assert_eq!(words.last().unwrap(), CONFIG);
    takes(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let package = format!("--locked -p {}", env!("CARGO_PKG_NAME"));
    assert!(after("RUN cargo build").contains(&package), "{file}");
    assert_eq!(
        after("COPY --from=build"),
        format!("/src/target/release/rowlock {PROGRAM}")
    );
    // What was built here is not to be sent along.
    let ignored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.dockerignore");
    let ignored = std::fs::read_to_string(ignored).unwrap();
    assert!(ignored.lines().any(|l| l == "target/"), "{ignored}");
}
