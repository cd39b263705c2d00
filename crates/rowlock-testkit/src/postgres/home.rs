//! The directories of a server: where its data and its log are, and where its socket is.
//!
//! A home holds `cluster/` (what Postgres calls the data directory) and `server.log`. The socket is in a directory of its own with a
//! short name, since the name of a socket may have only about a hundred bytes.
//!
//! Promises: a home is used by one handle at a time, in this and in other processes; a cluster is either complete or not there;
//! temporary directories are removed with their handle, or by a later start if their process was killed. Must not touch a
//! directory that holds anything else.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use tempfile::TempDir;

use super::identity::Identity;
use super::lockfile::LockFile;
use crate::error::{Error, Result};

/// All temporary directories of this crate start with it, and nobody else's do.
const TEMPORARY_PREFIX: &str = "rowlock-pg-";

/// A temporary directory younger than this may belong to a process that has not locked it yet.
const SWEEP_AGE: Duration = Duration::from_secs(60);

/// What `sockaddr_un` holds on Linux, less the closing NUL; elsewhere it is a little less.
const SOCKET_PATH_LIMIT: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The directory of a server, locked for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    /// Holds the lock; closing it gives the home free.
    _lock: File,
    /// Removes the directory, if it is temporary.
    temporary: Option<TempDir>,
    /// Whether nobody will want the data after a power cut.
    throwaway: bool,
}

impl Home {
    /// Takes the directory at `path`, making it if it is not there.
    pub(crate) fn kept(path: &Path) -> Result<Home> {
        if !path.exists() {
            // As root, the server's user must be able to pass through, whatever the umask says.
            let mode = if rustix::process::geteuid().is_root() {
                0o711
            } else {
                0o700
            };
            fs::create_dir_all(path).map_err(Error::io("creating", path))?;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
                .map_err(Error::io("protecting", path))?;
        }
        let path = path.canonicalize().map_err(Error::io("opening", path))?;
        let lock = lock_dir(&path).map_err(Error::io("opening", &path))?;
        let lock = lock.ok_or_else(|| Error::InUse {
            path: path.clone(),
            pid: live_server(&path),
        })?;
        let home = Home {
            path,
            _lock: lock,
            temporary: None,
            throwaway: false,
        };
        home.check_content()?;
        Ok(home)
    }

    /// Makes a temporary one.
    pub(crate) fn temporary(identity: &Identity) -> Result<Home> {
        let dir = temporary_dir(identity)?;
        let path = dir.path().to_owned();
        let lock = lock_dir(&path).map_err(Error::io("opening", &path))?;
        let lock = lock.ok_or_else(|| Error::InUse {
            path: path.clone(),
            pid: None,
        })?;
        Ok(Home {
            path,
            _lock: lock,
            temporary: Some(dir),
            throwaway: true,
        })
    }

    /// Makes one at `path` that belongs to `identity` and that somebody else will remove.
    pub(crate) fn handed_over(path: &Path, identity: &Identity) -> Result<Home> {
        identity.create_private_dir(path)?;
        let mut home = Home::kept(path)?;
        home.throwaway = true;
        Ok(home)
    }

    /// Removes the data. This home is locked, so nobody begins with them meanwhile; a server whose parent died may still end.
    pub(crate) fn forget(&self) -> Result<()> {
        if let Some(pid) = live_server(&self.path) {
            return Err(Error::InUse {
                path: self.path.clone(),
                pid: Some(pid),
            });
        }
        let cluster_dir = self.cluster_dir();
        match fs::remove_dir_all(&cluster_dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("removing", cluster_dir)(error))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_throwaway(&self) -> bool {
        self.throwaway
    }

    pub(crate) fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    pub(crate) fn cluster_dir(&self) -> PathBuf {
        self.path.join("cluster")
    }

    /// Where `initdb` works. It becomes `cluster` when all is done, so that a killed `initdb` leaves no half cluster.
    pub(crate) fn unfinished_cluster_dir(&self) -> PathBuf {
        self.path.join("cluster.unfinished")
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.path.join("server.log")
    }

    /// The major version of the cluster, if there is one.
    pub(crate) fn data_major(&self) -> Result<Option<u32>> {
        let file = self.cluster_dir().join("PG_VERSION");
        match fs::read_to_string(&file) {
            Ok(text) => match text.trim().parse() {
                Ok(major) => Ok(Some(major)),
                Err(error) => Err(Error::io("reading the version in", file)(io::Error::new(
                    io::ErrorKind::InvalidData,
                    error,
                ))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("reading", file)(error)),
        }
    }

    fn check_content(&self) -> Result<()> {
        let mut entries = fs::read_dir(&self.path).map_err(Error::io("reading", &self.path))?;
        let is_ours = |name: &str| {
            matches!(
                name,
                "cluster" | "cluster.unfinished" | "server.log" | "initdb.log" | "lost+found"
            )
        };
        let foreign = entries
            .any(|entry| entry.is_ok_and(|entry| !is_ours(&entry.file_name().to_string_lossy())));
        if foreign {
            return Err(Error::ForeignDirectory {
                path: self.path.clone(),
            });
        }
        Ok(())
    }
}

/// The directory of a server's socket.
#[derive(Debug)]
pub(crate) struct SocketDir {
    path: PathBuf,
    /// What goes away with this value: a temporary directory and its lock.
    _temporary: Option<(TempDir, File)>,
}

impl SocketDir {
    /// One that the caller chose: it is made if needed, and stays.
    pub(crate) fn at(path: &Path, identity: &Identity) -> Result<SocketDir> {
        if !path.exists() {
            identity.create_private_dir(path)?;
        }
        let path = path.canonicalize().map_err(Error::io("opening", path))?;
        identity.check_can_enter(&path)?;
        check_socket_path(&path)?;
        Ok(SocketDir {
            path,
            _temporary: None,
        })
    }

    /// One in the server's own temporary home, or in a temporary directory made for it.
    pub(crate) fn temporary(home: &Home, identity: &Identity) -> Result<SocketDir> {
        let (parent, temporary) = if home.is_temporary() {
            (home.path().to_owned(), None)
        } else {
            let dir = temporary_dir(identity)?;
            let lock = lock_dir(dir.path()).map_err(Error::io("opening", dir.path()))?;
            (dir.path().to_owned(), lock.map(|lock| (dir, lock)))
        };
        let path = parent.join("s");
        identity.create_private_dir(&path)?;
        check_socket_path(&path)?;
        Ok(SocketDir {
            path,
            _temporary: temporary,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The directories in which temporary ones can be, best first. The last has a name that is short everywhere.
fn temporary_parents() -> [PathBuf; 2] {
    [std::env::temp_dir(), PathBuf::from("/tmp")]
}

/// The best parent for temporary directories: one that the server's user can enter, and short enough for a socket.
pub(crate) fn temporary_parent(identity: &Identity, deepest: &str) -> Result<PathBuf> {
    let fits = |parent: &Path| -> Result<PathBuf> {
        let parent = parent
            .canonicalize()
            .map_err(Error::io("opening", parent))?;
        identity.check_can_enter(&parent)?;
        check_socket_path(&parent.join(deepest))?;
        Ok(parent)
    };
    let [first, second] = temporary_parents();
    // If neither does, the first one's error is the one to tell: it is the one that somebody chose.
    fits(&first).or_else(|error| fits(&second).map_err(|_| error))
}

fn temporary_dir(identity: &Identity) -> Result<TempDir> {
    let parent = temporary_parent(identity, "rowlock-pg-XXXXXX/s")?;
    sweep(&parent);
    let dir = tempfile::Builder::new()
        .prefix(TEMPORARY_PREFIX)
        .tempdir_in(&parent)
        .map_err(Error::io("creating a directory in", &parent))?;
    let mode = fs::Permissions::from_mode(identity.passage_mode());
    fs::set_permissions(dir.path(), mode).map_err(Error::io("protecting", dir.path()))?;
    Ok(dir)
}

/// Removes temporary directories whose process was killed before it could do so. Best effort: what it cannot remove, it leaves.
fn sweep(parent: &Path) {
    let us = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry
            .file_name()
            .to_string_lossy()
            .starts_with(TEMPORARY_PREFIX)
        {
            continue;
        }
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        let old = metadata
            .modified()
            .ok()
            .and_then(|at| at.elapsed().ok())
            .is_some_and(|age| age > SWEEP_AGE);
        if !metadata.is_dir() || metadata.uid() != us || !old {
            continue;
        }
        // The lock is held while the directory goes, so that two sweepers do not meet in it.
        if let Ok(Some(_lock)) = lock_dir(&path) {
            if live_server(&path).is_none() {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

/// Locks the directory against every other holder; `None` if somebody else has it.
fn lock_dir(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(dir)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The process of the server that works on the cluster in this home, if there is one.
pub(crate) fn live_server(home: &Path) -> Option<i32> {
    let cluster_dir = home.join("cluster");
    let file = LockFile::read(&cluster_dir)?;
    file.is_live(&cluster_dir)
        .then(|| file.pid.as_raw_nonzero().get())
}

fn check_socket_path(dir: &Path) -> Result<()> {
    // The longest that the name gets: Postgres adds the port, and locks `<socket>.lock` beside it, which is no socket.
    let path = dir.join(".s.PGSQL.65535");
    if path.as_os_str().len() > SOCKET_PATH_LIMIT {
        return Err(Error::SocketPathTooLong {
            path,
            limit: SOCKET_PATH_LIMIT,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_used_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::kept(&dir.path().join("home")).unwrap();
        let error = Home::kept(home.path()).unwrap_err();
        assert!(matches!(error, Error::InUse { pid: None, .. }), "{error}");
        let path = home.path().to_owned();
        drop(home);
        Home::kept(&path).unwrap();
    }

    #[test]
    fn a_directory_with_other_things_in_it_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "").unwrap();
        let error = Home::kept(dir.path()).unwrap_err();
        assert!(matches!(error, Error::ForeignDirectory { .. }), "{error}");
    }

    #[test]
    fn too_long_a_socket_path_is_refused_with_its_length() {
        let long = Path::new("/tmp").join("x".repeat(SOCKET_PATH_LIMIT));
        let error = check_socket_path(&long).unwrap_err().to_string();
        assert!(
            error.contains("127 bytes") || !cfg!(target_os = "linux"),
            "{error}"
        );
        check_socket_path(Path::new("/tmp/rowlock-pg-XXXXXX/s")).unwrap();
    }

    #[test]
    fn sweeping_removes_old_and_free_directories_only() {
        let parent = tempfile::tempdir().unwrap();
        let long_ago = std::time::SystemTime::now() - SWEEP_AGE * 2;
        let make = |name: &str, age_it: bool| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            if age_it {
                File::open(&path).unwrap().set_modified(long_ago).unwrap();
            }
            path
        };
        let left_behind = make("rowlock-pg-dead", true);
        let in_use = make("rowlock-pg-alive", true);
        let new = make("rowlock-pg-new", false);
        let foreign = make("somebody-elses", true);
        let lock = lock_dir(&in_use).unwrap().unwrap();

        sweep(parent.path());
        assert!(!left_behind.exists());
        assert!(in_use.exists() && new.exists() && foreign.exists());
        drop(lock);
    }
}
