//! What the tests share: a place with a queue and a configuration, workers to watch, pipes to wait at.

mod endpoint;
mod fifo;
mod http;
mod terminal;
mod worker;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rowlock::JobId;
use rowlock_testkit::{Fate, TestQueue};
use tempfile::TempDir;

pub(crate) use endpoint::{Endpoint, Reply};
pub(crate) use fifo::Fifo;
pub(crate) use http::{get, until_ready};
pub(crate) use terminal::Terminal;
pub(crate) use worker::{DEADLINE, Running};

/// A directory with a configuration, and a queue.
pub(crate) struct Place {
    pub(crate) queue: TestQueue,
    dir: TempDir,
}

impl Place {
    /// A queue of its own and this configuration, in which `DIR` stands for the directory.
    pub(crate) async fn new(config: &str) -> Place {
        let place = Place {
            queue: TestQueue::new().await.expect("a queue"),
            dir: tempfile::tempdir().expect("a directory"),
        };
        place.configure(config);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn configure(&self, config: &str) {
        let dir = self.dir.path().display().to_string();
        std::fs::write(self.path("rowlock.toml"), config.replace("DIR", &dir))
            .expect("a configuration");
    }

    /// The program, in the directory and with the queue.
    pub(crate) fn rowlock(&self, arguments: &[&str]) -> Command {
        let mut command = program(self.dir.path(), arguments);
        command.env("DATABASE_URL", self.queue.db().url());
        command.env("ROWLOCK_SCHEMA", self.queue.db().schema());
        command
    }

    /// Runs the program to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ran {
        run(self.rowlock(arguments)).await
    }

    /// Enqueues with the program itself and returns the id.
    pub(crate) async fn enqueue(&self, arguments: &[&str]) -> JobId {
        let ran = self
            .run(&[&["enqueue", "--json"], arguments].concat())
            .await;
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let answer: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
        JobId(answer["id"].as_i64().expect("an id"))
    }

    /// Works until nothing is ready any more.
    pub(crate) async fn drain(&self) -> Ran {
        let ran = self.run(&["work", "--drain"]).await;
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        ran
    }

    /// Enqueues one job, works, and tells what became of it.
    pub(crate) async fn run_job(&self, arguments: &[&str]) -> Fate {
        let id = self.enqueue(arguments).await;
        self.drain().await;
        self.fate(id).await
    }

    pub(crate) async fn fate(&self, id: JobId) -> Fate {
        self.queue
            .fate(id)
            .await
            .expect("an answer")
            .expect("a job")
    }

    /// One number or text from the database, as text.
    pub(crate) async fn ask(&self, sql: &str) -> Option<String> {
        let client = self.queue.db().connect().await.expect("a connection");
        let sql = sql.replace("rowlock.", &format!("{}.", self.queue.db().schema()));
        client.query_one(&sql, &[]).await.expect("an answer").get(0)
    }

    /// Runs statements in the database; `rowlock.` stands for the schema of the queue.
    pub(crate) async fn sql(&self, sql: &str) {
        let client = self.queue.db().connect().await.expect("a connection");
        let sql = sql.replace("rowlock.", &format!("{}.", self.queue.db().schema()));
        client.batch_execute(&sql).await.expect("it runs");
    }

    /// The database's address for a role of this test alone, which has this access and no other. Roles belong to the whole server: [`forget`](Self::forget) it.
    pub(crate) async fn acting_as(&self, access: &str) -> String {
        let role = format!("{}_{access}", self.queue.db().name());
        let client = self.queue.db().connect().await.expect("a connection");
        let made = format!("create role {role}; select rowlock.grant_access('{role}', '{access}')");
        client.batch_execute(&made).await.expect("a role");
        let url = self.queue.db().url();
        let sign = if url.contains('?') { '&' } else { '?' };
        format!("{url}{sign}options=-c%20role%3D{role}")
    }

    pub(crate) async fn forget(&self, access: &str) {
        let role = format!("{}_{access}", self.queue.db().name());
        let client = self.queue.db().connect().await.expect("a connection");
        let dropped = format!("drop owned by {role}; drop role {role}");
        client.batch_execute(&dropped).await.expect("no role");
    }

    /// A pipe with a name, in the directory.
    pub(crate) fn fifo(&self, name: &str) -> Fifo {
        Fifo::new(self.path(name))
    }
}

/// The program without anything of this process's environment that could change what it does.
pub(crate) fn program(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowlock"));
    command.args(arguments).current_dir(dir).env_clear();
    for name in ["PATH", "HOME", "TMPDIR", "LLVM_PROFILE_FILE"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// How the program ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command to its end, without a terminal and without input.
pub(crate) async fn run(mut command: Command) -> Ran {
    command.stdin(std::process::Stdio::null());
    let output = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output();
    let ended = tokio::time::timeout(DEADLINE, output).await;
    of(&ended
        .expect("the program ends")
        .expect("the program starts"))
}

pub(crate) fn of(output: &Output) -> Ran {
    Ran {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
