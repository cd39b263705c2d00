//! A database for one test.
//!
//! Promises: it is new, nobody else knows of it, and it goes away when the test ends, also by a panic; what a killed test leaves
//! behind is removed by a later one. Must not touch a database whose name it did not make.

mod admin;
mod leftovers;
mod name;
mod template;

use std::fmt;
use std::future::Future;
use std::thread;

use tokio_postgres::Client;

use admin::{EMPTY, drop_database};
use leftovers::drop_leftovers_once;
use name::new_name;

use crate::error::{Error, Result};
use crate::shared::{SharedServer, shared};

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
    /// Makes an empty database on the [`shared()`] server, starting that if need be.
    pub async fn new() -> Result<TestDb> {
        let (server, admin) = server_and_admin().await?;
        TestDb::create(server, &admin, EMPTY).await
    }

    /// Makes a database that is a copy of one that `prepare` made, given the URL of an empty one.
    ///
    /// `prepare` runs once for each `key` and run, not once for each test: a copy takes as long as an empty database does. The key must
    /// change when `prepare` does, so let it hold the text of what is executed, or a digest of it.
    ///
    /// On a server that was named by `ROWLOCK_TEST_DATABASE_URL`, `prepare` runs for each database.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use rowlock_testkit::TestDb;
    ///
    /// const SCHEMA: &str = "create table customer (id bigint primary key)";
    ///
    /// let db = TestDb::prepared(SCHEMA, |url| async move {
    ///     let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    ///     tokio::spawn(connection);
    ///     client.batch_execute(SCHEMA).await?;
    ///     Ok(())
    /// });
    /// let db = db.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn prepared<F, P>(key: &str, prepare: F) -> Result<TestDb>
    where
        F: FnOnce(String) -> P,
        P: Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (server, admin) = server_and_admin().await?;
        if server.is_ours() {
            let template = template::ensure(key, &admin, server, prepare).await?;
            return TestDb::create(server, &admin, &template).await;
        }
        let db = TestDb::create(server, &admin, EMPTY).await?;
        let failed = |source| Error::Database {
            doing: "preparing database",
            database: db.name.clone(),
            source,
        };
        prepare(db.url.clone()).await.map_err(failed)?;
        Ok(db)
    }

    async fn create(server: &SharedServer, admin: &Client, template: &str) -> Result<TestDb> {
        let name = new_name();
        admin::create(admin, &name, template, server).await?;
        let (url, admin_url) = (server.url(&name), server.admin_url());
        Ok(TestDb {
            name,
            url,
            admin_url,
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
        admin::connect(&self.url, &self.name).await
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

/// The server, and a connection to it from which databases are made.
async fn server_and_admin() -> Result<(&'static SharedServer, Client)> {
    // The first use in a run starts a server, which blocks for about a second.
    let server = match tokio::task::spawn_blocking(shared).await {
        Ok(server) => server?,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    let admin = admin::connect(&server.admin_url(), "postgres").await?;
    drop_leftovers_once(&admin, server).await;
    Ok((server, admin))
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
