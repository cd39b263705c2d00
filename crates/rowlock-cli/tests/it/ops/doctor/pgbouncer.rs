//! A real `PgBouncer` before the database of a test.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rowlock_testkit::TestQueue;
use tempfile::TempDir;

const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// A running `PgBouncer` in transaction mode; stopped on drop.
pub(super) struct PgBouncer {
    pub(super) url: String,
    process: Child,
    _directory: TempDir,
}

impl PgBouncer {
    /// `None` where it is not installed, which is said.
    pub(super) fn before(queue: &TestQueue) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            eprintln!("skipped: {PROGRAM} is not installed");
            return None;
        }
        let param = |name: &str| {
            let query = queue.db().url().split_once('?').unwrap().1;
            let mut pairs = query.split('&').filter_map(|p| p.split_once('='));
            pairs
                .find(|(n, _)| *n == name)
                .map(|(_, v)| v.replace("%2F", "/"))
        };
        let (host, port) = (param("host").unwrap(), param("port").unwrap());
        let user = param("user").unwrap_or_else(|| "postgres".into());
        let directory = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let free = listener.local_addr().unwrap().port();
        drop(listener);
        let ini = directory.path().join("ini");
        let settings = format!(
            "[databases]\n* = host={host} port={port} user={user}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {free}\n\
             unix_socket_dir =\npool_mode = transaction\nauth_type = any\n"
        );
        std::fs::write(&ini, settings).unwrap();
        let mut command = Command::new(PROGRAM);
        command
            .arg(&ini)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        as_another_user(&mut command);
        let process = command.spawn().unwrap();
        let bouncer = Self {
            url: format!(
                "postgres://{user}@127.0.0.1:{free}/{}?sslmode=disable",
                queue.db().name()
            ),
            process,
            _directory: directory,
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(("127.0.0.1", free)).is_err() {
            assert!(Instant::now() < deadline, "PgBouncer does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(bouncer)
    }
}

/// It refuses to run as root.
fn as_another_user(command: &mut Command) {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    let am_root = std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let uid = passwd
        .lines()
        .filter_map(|line| line.strip_prefix("postgres:"))
        .find_map(|line| line.split(':').nth(1)?.parse().ok());
    if let (true, Some(uid)) = (am_root, uid) {
        command.uid(uid);
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
