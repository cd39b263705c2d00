//! Databases that tests copy, so that what all of them need is done once.
//!
//! Promises: a template is complete or not there; nobody can connect to one, which would make copying it fail. Must not be made
//! on a server that is not ours: nothing would ever remove it there.

use std::hash::{DefaultHasher, Hash, Hasher};

use tokio_postgres::Client;

use super::admin::{EMPTY, create, disconnect_all, drop_database, failed};
use super::name::new_name;
use crate::error::{Error, Result};
use crate::shared::SharedServer;

/// What preparing a database can fail with.
pub(super) type PrepareError = Box<dyn std::error::Error + Send + Sync>;

/// The name of the template for `key`; if it is not there, `prepare` makes it of the empty database at the URL that it gets.
///
/// Others who want the same template wait meanwhile, in this process and in others.
pub(super) async fn ensure<F, P>(
    key: &str,
    admin: &Client,
    server: &SharedServer,
    prepare: F,
) -> Result<String>
where
    F: FnOnce(String) -> P,
    P: Future<Output = Result<(), PrepareError>>,
{
    let (name, lock) = name_and_lock(key);
    let locked = admin
        .batch_execute(&format!("select pg_advisory_lock({lock})"))
        .await;
    locked.map_err(failed("locking template", &name))?;
    let result = find_or_make(&name, admin, server, prepare).await;
    let unlocked = admin
        .batch_execute(&format!("select pg_advisory_unlock({lock})"))
        .await;
    unlocked.map_err(failed("unlocking template", &name))?;
    result.map(|()| name)
}

async fn find_or_make<F, P>(
    name: &str,
    admin: &Client,
    server: &SharedServer,
    prepare: F,
) -> Result<()>
where
    F: FnOnce(String) -> P,
    P: Future<Output = Result<(), PrepareError>>,
{
    let found = admin
        .query("select from pg_database where datname = $1", &[&name])
        .await;
    if !found
        .map_err(failed("looking for template", name))?
        .is_empty()
    {
        return Ok(());
    }
    // Under a name that is swept if this process is killed before the end.
    let unfinished = new_name();
    create(admin, &unfinished, EMPTY, server).await?;
    let url = server.url(&unfinished);
    if let Err(source) = prepare(url.clone()).await {
        let _ = drop_database(&server.admin_url(), &url, &unfinished).await;
        return Err(Error::Database {
            doing: "preparing template",
            database: name.to_owned(),
            source,
        });
    }
    let closed = admin
        .batch_execute(&format!(
            "alter database {unfinished} allow_connections false"
        ))
        .await;
    closed.map_err(failed("closing template", name))?;
    disconnect_all(admin, &unfinished).await;
    let named = admin
        .batch_execute(&format!("alter database {unfinished} rename to {name}"))
        .await;
    named.map_err(failed("naming template", name))
}

/// The name is not that of a test's database, so it is not swept; the lock is a number that only this key has.
fn name_and_lock(key: &str) -> (String, i64) {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let hash = hasher.finish();
    (
        format!("rowlock_template_{hash:016x}"),
        i64::from_ne_bytes(hash.to_ne_bytes()),
    )
}
