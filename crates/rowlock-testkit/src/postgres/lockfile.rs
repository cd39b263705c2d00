//! Reads `postmaster.pid`, the file in which a server says who and how it is.
//!
//! Promises: a file that is missing, half-written or left behind by a dead server is not mistaken for a live one. Must not write
//! or remove it: that is the server's.

use std::fs;
use std::path::Path;

use rustix::process::Pid;

/// What a server wrote about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockFile {
    /// The server's first process.
    pub(crate) pid: Pid,
    /// The number of the System V shared memory segment that guards the data, once it exists.
    pub(crate) shared_memory_id: Option<u32>,
    /// How far the server is.
    pub(crate) status: Status,
}

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Not ready yet.
    Starting,
    /// Takes connections.
    Ready,
    /// On its way out.
    Stopping,
}

impl LockFile {
    /// Reads the file of the cluster, if there is one with a process in it.
    pub(crate) fn read(cluster_dir: &Path) -> Option<LockFile> {
        LockFile::parse(&fs::read_to_string(cluster_dir.join("postmaster.pid")).ok()?)
    }

    /// The lines are: process, data directory, start time, port, socket directory, address, shared memory key and number, status.
    fn parse(text: &str) -> Option<LockFile> {
        let mut lines = text.lines();
        let pid: i32 = lines.next()?.trim().parse().ok()?;
        let pid = Pid::from_raw(pid.max(0))?; // a negative number would mean a whole group
        let shared_memory = lines
            .nth(5)
            .and_then(|line| line.split_whitespace().nth(1))
            .and_then(|id| id.parse().ok());
        let status = match lines.next().map(str::trim) {
            Some("ready" | "standby") => Status::Ready,
            Some("stopping") => Status::Stopping,
            _ => Status::Starting,
        };
        Some(LockFile {
            pid,
            shared_memory_id: shared_memory,
            status,
        })
    }

    /// Whether the process is there and, as far as one can see, a server on this cluster.
    ///
    /// After a crash the number may belong to a stranger. A server works in its data directory, so a process that works
    /// elsewhere is none; where that cannot be seen, the process is taken for a server, which is the safe side.
    pub(crate) fn is_live(&self, cluster_dir: &Path) -> bool {
        if rustix::process::test_kill_process(self.pid) == Err(rustix::io::Errno::SRCH) {
            return false;
        }
        match fs::read_link(format!("/proc/{}/cwd", self.pid)) {
            Ok(working_dir) => cluster_dir
                .canonicalize()
                .map_or(true, |cluster_dir| cluster_dir == working_dir),
            // An ended process that nobody has collected yet has no working directory.
            Err(error) => {
                error.kind() != std::io::ErrorKind::NotFound || !Path::new("/proc/self").exists()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &str = "4242\n/data\n1763000000\n5432\n/tmp/s\n\n  2228226    131077\nready   \n";

    #[test]
    fn a_ready_server_is_read() {
        let file = LockFile::parse(READY).unwrap();
        assert_eq!(file.pid, Pid::from_raw(4242).unwrap());
        assert_eq!(file.shared_memory_id, Some(131_077));
        assert_eq!(file.status, Status::Ready);
    }

    #[test]
    fn a_server_is_not_ready_at_any_earlier_point_of_the_file() {
        let ready_at = READY.find("ready").unwrap();
        for end in 0..ready_at + 4 {
            let status = LockFile::parse(&READY[..end]).map(|file| file.status);
            assert!(
                matches!(status, None | Some(Status::Starting)),
                "{:?}: {status:?}",
                &READY[..end]
            );
        }
        assert_eq!(
            LockFile::parse(&READY.replace("ready   ", "stopping"))
                .unwrap()
                .status,
            Status::Stopping
        );
    }

    #[test]
    fn rubbish_is_no_server() {
        assert_eq!(LockFile::parse(""), None);
        assert_eq!(LockFile::parse("0\n"), None);
        assert_eq!(LockFile::parse("-5\n"), None);
        assert_eq!(LockFile::parse("ready\n"), None);
    }

    #[test]
    fn a_stranger_with_the_same_number_is_not_live() {
        let elsewhere = tempfile::tempdir().unwrap();
        let ours = LockFile {
            pid: rustix::process::getpid(),
            shared_memory_id: None,
            status: Status::Ready,
        };
        assert!(!ours.is_live(elsewhere.path()) || !Path::new("/proc/self").exists());
        assert!(ours.is_live(&std::env::current_dir().unwrap()));
    }
}
