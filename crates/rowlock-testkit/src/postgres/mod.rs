//! A private Postgres: a real server of one's own, for a test or a demonstration.
//!
//! Promises: it listens on a socket that only its user can reach (and on a loopback port only when asked); it never outlives this
//! process, not even one that is killed (on Linux); a Ctrl-C meant for this process does not reach it; it ends only processes
//! that it started. Must not touch any other server, or data that it did not make.

mod builder;
pub(crate) mod cluster;
mod crash;
pub(crate) mod find;
pub(crate) mod home;
pub(crate) mod identity;
pub(crate) mod lockfile;
pub(crate) mod process;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

pub use builder::PrivatePostgresBuilder;
pub use find::Version;

use crate::error::{Error, Result};
use crate::url::{socket_url, tcp_url};
use find::Installation;
use home::{Home, SocketDir};
use identity::Identity;
use lockfile::LockFile;
use process::Process;

/// The port in the name of a socket, when there is no TCP port.
const SOCKET_PORT: u16 = 5432;

/// How many free ports to try: another process may take one between our look and the server's start.
const PORT_ATTEMPTS: usize = 5;

/// A Postgres server of this process alone. Dropping it stops the server, and removes its data if they are temporary.
///
/// All methods block; none needs an async runtime. The superuser is `postgres`, who needs no password.
///
/// ```no_run
/// # fn main() -> Result<(), rowlock_testkit::Error> {
/// use rowlock_testkit::PrivatePostgres;
///
/// let mut postgres = PrivatePostgres::builder().fsync(false).start()?;
/// println!("psql '{}'", postgres.url("postgres"));
///
/// postgres.kill9()?; // a crash…
/// postgres.restart()?; // …and the recovery from it, at the same URL
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PrivatePostgres {
    /// The server, if it is running. Declared first: it must be gone before its directories go.
    process: Option<Process>,
    socket_dir: SocketDir,
    home: Home,
    installation: Installation,
    identity: Identity,
    settings: Vec<(String, String)>,
    /// In the socket's name, and the TCP port if there is one.
    port: u16,
    tcp: bool,
    /// The longest that a start or a stop may take.
    timeout: Duration,
}

impl PrivatePostgres {
    /// Begins to describe a server.
    pub fn builder() -> PrivatePostgresBuilder {
        PrivatePostgresBuilder::new()
    }

    fn start(
        home: Home,
        socket_dir: SocketDir,
        installation: Installation,
        identity: Identity,
        settings: Vec<(String, String)>,
        tcp: bool,
        timeout: Duration,
    ) -> Result<PrivatePostgres> {
        cluster::check_unused(&home, timeout)?;
        cluster::ensure_cluster(&home, &installation, &identity, timeout)?;
        let process = None;
        let port = SOCKET_PORT;
        let mut postgres = PrivatePostgres {
            process,
            socket_dir,
            home,
            installation,
            identity,
            settings,
            port,
            tcp,
            timeout,
        };
        postgres.start_on_free_port()?;
        Ok(postgres)
    }

    fn start_on_free_port(&mut self) -> Result<()> {
        if !self.tcp {
            return self.start_process();
        }
        let mut attempts = 0;
        loop {
            self.port = free_port()?;
            attempts += 1;
            match self.start_process() {
                Err(Error::StartFailed { log, .. })
                    if attempts < PORT_ATTEMPTS && is_port_taken(&log) => {}
                result => return result,
            }
        }
    }

    fn start_process(&mut self) -> Result<()> {
        let arguments = cluster::server_arguments(
            &self.home.cluster_dir(),
            self.socket_dir.path(),
            self.port,
            self.tcp,
            &self.settings,
        );
        let process = cluster::spawn_server(
            &self.home,
            &self.installation,
            &self.identity,
            &arguments,
            self.death_signal(),
        )?;
        let process = &*self.process.insert(process);
        let ready = cluster::wait_until_ready(
            &self.home,
            process,
            |file| file.pid == process.pid(),
            self.timeout,
        );
        if ready.is_err() {
            let _ = self.kill9();
        }
        ready
    }

    /// What the server gets when this process ends: data that are kept deserve an orderly end.
    fn death_signal(&self) -> Signal {
        if self.home.is_temporary() {
            Signal::QUIT
        } else {
            Signal::INT
        }
    }

    /// The URL of a database of this server, through its socket.
    #[must_use]
    pub fn url(&self, dbname: &str) -> String {
        socket_url(self.socket_dir.path(), self.port, dbname)
    }

    /// The URL of a database of this server through TCP, if that was asked for.
    #[must_use]
    pub fn tcp_url(&self, dbname: &str) -> Option<String> {
        self.tcp.then(|| tcp_url(self.port, dbname))
    }

    /// The directory that holds the socket: the `host` of a connection.
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        self.socket_dir.path()
    }

    /// The port: part of the name of the socket, and the TCP port if that was asked for.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the data: `cluster` in it is what Postgres itself calls the data directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        self.home.path()
    }

    /// The file that the server logs to.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.home.log_path()
    }

    /// The version of the server.
    #[must_use]
    pub fn version(&self) -> &Version {
        self.installation.version()
    }

    /// The directory of the programs that the server was started from.
    #[must_use]
    pub fn bin_dir(&self) -> &Path {
        self.installation.bin_dir()
    }

    /// The server's first process, if it is running.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let process = self
            .process
            .as_ref()
            .filter(|process| process.ended().is_none())?;
        Some(process.pid().as_raw_nonzero().get().unsigned_abs())
    }

    /// Stops the server in good order: clients are thrown out, everything is written. Does nothing if it is not running.
    pub fn stop(&mut self) -> Result<()> {
        self.stop_with(Signal::INT)
    }

    fn stop_with(&mut self, signal: Signal) -> Result<()> {
        let Some(process) = &self.process else {
            return Ok(());
        };
        process
            .signal(signal)
            .map_err(Error::io("stopping the server on", self.home.path()))?;
        if process.wait(self.timeout).is_some() {
            self.process = None;
            return Ok(());
        }
        let log = cluster::tail(&self.home.log_path());
        self.kill9()?;
        let path = self.home.path().to_owned();
        Err(Error::TimedOut {
            doing: "stopping (now killed) the Postgres on",
            path,
            waited: self.timeout,
            log,
        })
    }

    /// Kills all processes of the server at once, as a power cut would. [`restart`](Self::restart) recovers.
    ///
    /// On systems other than Linux only the first process is killed; the others leave when they notice.
    pub fn kill9(&mut self) -> Result<()> {
        let Some(process) = self.process.take() else {
            return Ok(());
        };
        crash::kill_all(&process, self.timeout)
            .map_err(Error::io("killing the server on", self.home.path()))
    }

    /// Stops the server if it is running, and starts it again: the same data, settings and URLs.
    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        cluster::check_unused(&self.home, self.timeout)?;
        self.start_process()
    }

    /// A server that was killed leaves its guard segment of shared memory behind, of which a system has a limited number.
    fn remove_shared_memory_of_crash(&self) {
        let Some(id) =
            LockFile::read(&self.home.cluster_dir()).and_then(|file| file.shared_memory_id)
        else {
            return;
        };
        let mut command = Command::new("ipcrm");
        command
            .args(["-m", &id.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.identity.apply(&mut command);
        let _ = command.status();
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        let signal = self.death_signal();
        let _ = self.stop_with(signal);
        if self.home.is_temporary() {
            self.remove_shared_memory_of_crash();
        }
    }
}

fn free_port() -> Result<u16> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    free.map(|address| address.port())
        .map_err(|source| Error::Socket {
            doing: "looking for a free port on",
            address: "127.0.0.1".to_owned(),
            source,
        })
}

fn is_port_taken(log: &str) -> bool {
    log.contains("could not create any TCP/IP sockets")
}
