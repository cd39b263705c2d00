//! One setting as it came out: its path, its value, and where that came from. What `config show` and `config diff` are made of.

use std::fmt;

use serde_json::Value;

/// Where a value came from. Earlier ones win over later ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A flag of the command line.
    Flag(String),
    /// A variable of the environment.
    Environment(String),
    /// A line of the file.
    File(usize),
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::File(line) => write!(f, "line {line}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One setting.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// `worker.concurrency`, `handler."email.welcome".timeout`.
    pub(crate) path: String,
    /// What may be shown: secrets are masked.
    pub(crate) shown: Value,
    /// What two configurations are compared by; may hold secrets and is never shown.
    pub(crate) meaning: String,
    pub(crate) origin: Origin,
}

/// A key as it is written in TOML: bare where it may be.
pub(crate) fn key_text(key: &str) -> String {
    let bare = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare {
        key.to_owned()
    } else {
        Value::from(key).to_string()
    }
}
