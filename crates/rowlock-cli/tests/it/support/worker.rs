//! A worker that runs, watched by its log.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use super::Place;

/// Long enough for a machine that is busy with other tests; a test that comes here has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// `rowlock work`, killed when dropped.
pub(crate) struct Running {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    /// What it has logged so far, for messages.
    seen: Vec<String>,
}

impl Running {
    /// Starts a worker and waits until it works.
    pub(crate) async fn start(place: &Place, arguments: &[&str]) -> Running {
        let command = place.rowlock(&[&["work"], arguments].concat());
        let mut running = Running::spawn(command);
        running.wait_for("worker started").await;
        running
    }

    pub(crate) fn spawn(command: std::process::Command) -> Running {
        let mut child = Command::from(command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let log = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        Running {
            child,
            log,
            seen: Vec::new(),
        }
    }

    /// Waits for a line of its log, and returns that.
    pub(crate) async fn wait_for(&mut self, text: &str) -> String {
        let found = tokio::time::timeout(DEADLINE, async {
            while let Some(line) = self.log.next_line().await.expect("a log") {
                self.seen.push(line.clone());
                if line.contains(text) {
                    return Some(line);
                }
            }
            None
        });
        let found = found.await.ok().flatten();
        found.unwrap_or_else(|| panic!("{text:?} is not in the log:\n{}", self.seen.join("\n")))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("it runs");
        let pid = Pid::from_raw(i32::try_from(id).expect("a pid")).expect("a pid");
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for its end; reads the log meanwhile, as somebody has to.
    pub(crate) async fn ended(mut self) -> (ExitStatus, Vec<String>) {
        let ended = tokio::time::timeout(DEADLINE, async {
            while let Ok(Some(line)) = self.log.next_line().await {
                self.seen.push(line);
            }
            self.child.wait().await.expect("an end")
        });
        let Ok(status) = ended.await else {
            panic!("it does not end:\n{}", self.seen.join("\n"))
        };
        (status, self.seen)
    }
}
