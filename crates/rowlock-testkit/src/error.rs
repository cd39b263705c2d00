//! The one error type of this crate.
//!
//! Every variant says what was being done, to what, and what to do about it. It never carries a password.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong while a test environment is being set up or torn down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The queue refused something.
    #[error(transparent)]
    Queue(rowlock::Error),

    /// A look into the test's database failed.
    #[error("cannot look into the test's database: {0}")]
    Query(#[source] tokio_postgres::Error),

    /// A payload or result is not what was expected.
    #[error("cannot read a payload or result: {0}")]
    Payload(#[source] serde_json::Error),

    /// A job left no trace: its queue keeps no history.
    #[error("job {id} left no trace: its queue keeps no history (retention 0)")]
    JobGone {
        /// The job.
        id: i64,
    },

    /// No PostgreSQL programs on this machine.
    #[error(
        "no PostgreSQL found: looked for `initdb` and `postgres` in {}; install PostgreSQL 14 or newer, or set ROWLOCK_PG_BIN to \
         the directory that holds them",
        list(.searched)
    )]
    NoPostgres {
        /// The directories that were searched.
        searched: Vec<PathBuf>,
    },

    /// The directory that was named does not hold the PostgreSQL programs.
    #[error("{} ({named_by}) has no program `{missing}`; name the directory that holds both `initdb` and `postgres`", .dir.display())]
    NotABinDir {
        /// The directory.
        dir: PathBuf,
        /// Who named it: the builder or the environment.
        named_by: &'static str,
        /// The program that is not there.
        missing: &'static str,
    },

    /// The PostgreSQL programs are of a version that Rowlock does not work with.
    #[error("{} is PostgreSQL {major}; Rowlock needs 14 or newer", .bin_dir.display())]
    UnsupportedVersion {
        /// Where the programs are.
        bin_dir: PathBuf,
        /// Their major version.
        major: u32,
    },

    /// `postgres --version` said something unknown.
    #[error("asking {} for its version: it answered {answer:?}; is it PostgreSQL?", .program.display())]
    UnknownVersion {
        /// The program.
        program: PathBuf,
        /// What it wrote.
        answer: String,
    },

    /// Postgres refuses to run as root, and there is nobody else to run it as.
    #[error(
        "Postgres does not run as root, and there is neither a user `postgres` nor a user `nobody`; create one, or run as another user"
    )]
    NoUnprivilegedUser,

    /// The user that the server runs as cannot get to a directory.
    #[error(
        "user `{user}` (Postgres does not run as root) cannot enter {}, which is on the way to {}; choose another directory, or \
         `chmod o+x` that one",
        .blocked_at.display(), .path.display()
    )]
    CannotEnter {
        /// The user.
        user: String,
        /// Where it should get to.
        path: PathBuf,
        /// The directory that stops it.
        blocked_at: PathBuf,
    },

    /// The directory for the data holds something else.
    #[error("{} is not empty and holds no data of a private Postgres; choose an empty or a new directory", .path.display())]
    ForeignDirectory {
        /// The directory.
        path: PathBuf,
    },

    /// The data belong to another user.
    #[error("{} belongs to user id {owner}, and this process runs as {us}; run as its owner, or choose another directory", .path.display())]
    NotOwner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        us: u32,
    },

    /// Another server, or another process about to start one, works on the data.
    #[error(
        "{} is in use{}; stop that one, or choose another directory",
        .path.display(), .pid.map(|pid| format!(" by a Postgres server (process {pid})")).unwrap_or_default()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The server's process, if there is one already.
        pid: Option<i32>,
    },

    /// The data were written by a major version that is not at hand.
    #[error(
        "the data in {} are of PostgreSQL {data_major}, but {}; install PostgreSQL {data_major} or choose another directory",
        .path.display(), installed(.found)
    )]
    OtherMajor {
        /// The directory.
        path: PathBuf,
        /// The major version that wrote the data.
        data_major: u32,
        /// The major versions that were found.
        found: Vec<u32>,
    },

    /// A Unix socket in this directory would have too long a name.
    #[error("the socket {} has {} bytes, and the system allows {limit}; choose a directory with a shorter name", .path.display(), .path.as_os_str().len())]
    SocketPathTooLong {
        /// The socket.
        path: PathBuf,
        /// The limit of the system.
        limit: usize,
    },

    /// A setting whose name cannot be one.
    #[error(
        "`{name}` cannot be the name of a PostgreSQL setting; names have letters, digits, `_` and `.`, and values no NUL"
    )]
    BadSetting {
        /// The name.
        name: String,
    },

    /// A file or directory could not be made, read or removed.
    #[error("{doing} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },

    /// A program could not be run.
    #[error("running {}: {source}", .program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },

    /// `initdb` failed.
    #[error("initdb could not make a cluster in {} ({status}); it wrote:\n{output}", .path.display())]
    Initdb {
        /// The directory.
        path: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it wrote.
        output: String,
    },

    /// The server ended instead of becoming ready.
    #[error("the Postgres server on {} did not start ({status}); the end of its log:\n{log}", .path.display())]
    StartFailed {
        /// The directory of its data.
        path: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },

    /// Something took too long and was given up.
    #[error("{doing} {}: not done after {waited:?}; the end of the log:\n{log}", .path.display())]
    TimedOut {
        /// What was being waited for.
        doing: &'static str,
        /// The directory of the data.
        path: PathBuf,
        /// For how long.
        waited: Duration,
        /// The end of the log.
        log: String,
    },

    /// The address of a database could not be understood.
    #[error(
        "the database URL in {from} cannot be used: {reason}; write it as postgresql://user@host:port/database"
    )]
    BadUrl {
        /// Where the URL comes from.
        from: &'static str,
        /// What is wrong with it. Not the URL, which may hold a password.
        reason: String,
    },

    /// A statement, or the connection for it, failed.
    #[error("{doing} `{database}`: {}", with_causes(.source.as_ref()))]
    Database {
        /// What was being done.
        doing: &'static str,
        /// To which database.
        database: String,
        /// What the driver or the server said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A socket could not be opened.
    #[error("{doing} {address}: {source}")]
    Socket {
        /// What was being done.
        doing: &'static str,
        /// The address.
        address: String,
        /// Why not.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether the same call may succeed a little later, with nothing changed by anyone.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::InUse { .. } | Error::TimedOut { .. } => true,
            Error::Database { source, .. } => source.downcast_ref().is_some_and(is_passing),
            _ => false,
        }
    }

    /// For `map_err` on the functions of `std::fs`.
    pub(crate) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io {
            doing,
            path,
            source,
        }
    }
}

/// Whether this is about the connection or the state of the server, and not about the statement.
fn is_passing(error: &tokio_postgres::Error) -> bool {
    // Too few resources, an operator's intervention, a conflict between transactions, an object in use.
    let classes = ["53", "57", "40", "55"];
    error.as_db_error().is_none_or(|error| {
        classes
            .iter()
            .any(|class| error.code().code().starts_with(class))
    })
}

/// The driver's own words are only "db error"; what the server said is the cause.
pub(crate) fn with_causes(error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn list(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return "no directory at all (PATH is empty)".to_owned();
    }
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

fn installed(majors: &[u32]) -> String {
    match majors {
        [] => "no PostgreSQL is installed".to_owned(),
        [one] => format!("only PostgreSQL {one} is at hand"),
        many => {
            let many = many
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(", ");
            format!("only PostgreSQL {many} are at hand")
        }
    }
}
