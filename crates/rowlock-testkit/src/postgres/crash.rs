//! Kills all processes of a server at once, as a power cut would.
//!
//! Promises: when it returns, none of them runs, none of them had the time to clean up, and no other process was touched. Must
//! not leave a process stopped.

use std::io;
use std::time::Duration;

use rustix::process::Signal;

use super::process::Process;

/// Kills the server and its children; waits for their end, at most `timeout` for each.
pub(crate) fn kill_all(server: &Process, timeout: Duration) -> io::Result<()> {
    // A stopped parent neither starts children nor collects ended ones, so their numbers stay theirs while we look.
    server.signal(Signal::STOP)?;
    let children = kill_children(server, timeout);
    server.signal(Signal::KILL)?; // also if the children could not be killed: they leave when they notice
    children?;
    server
        .wait(timeout)
        .map(drop)
        .ok_or_else(|| io::ErrorKind::TimedOut.into())
}

#[cfg(target_os = "linux")]
fn kill_children(server: &Process, timeout: Duration) -> io::Result<()> {
    // The stop takes hold a moment after the call, and a last child may be born in between: look until there is none.
    loop {
        let children = linux::children_of(server.pid())?;
        if children.is_empty() {
            return Ok(());
        }
        for child in &children {
            linux::kill(child, timeout)?;
        }
    }
}

/// Elsewhere there is no list of processes to read: the children leave by themselves when they notice that the server is gone.
#[cfg(not(target_os = "linux"))]
fn kill_children(_server: &Process, _timeout: Duration) -> io::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    /// The children of `parent` that have not ended, as handles that cannot come to mean another process.
    pub(super) fn children_of(parent: Pid) -> io::Result<Vec<OwnedFd>> {
        let mut children = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
                .and_then(Pid::from_raw)
            else {
                continue;
            };
            if !is_running_child(pid, parent) {
                continue;
            }
            match pidfd_open(pid, PidfdFlags::empty()) {
                // Looked at again: between the first look and the opening, the number may have changed hands.
                Ok(child) if is_running_child(pid, parent) => children.push(child),
                Ok(_) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(children)
    }

    pub(super) fn kill(child: &OwnedFd, timeout: Duration) -> io::Result<()> {
        match pidfd_send_signal(child, Signal::KILL) {
            Ok(()) => wait_for_end(child, timeout),
            Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn wait_for_end(child: &OwnedFd, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut handles = [PollFd::new(child, PollFlags::IN)];
        match rustix::io::retry_on_intr(|| poll(&mut handles, Some(&timeout)))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    fn is_running_child(pid: Pid, parent: Pid) -> bool {
        let stat =
            fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        matches!(state_and_parent(&stat), Some((state, its_parent)) if its_parent == parent.as_raw_nonzero().get() && state != "Z" && state != "X")
    }

    /// `/proc/<pid>/stat` is `pid (name) state parent …`, and the name may hold anything, brackets too.
    fn state_and_parent(stat: &str) -> Option<(&str, i32)> {
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut fields = after_name.split_whitespace();
        Some((fields.next()?, fields.next()?.parse().ok()?))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_parent_is_read_past_a_name_with_brackets() {
            assert_eq!(state_and_parent("12 (a) b) S 7 12 12 0"), Some(("S", 7)));
            assert_eq!(state_and_parent(""), None);
        }
    }
}
