//! Connections: the only room that speaks to the database driver.
//!
//! `conninfo` says which server, as whom, over what; `tls` turns that into encryption; `connect` opens one connection;
//! `supervise` keeps one open; `pool` shares a few; `query` runs a statement on one, `copy` a COPY; `types` are values on the wire.

mod connect;
mod conninfo;
mod copy;
mod pool;
mod query;
mod supervise;
#[cfg(test)]
mod tests;
mod tls;
mod types;

pub use connect::{Attempt, ConnectError};
pub use conninfo::{ConnInfo, ConnInfoError, Nearest, SslMode, TargetSessionAttrs};
pub use tls::TlsError;

pub(crate) use connect::{
    ConnectOptions, Connection, Notification, connect, describe, is_transient, is_transient_code,
};
pub(crate) use copy::CopyIn;
pub(crate) use pool::Pool;
pub(crate) use query::Param;
pub(crate) use supervise::{HookFuture, Link, LinkError, LinkSpec, Live, OnConnect};
pub(crate) use types::{Micros, Place, RawJson};
