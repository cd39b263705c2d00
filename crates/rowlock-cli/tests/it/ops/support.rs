//! Running the program and reading its answers.

use std::process::Stdio;
use std::time::Duration;

use rowlock::{Backoff, JobId, NewJob};
use rowlock_testkit::TestQueue;
use serde_json::{Value, json};
use tokio::process::Command;

/// Nothing here takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a run of the program ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

/// The program, with nothing of this machine's settings in its environment.
pub(crate) fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowlock"));
    command
        .args(args)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .env_remove("DATABASE_URL")
        .env_remove("ROWLOCK_SCHEMA")
        .env_remove("RUST_LOG");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command
}

pub(crate) async fn run(mut command: Command) -> Ran {
    let output = tokio::time::timeout(PATIENCE, command.output())
        .await
        .expect("the program ends")
        .expect("the program starts");
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the program on the database of a test.
pub(crate) async fn rowlock(queue: &TestQueue, args: &[&str]) -> Ran {
    let mut command = program(args);
    command.env("DATABASE_URL", queue.db().url());
    run(command).await
}

/// Enqueues a job of any kind.
pub(crate) async fn enqueue(queue: &TestQueue, name: &str, kind: &str, payload: Value) -> JobId {
    let job = NewJob::new(kind.to_owned(), &payload)
        .unwrap()
        .queue(name.to_owned());
    queue.client().enqueue_new(job).await.unwrap().id
}

/// A job that has failed for good with this error.
pub(crate) async fn dead(queue: &TestQueue, name: &str, kind: &str, error: &str) -> JobId {
    let job = NewJob::new(kind.to_owned(), &json!({"error": error}))
        .unwrap()
        .queue(name.to_owned())
        .max_attempts(1)
        .backoff(Backoff::fixed(Duration::ZERO));
    let id = queue.client().enqueue_new(job).await.unwrap().id;
    drain(queue).await;
    assert_eq!(queue.fate(id).await.unwrap().unwrap().state, "dead");
    id
}

/// Runs all that is ready: a job fails with the `error` of its payload, and is done without one.
pub(crate) async fn drain(queue: &TestQueue) {
    let kinds = ["email", "report", "import"];
    queue
        .drain(|worker| {
            kinds.into_iter().fold(worker, |worker, kind| {
                worker.handle_kind(kind, |job: rowlock::RawJob, _| async move {
                    let payload: Value = serde_json::from_str(&job.payload).unwrap();
                    match payload["error"].as_str() {
                        Some(error) => Err(error.to_owned()),
                        None => Ok(()),
                    }
                })
            })
        })
        .await
        .unwrap();
}

/// The state of a job now.
pub(crate) async fn state(queue: &TestQueue, id: JobId) -> Option<String> {
    queue.fate(id).await.unwrap().map(|fate| fate.state)
}

/// A statement on the database of a test.
pub(crate) async fn sql(queue: &TestQueue, text: &str) {
    let client = queue.db().connect().await.unwrap();
    client.batch_execute(text).await.unwrap();
}

/// JSON without what differs from run to run.
pub(crate) fn redacted(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| {
                    let varies = value.is_number() && (key.ends_with("_ms") || key == "pid");
                    let named = ["host", "worker_host", "version"].contains(&key.as_str());
                    let value = match value {
                        _ if varies => format!("[{key}]").into(),
                        Value::String(_) if named => format!("[{key}]").into(),
                        value => redacted(value),
                    };
                    (key, value)
                })
                .collect(),
        ),
        Value::Array(items) => items.into_iter().map(redacted).collect(),
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => "[time]".into(),
        other => other,
    }
}
