//! Connection settings: which server, as whom, over what.
//!
//! Promises: reads what libpq users expect (URLs, `keyword=value` strings, environment, password and service files) and
//! gives it libpq's meaning; says what is wrong by value and rule; never prints a password.
//! Must not: open a connection or look a name up. Only `surroundings` touches the process and its files.

mod build;
mod display;
mod endpoints;
mod error;
mod keyvalue;
mod keywords;
mod options;
mod passfile;
mod secret;
mod service;
mod surroundings;
#[cfg(test)]
mod tests;
mod url;

use std::str::FromStr;
use std::time::Duration;

pub use error::ConnInfoError;
pub use keywords::Nearest;
use keywords::Settings;
pub(crate) use options::{
    ChannelBinding, ClientCert, Endpoint, Host, Keepalive, LoadBalanceHosts, Roots, TlsSettings,
};
pub use options::{SslMode, TargetSessionAttrs};
use secret::Secret;
use surroundings::Process;

/// Where the database is and how to get in: what libpq calls a connection string, understood and checked.
///
/// ```
/// use rowlock::ConnInfo;
///
/// let info = ConnInfo::parse("postgres://ann:secret@db.example/app?sslmode=require")?;
/// assert_eq!(info.user(), "ann");
/// assert_eq!(info.dbname(), "app");
/// // Safe to log: postgresql://ann:***@db.example:5432/app?sslmode=require
/// assert!(!info.to_string().contains("secret"));
/// # Ok::<(), rowlock::ConnInfoError>(())
/// ```
///
/// What is not given comes from the environment (`PGHOST`, `PGUSER`, `PGPASSWORD`, `PGSERVICE`...), then from the password
/// file, then from libpq's defaults. Where libpq would wait for ever, the defaults here are those of a queue: 10 s to
/// connect, TCP keepalive after 30 s of silence, and 30 s until unacknowledged data breaks a connection.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnInfo {
    /// The servers to try, in order; never empty.
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) dbname: String,
    pub(crate) user: String,
    pub(crate) application_name: String,
    /// Command-line options for the server's session process.
    pub(crate) options: Option<String>,
    /// How long one server may take to let us in; `None` waits for ever.
    pub(crate) connect_timeout: Option<Duration>,
    /// `None` turns keepalive off.
    pub(crate) keepalive: Option<Keepalive>,
    /// How long sent data may stay unacknowledged; `None` leaves it to the operating system.
    pub(crate) tcp_user_timeout: Option<Duration>,
    pub(crate) tls: TlsSettings,
    pub(crate) channel_binding: ChannelBinding,
    pub(crate) target_session_attrs: TargetSessionAttrs,
    pub(crate) load_balance_hosts: LoadBalanceHosts,
}

impl ConnInfo {
    /// Reads a connection URL or a `keyword=value` string, and fills what it leaves out from the environment.
    ///
    /// # Errors
    ///
    /// [`ConnInfoError`] names the value and the rule it breaks; it never holds a password.
    pub fn parse(text: &str) -> Result<Self, ConnInfoError> {
        let settings = read(text)?;
        Self::from_settings(settings)
    }

    /// Takes everything from the environment, as `psql` does when it is given nothing.
    ///
    /// # Errors
    ///
    /// As for [`ConnInfo::parse`].
    pub fn from_env() -> Result<Self, ConnInfoError> {
        Self::from_settings(Settings::default())
    }

    fn from_settings(settings: Settings) -> Result<Self, ConnInfoError> {
        let built = build::build(settings, &Process)?;
        for warning in &built.warnings {
            tracing::warn!("{warning}");
        }
        Ok(built.info)
    }

    /// The user to log in as.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The database to connect to.
    #[must_use]
    pub fn dbname(&self) -> &str {
        &self.dbname
    }

    /// The name that the session goes by in `pg_stat_activity`.
    #[must_use]
    pub fn application_name(&self) -> &str {
        &self.application_name
    }

    /// How much TLS is wanted.
    #[must_use]
    pub fn ssl_mode(&self) -> SslMode {
        self.tls.mode
    }

    /// The same server under another application name.
    #[must_use]
    pub fn with_application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = name.into();
        self
    }

    /// The same server, another database.
    #[must_use]
    pub fn with_dbname(mut self, dbname: impl Into<String>) -> Self {
        self.dbname = dbname.into();
        self
    }

    /// The same servers, with this password for each of them.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> Self {
        let password = Secret::new(password);
        for endpoint in &mut self.endpoints {
            endpoint.password = Some(password.clone());
        }
        self
    }
}

impl FromStr for ConnInfo {
    type Err = ConnInfoError;

    fn from_str(text: &str) -> Result<Self, ConnInfoError> {
        Self::parse(text)
    }
}

/// The keyword values that a text gives, be it a URL or not.
fn read(text: &str) -> Result<Settings, ConnInfoError> {
    // Files and variables end in newlines. Pairs may not be trimmed: the last blank may be an escaped one.
    if let Some(rest) = url::strip_scheme(text.trim()) {
        return url::parse(rest);
    }
    // A URL for something else would read as one long keyword, with the password in it.
    match text.split_once("://") {
        Some((scheme, _)) if !scheme.contains(['=', ' ']) => Err(ConnInfoError::Scheme(
            if keywords::looks_like_keyword(scheme) {
                format!(" {scheme:?}")
            } else {
                String::new()
            },
        )),
        _ => keyvalue::parse(text),
    }
}

/// Reads a text with the given surroundings; what [`ConnInfo::parse`] does with those of the process.
#[cfg(test)]
fn resolve(
    text: &str,
    around: &dyn surroundings::Surroundings,
) -> Result<build::Built, ConnInfoError> {
    build::build(read(text)?, around)
}

#[cfg(test)]
impl ConnInfo {
    /// Reads a text as if nothing were around: no environment, no files.
    #[track_caller]
    pub(crate) fn for_test(text: &str) -> Self {
        let built = resolve(text, &surroundings::Pretend::new());
        built.unwrap_or_else(|error| panic!("{text}: {error}")).info
    }
}
