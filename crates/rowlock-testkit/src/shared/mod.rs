//! The server that all tests of a run share.
//!
//! A run is many processes: `cargo test` starts one for each test binary, cargo-nextest one for each test. So the server belongs
//! to none of them. The first process that needs it starts it under a small supervisor (`supervisor.sh`); the others find it
//! through a file in a directory of this user; each holds a shared file lock while it lives. When nobody has held that lock for
//! ten seconds (or `ROWLOCK_TEST_LINGER_S`), the supervisor ends the server and removes its data. The kernel releases the locks of
//! killed processes too, so a run that is killed leaves nothing behind for longer than that.
//!
//! Where the means for it are missing (`flock` of util-linux or busybox), each process gets a server of its own.
//!
//! Promises: a process that has the server keeps it, for as long as it lives. Must not be used to test crashes, or settings of the server: a
//! [`PrivatePostgres`] is for that.

mod attach;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::postgres::PrivatePostgres;
use crate::url::{socket_url, with_dbname};

pub(crate) use attach::Attached;

/// The environment variable that names a server to use instead of an own one.
const URL_VARIABLE: &str = "ROWLOCK_TEST_DATABASE_URL";

/// The settings of the shared server, beside `auto_explain` if the installation has it.
///
/// Its data live for one run, so it need not wait for the disk; the rest makes room for many tests at once and for what some of
/// them need.
const SETTINGS: [(&str, &str); 11] = [
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("max_connections", "400"),
    ("shared_buffers", "128MB"),
    ("max_wal_size", "2GB"),
    ("checkpoint_timeout", "30min"),
    ("wal_level", "logical"),
    ("max_prepared_transactions", "10"),
    ("max_locks_per_transaction", "128"),
    ("max_worker_processes", "16"),
    ("timezone", "UTC"),
];

/// The server that all tests of a run share.
#[derive(Debug)]
pub struct SharedServer {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Shared with the other processes of the run.
    Run(Attached),
    /// This process's own, because sharing is not possible here.
    Own(Box<PrivatePostgres>),
    /// One that was there before, at this URL.
    Existing(String),
}

/// The server that all tests of this run share, started if this is the first use of it.
///
/// The first use in a run takes about a second, the first in a process some milliseconds, and others nothing. It blocks, and
/// needs no async runtime.
///
/// The server ends ten seconds after the last process that used it; the environment variable `ROWLOCK_TEST_LINGER_S` says otherwise for
/// the server that it starts.
///
/// If the environment variable `ROWLOCK_TEST_DATABASE_URL` is set, it names the server: a superuser's URL, or that of a user
/// who may create databases.
pub fn shared() -> Result<&'static SharedServer> {
    static SERVER: Mutex<Option<&'static SharedServer>> = Mutex::new(None);
    let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    match *server {
        Some(server) => Ok(server),
        None => Ok(server.insert(Box::leak(Box::new(SharedServer::find_or_start()?)))),
    }
}

impl SharedServer {
    fn find_or_start() -> Result<SharedServer> {
        if let Some(url) = std::env::var_os(URL_VARIABLE).filter(|url| !url.is_empty()) {
            return existing(url.to_string_lossy().into_owned());
        }
        let kind = if attach::is_possible() {
            Kind::Run(attach::attach(&SETTINGS)?)
        } else {
            let builder = SETTINGS
                .iter()
                .fold(PrivatePostgres::builder(), |builder, (name, value)| {
                    builder.setting(*name, *value)
                });
            Kind::Own(Box::new(builder.start()?))
        };
        Ok(SharedServer { kind })
    }

    /// The URL of a database of this server.
    #[must_use]
    pub fn url(&self, dbname: &str) -> String {
        match &self.kind {
            Kind::Run(attached) => socket_url(attached.socket_dir(), attach::PORT, dbname),
            Kind::Own(postgres) => postgres.url(dbname),
            // It was checked when the server was made.
            Kind::Existing(url) => with_dbname(url, dbname).unwrap_or_else(|_| url.clone()),
        }
    }

    /// The URL of the database from which others are made.
    pub(crate) fn admin_url(&self) -> String {
        match &self.kind {
            Kind::Existing(url) => url.clone(),
            _ => self.url("postgres"),
        }
    }

    /// Whether this crate started the server, so that its settings are known.
    pub(crate) fn is_ours(&self) -> bool {
        !matches!(self.kind, Kind::Existing(_))
    }

    /// The directory of the socket, if this crate started the server.
    #[must_use]
    pub fn socket_dir(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Run(attached) => Some(attached.socket_dir()),
            Kind::Own(postgres) => Some(postgres.socket_dir()),
            Kind::Existing(_) => None,
        }
    }

    /// The file that the server logs to, if this crate started the server.
    #[must_use]
    pub fn log_path(&self) -> Option<PathBuf> {
        match &self.kind {
            Kind::Run(attached) => Some(attached.log_path()),
            Kind::Own(postgres) => Some(postgres.log_path()),
            Kind::Existing(_) => None,
        }
    }
}

fn existing(url: String) -> Result<SharedServer> {
    match with_dbname(&url, "postgres") {
        Ok(_) => Ok(SharedServer {
            kind: Kind::Existing(url),
        }),
        Err(reason) => Err(Error::BadUrl {
            from: URL_VARIABLE,
            reason,
        }),
    }
}
