//! A helper process that signals a child when this process ends, for systems whose kernel does not.
//!
//! It waits on a pipe that only this process holds: the pipe closes when this process ends, however it ends. Promises: it signals
//! only when that happened before [`Watcher::dismiss`]. Must not be needed on Linux.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

/// A line means "dismissed"; the end of the input without one means that this process is gone.
const SCRIPT: &str = r#"read -r dismissed || kill -s "$1" "$2""#;

/// The helper process.
#[derive(Debug)]
pub(super) struct Watcher {
    shell: Child,
}

impl Watcher {
    pub(super) fn start(child: Pid, signal: Signal) -> io::Result<Watcher> {
        let signal = signal.as_raw().to_string();
        let child = child.as_raw_nonzero().to_string();
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT, "sh", &signal, &child])
            .current_dir("/")
            .process_group(0);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Watcher {
            shell: command.spawn()?,
        })
    }

    /// Ends the helper. To be called while the child's number is still its own.
    pub(super) fn dismiss(mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            let _ = pipe.write_all(b"dismissed\n");
        }
        let _ = self.shell.wait();
    }

    /// Closes the pipe, as the end of this process would.
    #[cfg(test)]
    fn lose_parent(mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    #[test]
    fn a_lost_parent_is_signalled_to_the_child() {
        let mut child = sleeper();
        Watcher::start(Pid::from_child(&child), Signal::INT)
            .unwrap()
            .lose_parent();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
    }

    #[test]
    fn a_dismissed_watcher_signals_nobody() {
        let mut child = sleeper();
        Watcher::start(Pid::from_child(&child), Signal::INT)
            .unwrap()
            .dismiss();
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
