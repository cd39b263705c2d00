//! What can be wrong with connection settings.
//!
//! Every message names the value and the rule it breaks. None of them may ever hold a password, so values that might be
//! (part of) one are described instead of shown.

use std::path::PathBuf;

use super::keywords::Nearest;

/// Why connection settings could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnInfoError {
    /// A keyword that nobody knows.
    #[error("unknown connection keyword {keyword:?}{nearest}")]
    UnknownKeyword {
        /// The keyword as it was written.
        keyword: String,
        /// The known keyword that looks most like it, if any does.
        nearest: Nearest,
    },

    /// A keyword that libpq knows and this library does not honour.
    #[error("connection keyword {keyword:?} is not supported: {reason}")]
    UnsupportedKeyword {
        /// The keyword as it was written.
        keyword: String,
        /// Why it is not supported, or what to use instead.
        reason: &'static str,
    },

    /// A value that breaks the rule of its keyword.
    #[error("invalid value {value} for {keyword}: {rule}")]
    InvalidValue {
        /// The keyword whose value is wrong.
        keyword: &'static str,
        /// The value, quoted, or a description of it when it might hold a secret.
        value: String,
        /// What a right value looks like.
        rule: String,
    },

    /// Two settings that contradict each other.
    #[error("{0}")]
    Conflict(String),

    /// A `keyword=value` string that does not read as one. The text itself is not shown: it may hold a password.
    #[error("cannot read the connection string as keyword=value pairs: {0}")]
    KeyValue(String),

    /// A connection URL that does not read as one.
    #[error("cannot read the connection URL: {0}")]
    Url(String),

    /// An `@` where none may be, which is almost always a password that was not percent-encoded.
    #[error(
        "cannot read the connection URL: it has an \"@\" outside of user and password; if the password contains \
         any of @ / : % it must be percent-encoded (\"@\" is %40, \"/\" is %2F, \":\" is %3A, \"%\" is %25)"
    )]
    UnencodedPassword,

    /// Text that starts with a scheme other than `postgres://` or `postgresql://`.
    #[error("unknown URL scheme{0}: a connection URL starts with postgres:// or postgresql://")]
    Scheme(String),

    /// A service name that no service file defines.
    #[error("connection service {service:?} is not defined in {}", list(.searched))]
    UnknownService {
        /// The service that was asked for.
        service: String,
        /// The files that were searched.
        searched: Vec<PathBuf>,
    },

    /// A service file with a line that cannot be understood.
    #[error("{}, line {line}: {problem}", .file.display())]
    ServiceFile {
        /// The file.
        file: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// What is wrong there.
        problem: String,
    },

    /// A file that was named but cannot be read.
    #[error("cannot read {what} {}: {reason}", .file.display())]
    UnreadableFile {
        /// What the file is for.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        reason: String,
    },

    /// No user was given and the operating system does not tell one.
    #[error(
        "no user name: give one as user=..., in the URL, or as PGUSER (the operating system did not tell one)"
    )]
    NoUser,
}

impl ConnInfoError {
    pub(super) fn invalid(keyword: &'static str, value: &str, rule: impl Into<String>) -> Self {
        Self::InvalidValue {
            keyword,
            value: show(value),
            rule: rule.into(),
        }
    }
}

/// Longest value that an error repeats.
const SHOWN_CHARS: usize = 60;

/// A value as an error may show it: quoted, cut, and hidden if it swallowed a password
/// (`port=5432password=x` is one missing space away from the right thing).
fn show(value: &str) -> String {
    if value.to_ascii_lowercase().contains("pass") {
        return "(not shown, it may hold a password)".to_owned();
    }
    if value.chars().count() > SHOWN_CHARS {
        let cut: String = value.chars().take(SHOWN_CHARS).collect();
        return format!("{cut:?}...");
    }
    format!("{value:?}")
}

fn list(files: &[PathBuf]) -> String {
    if files.is_empty() {
        return "any service file (none exists; PGSERVICEFILE names one)".to_owned();
    }
    let names: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
    names.join(" or ")
}
