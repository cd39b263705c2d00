//! Why a connection could not be opened, sorted by what can be done about it.
//!
//! Must not: hold a password, or a driver type.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::time::Duration;

use tokio_postgres::error::{DbError, SqlState};

use crate::db::conninfo::{ConnInfo, TargetSessionAttrs};
use crate::db::tls::{self, TlsError};

/// Why no connection could be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No server could be reached, or those that could were not ready.
    #[error("cannot reach the database: {}", list(.attempts))]
    Unreachable {
        /// Each place that was tried, and why it did not work.
        attempts: Vec<Attempt>,
    },

    /// No server answered in time.
    #[error("the database did not answer within {after:?}: {}", list(.attempts))]
    Timeout {
        /// How long each place was given.
        after: Duration,
        /// Each place that was tried, and why it did not work.
        attempts: Vec<Attempt>,
    },

    /// Servers were reached, but none of the wanted kind.
    #[error("no server is {wanted} (target_session_attrs): {}", list(.attempts))]
    NoMatchingServer {
        /// What was wanted.
        wanted: TargetSessionAttrs,
        /// Each place that was tried, and why it did not work.
        attempts: Vec<Attempt>,
    },

    /// The server does not believe who we are, or does not let that user in from here.
    #[error("{server} does not let user {user:?} in: {reason}")]
    AuthenticationFailed {
        /// The server.
        server: String,
        /// The user that was tried.
        user: String,
        /// What the server said, or what was missing.
        reason: String,
    },

    /// The database is not there.
    #[error("{server} has no database {database:?}; create it, or name another as dbname")]
    DatabaseMissing {
        /// The server.
        server: String,
        /// The database that was asked for.
        database: String,
    },

    /// The user may not use the database.
    #[error("user {user:?} may not connect to database {database:?} of {server}: {reason}")]
    PermissionDenied {
        /// The server.
        server: String,
        /// The user that was tried.
        user: String,
        /// The database that was asked for.
        database: String,
        /// What the server said.
        reason: String,
    },

    /// The server has no connection left to give.
    #[error("{server} has no free connection: {reason}")]
    TooManyConnections {
        /// The server.
        server: String,
        /// What the server said.
        reason: String,
    },

    /// The TLS files cannot be used; nothing was tried.
    #[error("cannot set up TLS: {0}")]
    TlsSetup(#[from] TlsError),

    /// The TLS handshake failed.
    #[error("no TLS with {server}: {reason}")]
    Tls {
        /// The server.
        server: String,
        /// What went wrong.
        reason: String,
    },

    /// The server is too old to hold a queue.
    #[error("{server} runs PostgreSQL {}, at least 14 is needed", version(*.version_num))]
    ServerTooOld {
        /// The server.
        server: String,
        /// Its `server_version_num`.
        version_num: u32,
    },

    /// The server refused for another reason.
    #[error("{server} refused the connection: {reason} (SQLSTATE {code})")]
    Refused {
        /// The server.
        server: String,
        /// The SQLSTATE that it gave.
        code: String,
        /// What it said.
        reason: String,
    },

    /// The connection was opened, but preparing it for use failed.
    #[error("cannot set up the connection to {server}: {reason}")]
    SetUp {
        /// The server.
        server: String,
        /// What failed.
        reason: String,
        /// Whether the same set-up may work later.
        transient: bool,
    },
}

impl ConnectError {
    /// Whether trying again later may help without anybody changing the settings.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Timeout { .. }
            // A failover makes a standby the primary.
            | Self::NoMatchingServer { .. }
            | Self::TooManyConnections { .. } => true,
            Self::Refused { code, .. } => is_transient_code(code),
            Self::SetUp { transient, .. } => *transient,
            Self::AuthenticationFailed { .. }
            | Self::DatabaseMissing { .. }
            | Self::PermissionDenied { .. }
            | Self::TlsSetup(_)
            | Self::Tls { .. }
            | Self::ServerTooOld { .. } => false,
        }
    }
}

/// One place that was tried in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The server, as host and port or as socket.
    pub server: String,
    /// Why it did not work.
    pub reason: String,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.server, self.reason)
    }
}

fn list(attempts: &[Attempt]) -> String {
    let shown: Vec<_> = attempts.iter().map(ToString::to_string).collect();
    shown.join("; ")
}

fn version(version_num: u32) -> String {
    // Before 10 a major version had two parts.
    let (major, rest) = (version_num / 10_000, version_num % 10_000);
    if major >= 10 {
        format!("{major}.{rest}")
    } else {
        format!("{major}.{}", rest / 100)
    }
}

/// What to do about one place that did not work.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another place may work.
    TryNext(Cause),
    /// No other place would: the answer is the same everywhere.
    Stop(ConnectError),
}

#[derive(Debug)]
pub(super) enum Cause {
    Unreachable(String),
    Timeout,
    WrongKind(String),
}

/// Sorts a failed log-in.
pub(super) fn classify(error: &tokio_postgres::Error, server: &str, info: &ConnInfo) -> Failure {
    if let Some(db) = error.as_db_error() {
        return classify_answer(db, server, info);
    }
    let server = server.to_owned();
    match DriverError::of(error) {
        DriverError::Tls(Some(tls_error)) => Failure::Stop(ConnectError::Tls {
            server,
            reason: tls::explain(tls_error, &info.tls),
        }),
        DriverError::Tls(None) => Failure::Stop(ConnectError::Tls { server, reason: cause(error) }),
        DriverError::Authentication => Failure::Stop(ConnectError::AuthenticationFailed {
            server,
            user: info.user.clone(),
            reason: cause(error),
        }),
        DriverError::PasswordMissing => Failure::Stop(ConnectError::AuthenticationFailed {
            server,
            user: info.user.clone(),
            reason: "it asks for a password and none was given (password, PGPASSWORD or a password file)".to_owned(),
        }),
        DriverError::Other => Failure::TryNext(Cause::Unreachable(cause(error))),
    }
}

fn classify_answer(db: &DbError, server: &str, info: &ConnInfo) -> Failure {
    let server = server.to_owned();
    let user = info.user.clone();
    let database = info.dbname.clone();
    let reason = db.message().to_owned();
    let code = db.code();
    // Starting up, shutting down, in recovery: another server of the list may be ready.
    if *code == SqlState::CANNOT_CONNECT_NOW || *code == SqlState::ADMIN_SHUTDOWN {
        return Failure::TryNext(Cause::Unreachable(reason));
    }
    Failure::Stop(if code.code().starts_with("28") {
        ConnectError::AuthenticationFailed {
            server,
            user,
            reason,
        }
    } else if *code == SqlState::INVALID_CATALOG_NAME || is_poolers(db, "no such database") {
        ConnectError::DatabaseMissing { server, database }
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        ConnectError::PermissionDenied {
            server,
            user,
            database,
            reason,
        }
    } else if *code == SqlState::TOO_MANY_CONNECTIONS || is_poolers(db, "no more connections") {
        ConnectError::TooManyConnections { server, reason }
    } else if is_poolers(db, "password authentication failed") || is_poolers(db, "no such user") {
        ConnectError::AuthenticationFailed {
            server,
            user,
            reason,
        }
    } else {
        ConnectError::Refused {
            server,
            code: code.code().to_owned(),
            reason,
        }
    })
}

/// `PgBouncer` gives most of its own errors one SQLSTATE, so only the text tells them apart.
fn is_poolers(db: &DbError, text: &str) -> bool {
    *db.code() == SqlState::PROTOCOL_VIOLATION && db.message().contains(text)
}

/// Whether the server (that is, a pooler) refused the start-up option that marks our session.
pub(super) fn refuses_options(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        // PgBouncer says 08P01 "unsupported startup parameter", RDS Proxy 0A000 "command-line options". The texts are
        // not asked: a second try costs little, and a refusal for another reason will be repeated.
        *code == SqlState::PROTOCOL_VIOLATION || *code == SqlState::FEATURE_NOT_SUPPORTED
    })
}

/// Whether another kind of encryption may be let in where this one was not.
pub(super) fn depends_on_encryption(error: &tokio_postgres::Error) -> bool {
    // 28000 is also the answer of pg_hba.conf. A wrong password (28P01) is not tried twice, lest an account be locked.
    let refused = error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION);
    refused || matches!(DriverError::of(error), DriverError::Tls(_))
}

/// Of the two failures that `allow` and `prefer` can end with, the one that says more.
pub(super) fn more_telling(
    first: tokio_postgres::Error,
    second: tokio_postgres::Error,
) -> tokio_postgres::Error {
    // That there is no TLS either, or that the server insists on it, is only the consequence of the first.
    let no_tls_either = matches!(DriverError::of(&second), DriverError::Tls(None));
    let tls_had_failed = matches!(DriverError::of(&first), DriverError::Tls(_));
    if no_tls_either || (tls_had_failed && depends_on_encryption(&second)) {
        first
    } else {
        second
    }
}

/// Whether a statement that failed like this may work when sent again, on this or on another connection.
pub(crate) fn is_transient(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => is_transient_code(code.code()),
        None => error.is_closed() || find_source::<io::Error>(error).is_some(),
    }
}

/// Connection trouble, serialization, too few resources, an operator's intervention, lock timeouts, system errors.
pub(crate) fn is_transient_code(code: &str) -> bool {
    // 25006, read-only: a failover may be under way.
    ["25006", "55006", "55P03"].contains(&code)
        || ["08", "40", "53", "57", "58"]
            .iter()
            .any(|class| code.starts_with(class))
}

/// The kinds of driver errors that matter here. The driver does not tell them but in words; the tests against real
/// servers hold it to these.
enum DriverError<'a> {
    Tls(Option<&'a rustls::Error>),
    Authentication,
    PasswordMissing,
    Other,
}

impl<'a> DriverError<'a> {
    fn of(error: &'a tokio_postgres::Error) -> Self {
        // Also after the handshake: with TLS 1.3 a server refuses a client certificate only then.
        if let Some(tls_error) = tls_cause(error) {
            return Self::Tls(Some(tls_error));
        }
        match error.to_string().as_str() {
            // A connection that breaks during the handshake says nothing about TLS.
            "error performing TLS handshake" if find_source::<io::Error>(error).is_none() => {
                Self::Tls(None)
            }
            "authentication error" => Self::Authentication,
            "invalid configuration" if cause(error) == "password missing" => Self::PasswordMissing,
            _ => Self::Other,
        }
    }
}

fn tls_cause(error: &tokio_postgres::Error) -> Option<&rustls::Error> {
    let inner = find_source::<io::Error>(error)?.get_ref()?;
    inner.downcast_ref::<rustls::Error>()
}

fn find_source<T: std::error::Error + 'static>(error: &tokio_postgres::Error) -> Option<&T> {
    error.source()?.downcast_ref::<T>()
}

/// The innermost reason: the driver's own text only says in which step it happened.
fn cause(error: &tokio_postgres::Error) -> String {
    error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

/// What a failed statement says, for a log or an error.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        None => match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_say_them() {
        assert_eq!(version(130_014), "13.14");
        assert_eq!(version(90_624), "9.6");
        assert_eq!(version(100_023), "10.23");
    }

    #[test]
    fn only_passing_trouble_is_worth_another_try() {
        for code in [
            "08006", "08P01", "40001", "40P01", "53300", "55P03", "57P01", "58030",
        ] {
            assert!(is_transient_code(code), "{code}");
        }
        for code in [
            "22023", "28P01", "3D000", "42501", "42883", "55000", "XX000", "",
        ] {
            assert!(!is_transient_code(code), "{code}");
        }
    }
}
