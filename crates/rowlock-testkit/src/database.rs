//! A database for one test.
//!
//! Promises: it is new and empty, nobody else knows of it, and it goes away when the test ends, also by a panic; what a killed
//! test leaves behind is removed by a later one. Must not touch a database whose name it did not make.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use tokio_postgres::{Client, NoTls};

use crate::error::{Error, Result};
use crate::shared::{SharedServer, shared};

/// All databases of this module start with it. What follows is the time of their birth, in seconds, and what makes them unique.
const PREFIX: &str = "rowlock_test_";

/// No test takes longer than this; a database that is older and that nobody uses was left behind.
const LEFTOVER_AGE_S: u64 = 3600;

/// The longest that a test waits, at its end, for its database to go.
const DROP_TIMEOUT: Duration = Duration::from_secs(20);

/// The schema that Rowlock lives in, unless it is told otherwise.
const DEFAULT_SCHEMA: &str = "rowlock";

/// A fresh database on the [`shared()`] server, for one test. Dropping this drops the database, with whoever is still connected.
///
/// What a killed test leaves behind is dropped by the next process that makes a database; on a server that was named by
/// `ROWLOCK_TEST_DATABASE_URL`, when it is an hour old and nobody is connected to it.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let db = rowlock_testkit::TestDb::new().await?;
/// let client = db.connect().await?;
/// client.batch_execute("create table mine (id int)").await?;
/// # Ok(())
/// # }
/// ```
pub struct TestDb {
    name: String,
    url: String,
    /// Where the database is dropped from.
    admin_url: String,
    schema: String,
    /// Whether the database is gone already.
    closed: bool,
}

impl TestDb {
    /// Makes a database on the [`shared()`] server, starting that if need be.
    pub async fn new() -> Result<TestDb> {
        // The first use in a run starts a server, which blocks for about a second.
        let server = match tokio::task::spawn_blocking(shared).await {
            Ok(server) => server?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let admin = connect(&server.admin_url(), "postgres").await?;
        drop_leftovers_once(&admin, server).await;
        let name = new_name();
        create(&admin, &name, server).await?;
        let url = server.url(&name);
        Ok(TestDb {
            name,
            url,
            admin_url: server.admin_url(),
            schema: DEFAULT_SCHEMA.to_owned(),
            closed: false,
        })
    }

    /// The same database, with another name for the schema that a test should install Rowlock in.
    #[must_use]
    pub fn with_schema(mut self, schema: impl Into<String>) -> TestDb {
        self.schema = schema.into();
        self
    }

    /// The URL of the database.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name of the database.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the schema that a test should install Rowlock in: `rowlock`, unless [`with_schema`](Self::with_schema)
    /// said otherwise. The database does not have it yet.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// Opens a connection to the database. A task of the calling runtime drives it until the client is dropped.
    #[cfg(feature = "tokio-postgres-0_7")]
    pub async fn connect(&self) -> Result<Client> {
        connect(&self.url, &self.name).await
    }

    /// Drops the database now, and tells if that fails. Without it, dropping this value does the same, quietly.
    pub async fn close(mut self) -> Result<()> {
        self.closed = true;
        drop_database(&self.admin_url, &self.url, &self.name).await
    }
}

impl fmt::Debug for TestDb {
    /// Without the URLs, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDb")
            .field("name", &self.name)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        // There may be no runtime here, or one whose only thread is this one.
        let result = on_own_runtime(drop_database(&self.admin_url, &self.url, &self.name));
        if let Err(error) = result {
            // The test's own verdict matters more; a later run removes the database.
            eprintln!("rowlock-testkit: {error}");
        }
    }
}

/// Runs `work` to its end on a thread and a runtime made for it.
fn on_own_runtime(work: impl Future<Output = Result<()>> + Send) -> Result<()> {
    thread::scope(|scope| {
        let run = || match tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        {
            Ok(runtime) => runtime.block_on(work),
            Err(error) => Err(Error::io(
                "starting a runtime for",
                "a database to be dropped",
            )(error)),
        };
        match scope.spawn(run).join() {
            Ok(result) => result,
            Err(_panic) => Ok(()), // it has been printed; a second panic would hide the test's own
        }
    })
}

async fn create(admin: &Client, name: &str, server: &SharedServer) -> Result<()> {
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
    // template0, because nobody can be connected to it, which would make this fail.
    let create = format!("create database {name} template template0 {strategy}");
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
async fn drop_database(admin_url: &str, url: &str, name: &str) -> Result<()> {
    let work = async {
        let admin = connect(admin_url, "postgres").await?;
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

/// Drops the databases that killed tests left behind, once per process. Best effort: the next process tries again.
///
/// They are not only in the way: a prepared transaction or a slot in one of them can make tests in others wait forever.
async fn drop_leftovers_once(admin: &Client, server: &SharedServer) {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let all = "select datname, exists (select from pg_stat_activity a where a.datid = d.oid) \
               from pg_database d where starts_with(datname, $1)";
    let Ok(rows) = admin.query(all, &[&PREFIX]).await else {
        return;
    };
    for row in rows {
        let (name, in_use): (String, bool) = (row.get(0), row.get(1));
        let Some(birth) = Birth::of(&name) else {
            continue;
        };
        // On our own server all names come from this machine, so their processes can be asked for.
        let left_behind = if server.is_ours() {
            birth.process_is_gone()
        } else {
            birth.is_long_ago(now_s()) && !in_use
        };
        if left_behind {
            let _ = drop_database(&server.admin_url(), &server.url(&name), &name).await;
        }
    }
}

/// Names are all lower case letters, digits and `_`, so that they need no quotes.
fn new_name() -> String {
    format!(
        "{PREFIX}{}_{}_{:08x}",
        now_s(),
        std::process::id(),
        rand::random::<u32>()
    )
}

/// What the name of a database of ours tells about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Birth {
    at_s: u64,
    process: i32,
}

impl Birth {
    /// Reads a name made by [`new_name`]; others are nobody's business here.
    fn of(name: &str) -> Option<Birth> {
        if !name
            .chars()
            .all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
        {
            return None;
        }
        let mut parts = name.strip_prefix(PREFIX)?.split('_');
        let birth = Birth {
            at_s: parts.next()?.parse().ok()?,
            process: parts.next()?.parse().ok()?,
        };
        (parts.next()?.len() == 8 && parts.next().is_none()).then_some(birth)
    }

    fn is_long_ago(self, now_s: u64) -> bool {
        self.at_s.saturating_add(LEFTOVER_AGE_S) < now_s
    }

    fn process_is_gone(self) -> bool {
        let process = rustix::process::Pid::from_raw(self.process.max(0));
        process.is_some_and(|process| {
            rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
        })
    }
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

async fn connect(url: &str, database: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .map_err(failed("connecting to database", database))?;
    // What ends the connection is told to whoever uses the client next.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// For `map_err` on what the driver says.
fn failed(doing: &'static str, database: &str) -> impl FnOnce(tokio_postgres::Error) -> Error {
    let database = database.to_owned();
    move |source| Error::Database {
        doing,
        database,
        source: source.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_when_and_by_whom_it_was_made() {
        let (name, now) = (new_name(), now_s());
        let birth = Birth::of(&name).unwrap();
        assert!(!birth.is_long_ago(now));
        assert!(birth.is_long_ago(now + LEFTOVER_AGE_S + 10));
        assert!(!birth.process_is_gone());
        assert_ne!(name, new_name());

        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let process = i32::try_from(ended.id()).unwrap();
        ended.wait().unwrap();
        assert!(Birth { process, ..birth }.process_is_gone());
    }

    #[test]
    fn names_that_others_made_tell_nothing() {
        let foreign = [
            "postgres",
            "rowlock_test_",
            "rowlock_test_production",
            "rowlock_test_1_2",
            "rowlock_test_1_2_\"; drop",
            "rowlock_test_1_2_0000000A",
            "rowlock_test_1_2_00000000_mine",
            "my_rowlock_test_1_2_00000000",
        ];
        for name in foreign {
            assert_eq!(Birth::of(name), None, "{name}");
        }
    }
}
