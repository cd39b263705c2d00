//! Connections: the only room that speaks to the database driver.
//!
//! `conninfo` says which server, as whom, over what.

mod conninfo;

pub use conninfo::{ConnInfo, ConnInfoError, Nearest, SslMode, TargetSessionAttrs};
