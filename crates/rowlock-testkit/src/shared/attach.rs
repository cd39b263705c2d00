//! Finds the run's server, or starts it.
//!
//! In a directory of this user's own, `start.lock` is held by the one process that looks or starts; `<key>.current` names the home of
//! the server with that key (which programs, which settings); `<home>.use` is the lock that every user of a server shares. A home
//! is never used twice, so a supervisor can remove its own without a thought for others.
//!
//! Promises: two processes never start two servers with one key at a time; what comes back takes connections, and is not being
//! ended. Must not wait for anything that has no limit.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

use crate::error::{Error, Result};
use crate::postgres::find::Installation;
use crate::postgres::home::{Home, live_server, temporary_parent};
use crate::postgres::identity::Identity;
use crate::postgres::lockfile::{LockFile, Status};
use crate::postgres::process::Process;
use crate::postgres::{cluster, find};

/// The port in the name of the socket.
pub(super) const PORT: u16 = 5432;

/// How long the server stays when nobody uses it, unless [`LINGER_VARIABLE`] says otherwise: longer than the gap between two
/// test binaries, shorter than anybody minds.
const LINGER_S: u32 = 10;

/// The longest that it can be told to stay.
const LINGER_MAX_S: u32 = 3600;

/// The environment variable that says how many seconds the server stays when nobody uses it.
const LINGER_VARIABLE: &str = "ROWLOCK_TEST_LINGER_S";

/// The longest that making the data, or starting, may take.
const TIMEOUT: Duration = Duration::from_secs(60);

const SUPERVISOR: &str = include_str!("supervisor.sh");

/// A use of the run's server.
#[derive(Debug)]
pub(crate) struct Attached {
    home: PathBuf,
    socket_dir: PathBuf,
    /// The shared lock that keeps the server there.
    _in_use: File,
}

impl Attached {
    pub(crate) fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.home.join("server.log")
    }
}

/// Whether this system has what the supervisor needs.
pub(super) fn is_possible() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    cfg!(target_os = "linux") && std::env::split_paths(&path).any(|dir| dir.join("flock").is_file())
}

/// Finds or starts the server with these settings.
pub(super) fn attach(settings: &[(&str, &str)]) -> Result<Attached> {
    let identity = Identity::choose(None)?;
    let bin_dir = find::first_bin_dir(None)?;
    let desk = Desk::open(&identity)?;
    let key = key(&bin_dir, settings);
    match desk.current(&key) {
        Some(attached) => Ok(attached),
        None => desk.start(&key, &identity, settings),
    }
}

/// Servers with other programs or other settings are other servers.
fn key(bin_dir: &Path, settings: &[(&str, &str)]) -> String {
    let mut hasher = DefaultHasher::new();
    (bin_dir, settings, SUPERVISOR, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The directory in which the processes of all runs of this user find each other, locked.
struct Desk {
    path: PathBuf,
    _start_lock: File,
}

impl Desk {
    fn open(identity: &Identity) -> Result<Desk> {
        let us = rustix::process::geteuid().as_raw();
        let name = format!("rowlock-test-{us}");
        let parent = temporary_parent(identity, &format!("{name}/0123456789abcdef-01234567/s"))?;
        let path = parent.join(name);
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("creating", path)(error));
            }
            _ => {}
        }
        // The name can be guessed, so somebody else may have made it first.
        let metadata = fs::symlink_metadata(&path).map_err(Error::io("looking at", &path))?;
        if !metadata.is_dir() || metadata.uid() != us {
            return Err(Error::NotOwner {
                path,
                owner: metadata.uid(),
                us,
            });
        }
        let mode = fs::Permissions::from_mode(identity.passage_mode());
        fs::set_permissions(&path, mode).map_err(Error::io("protecting", &path))?;
        let start_lock = lock(&path.join("start.lock"), FlockOperation::LockExclusive)?;
        Ok(Desk {
            path,
            _start_lock: start_lock,
        })
    }

    fn use_lock_path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.use"))
    }

    fn current_path(&self, key: &str) -> PathBuf {
        self.path.join(format!("{key}.current"))
    }

    /// The server that runs with this key, if it does.
    fn current(&self, key: &str) -> Option<Attached> {
        let name = fs::read_to_string(self.current_path(key)).ok()?;
        let use_lock = self.use_lock_path(&name);
        if !use_lock.exists() {
            return None;
        }
        // This waits while the supervisor looks whether anybody is there, or ends the server: neither takes long.
        let in_use = lock(&use_lock, FlockOperation::LockShared).ok()?;
        let home = self.path.join(name);
        let ready =
            LockFile::read(&home.join("cluster")).is_some_and(|file| file.status == Status::Ready);
        let socket_dir = home.join("s");
        let answers = UnixStream::connect(socket_dir.join(format!(".s.PGSQL.{PORT}"))).is_ok();
        (ready && answers).then_some(Attached {
            home,
            socket_dir,
            _in_use: in_use,
        })
    }

    fn start(&self, key: &str, identity: &Identity, settings: &[(&str, &str)]) -> Result<Attached> {
        self.sweep();
        let installation = find::find(None, None)?;
        identity.check_can_enter(installation.bin_dir())?;
        let name = format!("{key}-{:08x}", rand::random::<u32>());
        let in_use = lock(&self.use_lock_path(&name), FlockOperation::LockShared)?;
        let home = Home::handed_over(&self.path.join(&name), identity)?;
        let socket_dir = home.path().join("s");
        cluster::ensure_cluster(&home, &installation, identity, TIMEOUT)?;
        identity.create_private_dir(&socket_dir)?;

        let settings = with_auto_explain(settings, &installation);
        let server =
            cluster::server_arguments(&home.cluster_dir(), &socket_dir, PORT, false, &settings);
        let supervisor = self.spawn_supervisor(&name, &home, &installation, identity, &server)?;
        // The data are new, so whatever file is in them is this server's.
        if let Err(error) = cluster::wait_until_ready(&home, &supervisor, |_| true, TIMEOUT) {
            let _ = supervisor.signal(Signal::TERM);
            return Err(error);
        }
        self.publish(key, &name)?;
        Ok(Attached {
            home: home.path().to_owned(),
            socket_dir,
            _in_use: in_use,
        })
    }

    fn spawn_supervisor(
        &self,
        name: &str,
        home: &Home,
        installation: &Installation,
        identity: &Identity,
        server: &[String],
    ) -> Result<Process> {
        let shell = Path::new("/bin/sh");
        let mut command =
            cluster::clean_command(shell, identity, &cluster::open_log(&home.log_path())?)?;
        command.args(["-c", SUPERVISOR, "rowlock-test-supervisor"]);
        command
            .arg(self.use_lock_path(name))
            .arg(home.path())
            .arg(linger_s().to_string());
        command.arg(installation.program("postgres")).args(server);
        Process::spawn(command, None).map_err(|source| Error::Spawn {
            program: shell.to_owned(),
            source,
        })
    }

    fn publish(&self, key: &str, name: &str) -> Result<()> {
        let path = self.current_path(key);
        let unfinished = path.with_extension("unfinished");
        let written = fs::write(&unfinished, name).and_then(|()| fs::rename(&unfinished, &path));
        written.map_err(Error::io("writing", path))
    }

    /// Removes what supervisors that were killed, or could not, left behind. Best effort.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.extension().and_then(OsStr::to_str) {
                Some("use") => sweep_home(&path),
                Some("current") => self.sweep_pointer(&path),
                _ => {}
            }
        }
    }

    fn sweep_pointer(&self, current: &Path) {
        let points_nowhere =
            fs::read_to_string(current).is_ok_and(|name| !self.use_lock_path(&name).exists());
        if points_nowhere {
            let _ = fs::remove_file(current);
        }
    }
}

fn sweep_home(use_lock: &Path) {
    let home = use_lock.with_extension("");
    // Somebody who uses a server that has died may still read its log.
    let unused = lock(use_lock, FlockOperation::NonBlockingLockExclusive);
    if unused.is_ok() && live_server(&home).is_none() {
        let _ = fs::remove_dir_all(&home);
        let _ = fs::remove_file(use_lock);
    }
}

fn with_auto_explain(
    settings: &[(&str, &str)],
    installation: &Installation,
) -> Vec<(String, String)> {
    let mut settings: Vec<_> = settings
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    if installation.has_module("auto_explain") {
        settings.push((
            "shared_preload_libraries".to_owned(),
            "auto_explain".to_owned(),
        ));
    }
    settings
}

fn linger_s() -> u32 {
    let said = std::env::var(LINGER_VARIABLE)
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    said.unwrap_or(LINGER_S).min(LINGER_MAX_S)
}

/// Opens and locks a file, making it if it is not there.
fn lock(path: &Path, operation: FlockOperation) -> Result<File> {
    // Readable by the supervisor, which may run as another user; only we can write it.
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o644)
        .open(path)
        .map_err(Error::io("opening", path))?;
    rustix::io::retry_on_intr(|| flock(&file, operation))
        .map_err(|error| Error::io("locking", path)(error.into()))?;
    Ok(file)
}
