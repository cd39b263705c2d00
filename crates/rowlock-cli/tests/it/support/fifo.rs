//! A pipe with a name, by which a handler and a test wait for each other.

use std::path::PathBuf;

use super::DEADLINE;

pub(crate) struct Fifo(PathBuf);

impl Fifo {
    pub(super) fn new(path: PathBuf) -> Fifo {
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        Fifo(path)
    }

    /// Waits until somebody writes, and returns what.
    pub(crate) async fn read(&self) -> String {
        let path = self.0.clone();
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path));
        let read = tokio::time::timeout(DEADLINE, read).await;
        read.expect("somebody writes")
            .expect("a thread")
            .expect("a text")
            .trim()
            .to_owned()
    }

    /// Waits until somebody reads, and gives them this.
    pub(crate) async fn write(&self, text: &str) {
        let (path, text) = (self.0.clone(), text.to_owned());
        let written = tokio::task::spawn_blocking(move || std::fs::write(path, text));
        let written = tokio::time::timeout(DEADLINE, written).await;
        written
            .expect("somebody reads")
            .expect("a thread")
            .expect("a pipe");
    }
}
