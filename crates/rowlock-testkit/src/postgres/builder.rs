//! How a private Postgres is asked for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::PrivatePostgres;
use super::find::{self, Installation};
use super::home::{Home, SocketDir};
use super::identity::Identity;
use crate::error::{Error, Result};

/// The time that `initdb`, a start and a stop get, each.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Says what a [`PrivatePostgres`] should be like, and starts it.
///
/// ```no_run
/// # fn main() -> Result<(), rowlock_testkit::Error> {
/// let postgres = rowlock_testkit::PrivatePostgres::builder()
///     .data_dir("./demo-data")
///     .setting("max_connections", "200")
///     .start()?;
/// println!("psql '{}'", postgres.url("postgres"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing runs until `start`"]
pub struct PrivatePostgresBuilder {
    bin_dir: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    fresh: bool,
    socket_dir: Option<PathBuf>,
    settings: Vec<(String, String)>,
    tcp: bool,
    timeout: Duration,
}

impl PrivatePostgresBuilder {
    pub(super) fn new() -> PrivatePostgresBuilder {
        PrivatePostgresBuilder {
            bin_dir: None,
            data_dir: None,
            fresh: false,
            socket_dir: None,
            settings: vec![("timezone".to_owned(), "UTC".to_owned())],
            tcp: false,
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// Uses `initdb` and `postgres` of this directory, and no others.
    ///
    /// Without it: the directory that the environment variable `ROWLOCK_PG_BIN` names; else the first on the `PATH` that holds both;
    /// else where packages put PostgreSQL, the highest major version first.
    pub fn bin_dir(mut self, path: impl AsRef<Path>) -> PrivatePostgresBuilder {
        self.bin_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Keeps the data in this directory, so that the next start with it finds them again.
    ///
    /// The directory is made if it is not there; it must be empty or hold the data of an earlier private Postgres. The data stay
    /// those of the major version that made them: of the versions at hand, that one is used.
    ///
    /// Without it, the data are temporary and removed when the [`PrivatePostgres`] is dropped.
    pub fn data_dir(mut self, path: impl AsRef<Path>) -> PrivatePostgresBuilder {
        self.data_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Whether to begin with empty data, forgetting what an earlier private Postgres left in the [`data_dir`](Self::data_dir).
    ///
    /// Data of a server that still runs, and directories that hold anything else, are refused and not touched.
    pub fn fresh(mut self, fresh: bool) -> PrivatePostgresBuilder {
        self.fresh = fresh;
        self
    }

    /// Puts the socket into this directory, which is made if it is not there.
    ///
    /// Without it, the socket is in a temporary directory with a short name.
    pub fn socket_dir(mut self, path: impl AsRef<Path>) -> PrivatePostgresBuilder {
        self.socket_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Sets a parameter of the server, as in `postgresql.conf`. Of two values for one name, the later counts.
    ///
    /// Where the server listens (`listen_addresses`, `port`, `unix_socket_directories`) is not to be changed this way.
    pub fn setting(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> PrivatePostgresBuilder {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Whether the server waits for the disk. `false` is faster, and loses the data when the *machine* goes down; a killed
    /// *server* recovers either way.
    pub fn fsync(self, on: bool) -> PrivatePostgresBuilder {
        self.setting("fsync", if on { "on" } else { "off" })
    }

    /// Whether the server also listens on a free port of 127.0.0.1.
    ///
    /// Every user of this machine can then connect, without a password and as superuser: this is for tests.
    pub fn tcp(mut self, on: bool) -> PrivatePostgresBuilder {
        self.tcp = on;
        self
    }

    /// The longest that each step may take: making the data, starting, stopping. 60 seconds unless said otherwise.
    pub fn timeout(mut self, timeout: Duration) -> PrivatePostgresBuilder {
        self.timeout = timeout;
        self
    }

    /// Starts the server and waits until it takes connections: about a second with new data, a tenth of that with old.
    ///
    /// This blocks the calling thread and needs no async runtime. In async code, call it in `spawn_blocking` or accept that one thread
    /// of the runtime waits.
    pub fn start(self) -> Result<PrivatePostgres> {
        check_settings(&self.settings)?;
        let (home, identity) = self.home()?;
        let installation = self.installation(&home)?;
        identity.check_can_enter(installation.bin_dir())?;
        identity.check_can_enter(home.path())?;
        let socket_dir = match &self.socket_dir {
            Some(path) => SocketDir::at(path, &identity)?,
            None => SocketDir::temporary(&home, &identity)?,
        };
        PrivatePostgres::start(
            home,
            socket_dir,
            installation,
            identity,
            self.settings,
            self.tcp,
            self.timeout,
        )
    }

    fn home(&self) -> Result<(Home, Identity)> {
        let Some(path) = &self.data_dir else {
            let identity = Identity::choose(None)?;
            return Ok((Home::temporary(&identity)?, identity));
        };
        let home = Home::kept(path)?;
        if self.fresh {
            home.forget()?;
        }
        let cluster_dir = home.cluster_dir();
        let identity = Identity::choose(cluster_dir.exists().then_some(&cluster_dir))?;
        Ok((home, identity))
    }

    fn installation(&self, home: &Home) -> Result<Installation> {
        let data_major = home.data_major()?;
        find::find(
            self.bin_dir.as_deref(),
            data_major.map(|major| (home.path(), major)),
        )
    }
}

/// The server would not start with a bad name, but its own words for it do not help.
pub(crate) fn check_settings(settings: &[(String, String)]) -> Result<()> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
    };
    match settings
        .iter()
        .find(|(name, value)| !is_name(name) || value.contains('\0'))
    {
        Some((name, _)) => Err(Error::BadSetting { name: name.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_settings_are_checked() {
        let check =
            |name: &str, value: &str| check_settings(&[(name.to_owned(), value.to_owned())]);
        check("auto_explain.log_min_duration", "0").unwrap();
        for (name, value) in [
            ("", "1"),
            ("a=b", "1"),
            ("work mem", "1"),
            ("work_mem", "1\0"),
        ] {
            assert!(
                matches!(check(name, value), Err(Error::BadSetting { .. })),
                "{name:?}"
            );
        }
    }
}
