//! Connections: the only room that speaks to the database driver.
//!
//! `conninfo` says which server, as whom, over what; `tls` turns that into encryption; `connect` opens one connection;
//! `supervise` keeps one open.

#[allow(dead_code, reason = "the worker and the client will use it")]
mod connect;
mod conninfo;
#[allow(dead_code, reason = "the worker and the client will use it")]
mod supervise;
#[cfg(test)]
mod tests;
mod tls;

pub use connect::{Attempt, ConnectError};
pub use conninfo::{ConnInfo, ConnInfoError, Nearest, SslMode, TargetSessionAttrs};
pub use tls::TlsError;
