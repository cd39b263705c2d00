//! A real terminal of any size, with the program in it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::Command;

/// A screen is drawn about once a second; this is for a machine under load.
const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal with the program in it; ended on drop.
pub(crate) struct Terminal {
    directory: TempDir,
}

impl Terminal {
    /// Runs the program with these variables and words. `None` where tmux is not installed, which is said.
    pub(crate) async fn open(
        environment: &str,
        words: &str,
        columns: u16,
        rows: u16,
    ) -> Option<Self> {
        if Command::new("tmux")
            .arg("-V")
            .stdout(Stdio::null())
            .status()
            .await
            .is_err()
        {
            eprintln!("skipped: tmux is not installed");
            return None;
        }
        let terminal = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        // What comes after the program shows how it left the terminal, and that it ended.
        let script = format!(
            "trap : INT; {environment} {} {words}; echo left with $?; exec sleep 600",
            env!("CARGO_BIN_EXE_rowlock")
        );
        let (columns, rows) = (columns.to_string(), rows.to_string());
        terminal
            .tmux(&[
                "new-session",
                "-d",
                "-x",
                &columns,
                "-y",
                &rows,
                "sh",
                "-c",
                &script,
            ])
            .await;
        Some(terminal)
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new("tmux");
        command.arg("-S").arg(self.directory.path().join("socket"));
        command
            .args(["-f", "/dev/null"])
            .args(args)
            .env_remove("TMUX");
        // Without a locale it takes us for a terminal that knows no lines.
        command
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "xterm-256color");
        command
    }

    pub(crate) async fn tmux(&self, args: &[&str]) -> String {
        let output = Command::from(self.command(args)).output().await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) async fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat()).await;
    }

    /// Waits until the screen shows all of this, and returns it.
    #[track_caller]
    pub(crate) fn shows(&self, wanted: &[&str]) -> impl Future<Output = String> {
        let caller = std::panic::Location::caller();
        async move {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let screen = self.tmux(&["capture-pane", "-p"]).await;
                if wanted.iter().all(|w| screen.contains(w)) {
                    return screen;
                }
                assert!(
                    Instant::now() < deadline,
                    "{caller}: never showed {wanted:?}, but\n{screen}"
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self
            .command(&["kill-server"])
            .stderr(Stdio::null())
            .status();
    }
}
