//! Opening one connection: which server, which encryption, straight or through a pooler.
//!
//! Promises: tries the servers as libpq would (order, addresses, fallbacks of `sslmode`, `target_session_attrs`), gives
//! each address `connect_timeout` for everything from the first packet to the end of set-up (and the name lookup as much),
//! and says for each why it did not work.
//! Must not: try again later (`supervise` does), or prepare anything on the connection.
//!
//! A *direct* connection is one whose session is ours alone. Behind a pooler in transaction mode each transaction may run
//! in another session, so that named prepared statements, `LISTEN` and settings are lost between them. To tell, the
//! start-up options set `rowlock.session` to a random value: a pooler refuses the options or does not pass them on. That
//! takes a pooler in session mode for one in transaction mode, which costs a little speed and no correctness.
//!
//! A direct connection also starts with `default_transaction_isolation = read committed`. On others the caller must
//! name the isolation level with each transaction (`BEGIN ISOLATION LEVEL READ COMMITTED`), as a database whose default
//! is stricter would make claims fail.

mod driver;
mod error;
mod login;
mod search;
mod target;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tokio_postgres::{Client, Statement};

use super::conninfo::ConnInfo;
use driver::Driver;
pub use error::{Attempt, ConnectError};
pub(crate) use error::{describe, is_transient, is_transient_code};

/// What a caller wants of a connection beyond its settings.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConnectOptions {
    /// Whether to keep notifications for [`Connection::notifications`]; otherwise they are dropped.
    pub(crate) notifications: bool,
}

/// An open connection. Dropping it closes it once the requests under way are answered.
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// What `LISTEN` brings in; `None` unless asked for, or once taken. Whoever asks must keep reading: it has no limit.
    pub(crate) notifications: Option<mpsc::UnboundedReceiver<Notification>>,
    /// Whether the session is ours alone; see the module's text.
    pub(crate) direct: bool,
    pub(crate) server_version_num: u32,
    /// The server, for logs.
    pub(crate) server: String,
    /// What has been prepared in this session, by its text; only used where it is ours alone.
    pub(super) prepared: Mutex<HashMap<Box<str>, Statement>>,
    /// Whether a transaction was begun and not ended.
    pub(super) in_transaction: AtomicBool,
    /// Whether whoever waits for the answer of a statement is still to get it, or has gone.
    pub(super) unanswered: AtomicBool,
    driver: Driver,
}

/// A message from `NOTIFY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) channel: String,
    pub(crate) payload: String,
}

impl Connection {
    /// Whether it has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.driver.is_closed()
    }

    /// Waits for its end and says why it came.
    pub(crate) async fn closed(&self) -> Arc<str> {
        self.driver.closed().await
    }

    /// Ends it at once; requests under way fail. For a connection that no longer answers.
    pub(crate) fn abort(&self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("server", &self.server)
            .field("direct", &self.direct)
            .field("server_version_num", &self.server_version_num)
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// Opens one connection to the first server that will do.
pub(crate) async fn connect(
    info: &ConnInfo,
    options: &ConnectOptions,
) -> Result<Connection, ConnectError> {
    search::search(info, options).await
}
