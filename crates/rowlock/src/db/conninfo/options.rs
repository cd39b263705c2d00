//! The meaning of single connection options: small types with one reading each.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::ConnInfoError;
use super::secret::Secret;

/// An enum whose variants are the words that a keyword accepts.
macro_rules! word_enum {
    (
        $(#[$meta:meta])* $vis:vis enum $name:ident for $keyword:literal, default $default:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $name {
            /// The word as it is written in a connection string.
            #[must_use]
            $vis fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            pub(super) fn parse(word: &str) -> Result<Self, ConnInfoError> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(ConnInfoError::invalid(
                        $keyword, word, format!("must be one of {}", [$($word),+].join(", ")),
                    )),
                }
            }
        }

        impl Default for $name {
            fn default() -> Self { Self::$default }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.as_str()) }
        }
    };
}

word_enum! {
    /// How much TLS a connection wants; the words and their meaning are libpq's.
    #[non_exhaustive]
    pub enum SslMode for "sslmode", default Prefer {
        /// Never TLS.
        Disable = "disable",
        /// TLS only if the server refuses a plain connection.
        Allow = "allow",
        /// TLS if the server offers it.
        Prefer = "prefer",
        /// Always TLS; the certificate is checked only if a root certificate is there to check it by.
        Require = "require",
        /// Always TLS, and the certificate must be signed by a trusted root.
        VerifyCa = "verify-ca",
        /// As `verify-ca`, and the certificate must be for the host that was asked for.
        VerifyFull = "verify-full",
    }
}

word_enum! {
    /// Which servers of a list will do.
    #[non_exhaustive]
    pub enum TargetSessionAttrs for "target_session_attrs", default Any {
        /// The first that answers.
        Any = "any",
        /// One that is no standby and whose transactions may write by default.
        ReadWrite = "read-write",
        /// One whose transactions may not write by default.
        ReadOnly = "read-only",
        /// One that is no standby.
        Primary = "primary",
        /// A standby.
        Standby = "standby",
        /// A standby if there is one, else any.
        PreferStandby = "prefer-standby",
    }
}

word_enum! {
    /// Whether the password exchange is bound to the TLS connection it runs over.
    pub(crate) enum ChannelBinding for "channel_binding", default Prefer {
        Disable = "disable",
        Prefer = "prefer",
        Require = "require",
    }
}

word_enum! {
    /// In which order hosts and their addresses are tried.
    pub(crate) enum LoadBalanceHosts for "load_balance_hosts", default Disable {
        Disable = "disable",
        Random = "random",
    }
}

/// One place where a server may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: Host,
    /// Where to connect to instead of looking the name up; the name still counts for TLS and the password file.
    pub(crate) hostaddr: Option<IpAddr>,
    pub(crate) port: u16,
    /// Passwords are per endpoint because a password file may hold one for each.
    pub(crate) password: Option<Secret>,
}

/// How a server is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// A host name or an IP address.
    Tcp(String),
    /// The directory of a Unix-domain socket.
    Socket(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Socket(directory) => write!(f, "{}/.s.PGSQL.{}", directory.display(), self.port),
            Host::Tcp(name) if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            Host::Tcp(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// Everything that decides how TLS is set up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TlsSettings {
    pub(crate) mode: SslMode,
    pub(crate) roots: Roots,
    pub(crate) client: Option<ClientCert>,
}

/// Whose signature makes a server's certificate good.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Roots {
    /// Nobody's: the certificate is not checked.
    #[default]
    None,
    /// Those in a PEM file.
    File(PathBuf),
    /// Those that the operating system trusts.
    System,
}

/// The certificate that the client shows, and its key, both PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCert {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// TCP keepalive; `None` leaves a value to the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keepalive {
    pub(crate) idle: Option<Duration>,
    pub(crate) interval: Option<Duration>,
    pub(crate) retries: Option<u32>,
}
