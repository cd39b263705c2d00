//! The one error type of the library: what was being done, to what, and what to do about it.
//!
//! No error shows a password or a payload.

use std::fmt;
use std::sync::Arc;

use crate::db::{ConnectError, describe, is_transient, is_transient_code};

/// A result with Rowlock's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong when talking to the queue. Cheap to clone: one failed batch may have to answer many callers.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that breaks a rule. Nothing was changed.
    #[error(transparent)]
    Invalid(#[from] Invalid),

    /// The connection string could not be read.
    #[error(transparent)]
    ConnInfo(#[from] crate::db::ConnInfoError),

    /// No connection could be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),

    /// A job's payload or result could not be written as JSON, or was not what its type expects.
    #[error("cannot {doing}: {source}")]
    Json {
        /// What was being done.
        doing: String,
        /// What serde said.
        source: Arc<serde_json::Error>,
    },

    /// The schema is not there: `rowlock migrate` (or [`migrate`](crate::Client::migrate)) has not run in this database.
    #[error(
        "the schema {schema:?} is not in this database, or this role may not use it: run `rowlock migrate`, or grant access with \
         `select {schema}.grant_access(...)`"
    )]
    NotMigrated {
        /// The schema that was looked for.
        schema: String,
    },

    /// The schema was migrated by a newer version of Rowlock than this one.
    #[error(
        "the schema {schema:?} is at version {found}, but this build of Rowlock knows versions up to {known}: upgrade this program"
    )]
    SchemaTooNew {
        /// The schema.
        schema: String,
        /// The version in the database.
        found: i32,
        /// The newest version that this build knows.
        known: i32,
    },

    /// The database takes no writes: a standby, or `default_transaction_read_only`.
    #[error(
        "cannot {doing}: the database is read-only (a standby, or default_transaction_read_only is on); connect to the primary, \
         for instance with several hosts and target_session_attrs=read-write"
    )]
    ReadOnly {
        /// What was being done.
        doing: String,
    },

    /// The role lacks a privilege.
    #[error("cannot {doing}: {message}; grant it with `select {schema}.grant_access(...)`")]
    PermissionDenied {
        /// What was being done.
        doing: String,
        /// What the database said.
        message: String,
        /// The schema of the queue.
        schema: String,
    },

    /// The database refused a statement or the connection broke under it.
    #[error("cannot {doing}: {}", said(.source))]
    Database {
        /// What was being done.
        doing: String,
        /// What the driver said.
        source: Arc<tokio_postgres::Error>,
    },

    /// A statement failed inside the caller's own transaction.
    #[error("cannot {doing}: {}", chain(&**.source))]
    Driver {
        /// What was being done.
        doing: String,
        /// What the database answered with, where the driver tells.
        sqlstate: Option<String>,
        /// What the driver said.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },

    /// Something outside of the database could not be written.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: Arc<std::io::Error>,
    },

    /// The lease of the job is gone: it expired and went to somebody else, or the job was cancelled or finished.
    #[error("the lease of job {id} is lost: another attempt has it, or it is finished")]
    LeaseLost {
        /// The job.
        id: i64,
    },

    /// The row of the job is locked by an open transaction.
    #[error("job {id} is locked by an open transaction; try again")]
    Busy {
        /// The job.
        id: i64,
    },

    /// All connections of the client were in use for too long.
    #[error(
        "no connection of this client became free within {waited:?}: allow more with ClientBuilder::connections"
    )]
    NoFreeConnection {
        /// How long the call waited.
        waited: std::time::Duration,
    },

    /// A worker was put together wrongly.
    #[error("{0}")]
    Setup(String),

    /// The client or worker was shut down.
    #[error("cannot {doing}: shut down")]
    Closed {
        /// What was being done.
        doing: String,
    },
}

/// A value that breaks a rule: which value, and which rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} {rule}")]
pub struct Invalid {
    /// The name of the setting or argument.
    pub what: &'static str,
    /// The value, cut to something readable; never a payload.
    pub value: String,
    /// The rule it breaks.
    pub rule: String,
}

impl Invalid {
    pub(crate) fn new(
        what: &'static str,
        value: impl fmt::Display,
        rule: impl Into<String>,
    ) -> Self {
        let value: String = value.to_string().chars().take(60).collect();
        Self {
            what,
            value,
            rule: rule.into(),
        }
    }
}

/// The names of what our functions refuse (`rowlock.refuse`).
const REFUSED: &str = "access archive backoff batch cap concurrency created_before days_ahead delay delay_ms details died_before \
    ended_before error expires_at expires_in_ms fates filter finished_after finished_before from_next host ids \
    job_id jobs key kind kinds lease_ms max_attempts max_bytes max_crashes max_entries max_jobs max_ms \
    max_payload_bytes max_rows max_visits metadata move_limit n name new_value next older_than on_conflict option \
    options outcome paused payload pid place priority progress queue queues rate reason retention retry_ms \
    role_name run_at running setting settings start_at state tag tags timeout_ms token trace unique_key version";

impl Invalid {
    /// Takes apart what our functions said: `what 'value' rule`.
    fn refused(said: &str) -> Self {
        let taken = said.split_once(' ').and_then(|(what, rest)| {
            let what = REFUSED.split(' ').find(|known| *known == what)?;
            let quoted = rest.strip_prefix('E').unwrap_or(rest).strip_prefix('\'')?;
            // A quote that stands twice is one of the value.
            let mut from = 0;
            let end = loop {
                let at = from + quoted[from..].find('\'')?;
                if !quoted[at + 1..].starts_with('\'') {
                    break at;
                }
                from = at + 2;
            };
            Some(Self {
                what,
                value: quoted[..end].replace("''", "'"),
                rule: quoted[end + 1..].trim_start().to_owned(),
            })
        });
        taken.unwrap_or_else(|| Self {
            what: "value",
            value: String::new(),
            rule: said.to_owned(),
        })
    }
}

impl Error {
    /// Whether the same call may succeed later without anything being changed: the connection broke, the server is restarting
    /// or overloaded, two transactions got in each other's way.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect(e) => e.is_retryable(),
            Self::Database { source, .. } => is_transient(source),
            Self::Driver { sqlstate, .. } => sqlstate.as_deref().is_some_and(is_transient_code),
            Self::ReadOnly { .. } | Self::Busy { .. } | Self::NoFreeConnection { .. } => true,
            _ => false,
        }
    }

    /// The SQLSTATE, when the database answered with one.
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Database { source, .. } => source.code().map(|c| c.code()),
            Self::Driver { sqlstate, .. } => sqlstate.as_deref(),
            _ => None,
        }
    }

    /// Sorts a driver's error into the ones that have their own name.
    pub(crate) fn database(
        doing: impl Into<String>,
        schema: &str,
        source: tokio_postgres::Error,
    ) -> Self {
        use tokio_postgres::error::SqlState;
        let doing = doing.into();
        let Some(db) = source.as_db_error() else {
            return Self::Database {
                doing,
                source: Arc::new(source),
            };
        };
        let code = db.code();
        if code == &SqlState::INVALID_PARAMETER_VALUE && db.message().starts_with("rowlock: ") {
            return Self::Invalid(Invalid::refused(&db.message()["rowlock: ".len()..]));
        }
        if code == &SqlState::READ_ONLY_SQL_TRANSACTION {
            return Self::ReadOnly { doing };
        }
        if code == &SqlState::INSUFFICIENT_PRIVILEGE {
            if db.message().contains("for schema") {
                return Self::NotMigrated {
                    schema: schema.to_owned(),
                };
            }
            return Self::PermissionDenied {
                doing,
                message: db.message().to_owned(),
                schema: schema.to_owned(),
            };
        }
        if [
            &SqlState::INVALID_SCHEMA_NAME,
            &SqlState::UNDEFINED_FUNCTION,
            &SqlState::UNDEFINED_TABLE,
        ]
        .contains(&code)
            && db.message().contains(schema)
        {
            return Self::NotMigrated {
                schema: schema.to_owned(),
            };
        }
        Self::Database {
            doing,
            source: Arc::new(source),
        }
    }

    pub(crate) fn json(doing: impl Into<String>, source: serde_json::Error) -> Self {
        Self::Json {
            doing: doing.into(),
            source: Arc::new(source),
        }
    }

    pub(crate) fn driver(doing: impl Into<String>, source: crate::tx::BoxError) -> Self {
        Self::Driver {
            doing: doing.into(),
            sqlstate: crate::tx::sqlstate(&*source),
            source: source.into(),
        }
    }

    /// Whether one statement's data is at fault, so that a batch can be split to find the culprit.
    pub(crate) fn is_bad_data(&self) -> bool {
        match self {
            Self::Invalid(_) | Self::Json { .. } => true,
            Self::Database { source, .. } => match source.code() {
                // 22: data exception, 23: constraint, 54: program limit exceeded
                Some(c) => ["22", "23", "54"].contains(&&c.code()[..2]),
                // The driver could not put a value on the wire.
                None => {
                    !source.is_closed()
                        && std::error::Error::source(source)
                            .is_some_and(|s| !s.is::<std::io::Error>())
                }
            },
            _ => false,
        }
    }
}

/// An error with its causes, each once: many errors already show the next one in their own text.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        let next = e.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = e.source();
    }
    text
}

/// What the server said, with its hint.
fn said(e: &tokio_postgres::Error) -> String {
    match e.as_db_error().and_then(|db| db.hint()) {
        Some(hint) => format!("{}; {hint}", describe(e)),
        None => describe(e),
    }
}
