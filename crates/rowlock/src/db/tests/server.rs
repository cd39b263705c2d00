//! Real servers for the tests of this room: Postgres with TLS, a standby of it, and `PgBouncer` before it.
//!
//! Only this module knows how they are started. The rest asks for ports and directories, so that another way to
//! start a private Postgres can take its place.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::certs::Certs;

const START_LIMIT: Duration = Duration::from_secs(60);

/// Who is let in how. The first line that fits decides.
const HBA: &str = "\
local     all         all                      trust
hostnossl all         tls_only  127.0.0.1/32   reject
hostssl   all         plain_only 127.0.0.1/32  reject
hostssl   all         cert_user 127.0.0.1/32   cert
host      all         scram     127.0.0.1/32   scram-sha-256
host      all         nobody    127.0.0.1/32   reject
host      all         all       127.0.0.1/32   trust
host      replication all       127.0.0.1/32   trust
";

const ROLES: &str = "\
create role tls_only login; create role plain_only login; create role cert_user login; create role nobody login;
create role scram login password 'it''s a secret: \\o/';
create role reader login; alter role reader set default_transaction_read_only = on;
create role repeater login; alter role repeater set default_transaction_isolation = 'repeatable read';
create role limited login connection limit 0;
create database private; revoke connect on database private from public;
";

/// The password of the role `scram`.
pub(super) const SCRAM_PASSWORD: &str = r"it's a secret: \o/";

/// A running Postgres; stopped and removed on drop.
pub(super) struct Postgres {
    pub(super) port: u16,
    pub(super) certs: Arc<Certs>,
    directory: TempDir,
    process: Option<Child>,
}

impl Postgres {
    /// The server that tests share as long as one of them uses it. It speaks TLS.
    pub(super) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// A server of one's own.
    pub(super) fn start() -> Self {
        let directory = private_directory();
        let certs = Arc::new(Certs::generate(&directory.path().join("certs")));
        give_away(directory.path());
        let data = directory.path().join("data");
        run(as_postgres(&bin("initdb")).arg("-D").arg(&data).args([
            "-A",
            "trust",
            "-U",
            "postgres",
            "--no-sync",
        ]));
        fs::write(data.join("pg_hba.conf"), HBA).unwrap();
        let mut server = Self {
            port: free_port(),
            certs,
            directory,
            process: None,
        };
        server.launch();
        server.run_sql(ROLES);
        server
    }

    /// A standby of this server; it speaks no TLS.
    pub(super) fn standby(&self) -> Self {
        let directory = private_directory();
        give_away(directory.path());
        run(as_postgres(&bin("pg_basebackup"))
            .arg("-D")
            .arg(directory.path().join("data"))
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
                "-U",
                "postgres",
                "-R",
                "-c",
                "fast",
                "--no-sync",
            ]));
        let mut standby = Self {
            port: free_port(),
            certs: Arc::clone(&self.certs),
            directory,
            process: None,
        };
        standby.launch();
        standby
    }

    /// Starts the server after [`Postgres::halt`].
    pub(super) fn launch(&mut self) {
        let is_standby = self.data().join("standby.signal").exists();
        let certs = &self.certs;
        let mut command = as_postgres(&bin("postgres"));
        command.arg("-D").arg(self.data());
        for setting in [
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".to_owned(),
            format!(
                "unix_socket_directories={}",
                self.socket_directory().display()
            ),
            "fsync=off".to_owned(),
            "max_connections=40".to_owned(),
            "max_wal_senders=4".to_owned(),
            format!("ssl={}", if is_standby { "off" } else { "on" }),
            format!("ssl_cert_file={}", certs.server_cert.display()),
            format!("ssl_key_file={}", certs.server_key.display()),
            format!("ssl_ca_file={}", certs.ca.display()),
        ] {
            command.arg("-c").arg(setting);
        }
        let log = fs::File::create(self.directory.path().join("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap());
        self.wait_until_ready();
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + START_LIMIT;
        let port = self.port.to_string();
        loop {
            let ready = as_postgres(&bin("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &port])
                .status();
            if ready.unwrap().success() {
                return;
            }
            let ended = self
                .process
                .as_mut()
                .and_then(|process| process.try_wait().unwrap());
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "Postgres does not start: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the server as a crash would; [`Postgres::launch`] starts it again.
    pub(super) fn halt(&mut self) {
        if let Some(mut process) = self.process.take() {
            let stopped = as_postgres(&bin("pg_ctl"))
                .args(["stop", "-s", "-m", "immediate", "-D"])
                .arg(self.data())
                .status();
            if !stopped.is_ok_and(|status| status.success()) {
                let _ = process.kill();
            }
            let _ = process.wait();
        }
    }

    pub(super) fn run_sql(&self, sql: &str) {
        run(as_postgres(&bin("psql"))
            .args([
                "-X",
                "-q",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                "postgres",
                "-p",
                &self.port.to_string(),
            ])
            .arg("-h")
            .arg(self.socket_directory())
            .arg("-c")
            .arg("set client_min_messages = warning")
            .args(
                sql.split_inclusive(';')
                    .filter(|s| !s.trim().is_empty())
                    .flat_map(|statement| ["-c", statement]),
            ));
    }

    pub(super) fn socket_directory(&self) -> &Path {
        self.directory.path()
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.halt();
    }
}

/// A running `PgBouncer` in transaction mode; stopped on drop.
pub(super) struct PgBouncer {
    pub(super) port: u16,
    _directory: TempDir,
    process: Child,
}

impl PgBouncer {
    pub(super) fn before(server: &Postgres, extra_settings: &str) -> Self {
        let directory = private_directory();
        let port = free_port();
        fs::write(
            directory.path().join("users"),
            "\"postgres\" \"\"\n\"scram\" \"right\"\n",
        )
        .unwrap();
        fs::write(
            directory.path().join("ini"),
            format!(
                "[databases]\npostgres = host=127.0.0.1 port={}\nlost = host=127.0.0.1 port=1\n[pgbouncer]\n\
                 listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\npool_mode = transaction\n\
                 auth_type = trust\nauth_file = {}\n{extra_settings}\n",
                server.port,
                directory.path().join("users").display(),
            ),
        )
        .unwrap();
        give_away(directory.path());
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let process = as_postgres(Path::new("/usr/sbin/pgbouncer"))
            .arg(directory.path().join("ini"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let bouncer = Self {
            port,
            _directory: directory,
            process,
        };
        let deadline = Instant::now() + START_LIMIT;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "PgBouncer does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        bouncer
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A port of this host that nobody listens on.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn private_directory() -> TempDir {
    let directory = tempfile::Builder::new()
        .prefix("rowlock-")
        .tempdir()
        .unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).unwrap();
    directory
}

/// The newest Postgres that is installed in the usual place, or the one that `ROWLOCK_TEST_PG_BIN` names.
fn bin(program: &str) -> PathBuf {
    if let Some(directory) = std::env::var_os("ROWLOCK_TEST_PG_BIN") {
        return Path::new(&directory).join(program);
    }
    let versions = fs::read_dir("/usr/lib/postgresql")
        .expect("these tests need PostgreSQL in /usr/lib/postgresql");
    let newest = versions
        .map(|entry| entry.unwrap().path())
        .max_by_key(|path| {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            name.parse::<u32>().unwrap_or(0)
        });
    newest
        .expect("no PostgreSQL is installed")
        .join("bin")
        .join(program)
}

/// Postgres refuses to run as root, so root hands it to the user `postgres`.
fn postgres_ids() -> Option<(u32, u32)> {
    let id = |args: &[&str]| -> u32 {
        let output = Command::new("id").args(args).output().unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .trim()
            .parse()
            .expect("there is no user postgres")
    };
    (id(&["-u"]) == 0).then(|| (id(&["-u", "postgres"]), id(&["-g", "postgres"])))
}

fn as_postgres(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = postgres_ids() {
        command.uid(uid).gid(gid);
    }
    command
        .current_dir("/")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

fn give_away(directory: &Path) {
    if let Some((uid, gid)) = postgres_ids() {
        chown(directory, Some(uid), Some(gid)).unwrap();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                give_away(&path);
            } else {
                chown(&path, Some(uid), Some(gid)).unwrap();
            }
        }
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?} failed: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
