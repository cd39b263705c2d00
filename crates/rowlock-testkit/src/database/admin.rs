//! Makes and drops databases, over a connection to another one of the same server.
//!
//! Promises: whatever a test did to its database, dropping it works. Must not be given a name that needs quotes.

use std::time::Duration;

use tokio_postgres::{Client, NoTls};

use crate::error::{Error, Result};
use crate::shared::SharedServer;

/// The longest that a test waits, at its end, for its database to go.
const DROP_TIMEOUT: Duration = Duration::from_secs(20);

/// How often, and how many times, to look whether those who were thrown out have gone.
const DISCONNECT_LOOK_EVERY: Duration = Duration::from_millis(2);
const DISCONNECT_LOOKS: u32 = 50;

/// The template of an empty database. Nobody can be connected to it, which would make copying it fail.
pub(super) const EMPTY: &str = "template0";

/// Makes a database that is a copy of `template`.
pub(super) async fn create(
    admin: &Client,
    name: &str,
    template: &str,
    server: &SharedServer,
) -> Result<()> {
    // Copying the files takes two checkpoints, which cost little without fsync: measured, half the time of the other strategy,
    // which is the default. PostgreSQL 14 has only this one, and no word for it.
    let version = server_version(admin)
        .await
        .map_err(failed("asking for the version of", name))?;
    let strategy = if server.is_ours() && version >= 150_000 {
        "strategy file_copy"
    } else {
        ""
    };
    let create = format!("create database {name} template {template} {strategy}");
    admin
        .batch_execute(&create)
        .await
        .map_err(failed("creating database", name))
}

async fn server_version(admin: &Client) -> Result<i32, tokio_postgres::Error> {
    let row = admin
        .query_one("select current_setting('server_version_num')::int", &[])
        .await?;
    row.try_get(0)
}

/// Drops the database, and first what would hold it.
pub(super) async fn drop_database(admin_url: &str, url: &str, name: &str) -> Result<()> {
    let work = async {
        let admin = connect(admin_url, "postgres").await?;
        disconnect_all(&admin, name).await;
        roll_back_prepared(&admin, url, name).await?;
        let drop_slots = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = $1 and not active";
        admin
            .query(drop_slots, &[&name])
            .await
            .map_err(failed("dropping the replication slots of", name))?;
        admin
            .batch_execute(&format!("drop database if exists {name} with (force)"))
            .await
            .map_err(failed("dropping database", name))
    };
    match tokio::time::timeout(DROP_TIMEOUT, work).await {
        Ok(result) => result,
        Err(elapsed) => Err(Error::Database {
            doing: "dropping database",
            database: name.to_owned(),
            source: elapsed.into(),
        }),
    }
}

/// Throws out whoever is connected. Best effort, for speed: the drop would do it too, and then sleep for 100 ms.
pub(super) async fn disconnect_all(admin: &Client, name: &str) {
    let terminate = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and backend_type = 'client backend'";
    for _ in 0..DISCONNECT_LOOKS {
        match admin.query(terminate, &[&name]).await {
            Ok(still_there) if !still_there.is_empty() => {
                tokio::time::sleep(DISCONNECT_LOOK_EVERY).await;
            }
            _ => return,
        }
    }
}

/// Prepared transactions survive their connections, and a database with one cannot be dropped.
async fn roll_back_prepared(admin: &Client, url: &str, name: &str) -> Result<()> {
    let select = "select quote_literal(gid) from pg_prepared_xacts where database = $1";
    let prepared = admin
        .query(select, &[&name])
        .await
        .map_err(failed("looking for prepared transactions in", name))?;
    if prepared.is_empty() {
        return Ok(());
    }
    let inside = connect(url, name).await?;
    for row in prepared {
        let gid: String = row.get(0);
        let roll_back = format!("rollback prepared {gid}");
        inside
            .batch_execute(&roll_back)
            .await
            .map_err(failed("rolling back prepared transactions in", name))?;
    }
    Ok(())
}

/// Opens a connection. A task of the calling runtime drives it until the client is dropped.
pub(super) async fn connect(url: &str, database: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .map_err(failed("connecting to database", database))?;
    // What ends the connection is told to whoever uses the client next.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// For `map_err` on what the driver says.
pub(super) fn failed(
    doing: &'static str,
    database: &str,
) -> impl FnOnce(tokio_postgres::Error) -> Error {
    let database = database.to_owned();
    move |source| Error::Database {
        doing,
        database,
        source: source.into(),
    }
}
