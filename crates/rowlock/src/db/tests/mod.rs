//! Tests of this room against real servers. They need PostgreSQL and, for `pooler`, `PgBouncer` on this host.

mod certs;
mod fake;
mod hosts;
mod link;
mod login;
mod pooler;
mod server;
mod tls;

use std::sync::Arc;

use super::connect::{ConnectError, ConnectOptions, Connection, connect};
use super::conninfo::ConnInfo;
use server::Postgres;

impl Postgres {
    /// Settings for this server over TCP, and more of them.
    fn info(&self, more: &str) -> ConnInfo {
        ConnInfo::for_test(&format!(
            "host=localhost hostaddr=127.0.0.1 port={} user=postgres dbname=postgres {more}",
            self.port
        ))
    }

    async fn try_connect(&self, more: &str) -> Result<Connection, ConnectError> {
        connect(&self.info(more), &ConnectOptions::default()).await
    }

    async fn connect(&self, more: &str) -> Connection {
        let outcome = self.try_connect(more).await;
        outcome.unwrap_or_else(|error| panic!("{more}: {error}"))
    }

    async fn refusal(&self, more: &str) -> ConnectError {
        match self.try_connect(more).await {
            Ok(_) => panic!("{more}: connected"),
            Err(error) => error,
        }
    }
}

impl Connection {
    /// The only value of the only row.
    async fn value(&self, sql: &str) -> String {
        let messages = self
            .client
            .simple_query(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        let row = messages.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        row.unwrap_or_else(|| panic!("{sql}: no row")).to_owned()
    }

    async fn is_encrypted(&self) -> bool {
        self.value("select ssl from pg_stat_ssl where pid = pg_backend_pid()")
            .await
            == "t"
    }
}

/// A standby of the shared server, shared as well.
fn shared_standby(primary: &Postgres) -> Arc<Postgres> {
    use std::sync::{Mutex, PoisonError, Weak};
    static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let standby = Arc::new(primary.standby());
        *shared = Arc::downgrade(&standby);
        standby
    })
}
