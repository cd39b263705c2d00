//! The client: the way to a queue for those who enqueue and those who manage.
//!
//! Cheap to clone; all clones share a few connections. It validates before it sends, and never logs a payload.

use std::sync::Arc;
use std::time::Duration;

use crate::batcher::Batcher;
use crate::bulk::Turns;
use crate::db::{ConnInfo, Connection, Param, Pool};
use crate::enqueue::{Enqueue, EnqueueMany};
use crate::error::{Error, Result};
use crate::job::{Job, NewJob};
use crate::migrate::{self, MigrationStatus};
use crate::schema::Schema;

/// A handle on one queue schema in one database.
///
/// ```no_run
/// # async fn f() -> rowlock::Result<()> {
/// # #[derive(serde::Serialize, serde::Deserialize, rowlock::Job)]
/// # #[job(kind = "email")]
/// # struct Email { to: String }
/// let client = rowlock::Client::connect("postgres://localhost/app").await?;
/// let enqueued = client.enqueue(Email { to: "a@example.com".into() }).queue("mail").await?;
/// println!("job {} is on its way", enqueued.id);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    info: ConnInfo,
    schema: Schema,
    pool: Pool,
    batcher: Batcher,
    load_turns: Turns,
}

/// Settings of a [`Client`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until connect is called"]
pub struct ClientBuilder {
    schema: Result<Schema, crate::Invalid>,
    connections_max: usize,
    wait: Duration,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            schema: Ok(Schema::default()),
            connections_max: 8,
            wait: Duration::from_secs(30),
        }
    }
}

impl ClientBuilder {
    /// The schema of the queue: `rowlock` by default.
    pub fn schema(mut self, name: &str) -> Self {
        self.schema = Schema::new(name);
        self
    }

    /// How many connections the client opens at most (8 by default). It opens them as it needs them.
    pub fn connections(mut self, at_most: usize) -> Self {
        self.connections_max = at_most.max(1);
        self
    }

    /// How long a call waits for a connection to become free (30 s by default).
    pub fn wait(mut self, at_most: Duration) -> Self {
        self.wait = at_most;
        self
    }

    /// Connects, and checks that the database holds the schema in the version that this build knows.
    pub async fn connect(self, conninfo: &str) -> Result<Client> {
        let client = self.lazy(ConnInfo::parse(conninfo)?)?;
        client.check().await?;
        Ok(client)
    }

    /// A client that has not connected yet: for one that migrates first, or that comes up before its database.
    pub fn lazy(self, info: ConnInfo) -> Result<Client> {
        let schema = self.schema?;
        let pool = Pool::new(info.clone(), self.connections_max, self.wait);
        let batcher = Batcher::new(pool.clone(), schema.clone());
        Ok(Client {
            inner: Arc::new(Inner {
                info,
                schema,
                pool,
                batcher,
                load_turns: Turns::new(),
            }),
        })
    }
}

impl Client {
    /// Connects to the queue in schema `rowlock` of a database, given as libpq takes it (URL or keywords; what is missing comes
    /// from the `PG*` environment).
    pub async fn connect(conninfo: &str) -> Result<Self> {
        Self::builder().connect(conninfo).await
    }

    /// As [`connect`](Self::connect), and installs the schema or brings it up to date first.
    pub async fn connect_and_migrate(conninfo: &str) -> Result<Self> {
        let client = Self::builder().lazy(ConnInfo::parse(conninfo)?)?;
        client.migrate().await?;
        Ok(client)
    }

    /// A client with other settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Enqueues a job when the returned builder is awaited. The answer comes when the job is durable.
    ///
    /// Calls that are under way at the same time share statements, and so commits.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a job is given away, as it is with enqueue_many"
    )]
    pub fn enqueue<J: Job>(&self, job: J) -> Enqueue<'_> {
        Enqueue::new(self, NewJob::of(&job))
    }

    /// Enqueues a job of a kind known by name.
    pub fn enqueue_new(&self, job: NewJob) -> Enqueue<'_> {
        Enqueue::new(self, Ok(job))
    }

    /// Enqueues many jobs: all or none, in one transaction. Awaiting the returned value gives the answers in the same order.
    pub fn enqueue_many<J: Job>(&self, jobs: impl IntoIterator<Item = J>) -> EnqueueMany<'_> {
        EnqueueMany::new(self, jobs.into_iter().map(|job| NewJob::of(&job)).collect())
    }

    /// As [`enqueue_many`](Self::enqueue_many), for jobs that each have options of their own.
    pub fn enqueue_all(&self, jobs: impl IntoIterator<Item = NewJob>) -> EnqueueMany<'_> {
        EnqueueMany::new(self, Ok(jobs.into_iter().collect()))
    }

    /// Loads any number of jobs by binary COPY: all or none. The fastest way in; answers only how many there were.
    ///
    /// Where the server is on the same machine, as many load at once as it has cores; one more waits for its turn, two seconds at most.
    pub async fn bulk(&self, jobs: impl IntoIterator<Item = NewJob>) -> Result<u64> {
        crate::bulk::load(self, jobs.into_iter()).await
    }

    /// Brings the schema to the version of this build; harmless when there is nothing to do. Returns how it stood before.
    pub async fn migrate(&self) -> Result<MigrationStatus> {
        migrate::migrate(&self.inner.info, &self.inner.schema).await
    }

    /// How the schema stands compared with this build.
    pub async fn migration_status(&self) -> Result<MigrationStatus> {
        migrate::status(&self.inner.info, &self.inner.schema).await
    }

    /// The migration as an SQL script, for those who hand it to somebody else to run.
    pub fn migration_script(&self) -> String {
        migrate::script(&self.inner.schema)
    }

    /// Checks that the database can be reached and holds the schema in a version that this build knows.
    pub async fn check(&self) -> Result<()> {
        migrate::check(&*self.connection().await?, &self.inner.schema).await
    }

    /// The schema of the queue.
    pub fn schema(&self) -> &Schema {
        &self.inner.schema
    }

    /// Where this client connects to.
    pub fn conninfo(&self) -> &ConnInfo {
        &self.inner.info
    }

    /// Runs a statement whose parameters and columns are all `text`, in which `rowlock.` stands for the schema. For the program, which
    /// reads what the library does not offer; `sql` must be one of a bounded set of texts.
    #[doc(hidden)]
    pub async fn query_text(
        &self,
        doing: &str,
        sql: &str,
        params: &[Option<&str>],
    ) -> Result<Vec<Vec<Option<String>>>> {
        let params: Vec<Param<'_>> = params
            .iter()
            .map(|param| {
                (
                    param as &(dyn tokio_postgres::types::ToSql + Sync),
                    tokio_postgres::types::Type::TEXT,
                )
            })
            .collect();
        let rows = self.rows(doing, sql, &params).await?;
        let text = |row: &tokio_postgres::Row| {
            (0..row.len())
                .map(|n| row.try_get(n))
                .collect::<Result<_, _>>()
        };
        rows.iter()
            .map(text)
            .collect::<Result<_, _>>()
            .map_err(|e| Error::database(doing, self.inner.schema.as_str(), e))
    }

    pub(crate) fn batcher(&self) -> &Batcher {
        &self.inner.batcher
    }

    pub(crate) fn load_turns(&self) -> &Turns {
        &self.inner.load_turns
    }

    pub(crate) async fn connection(
        &self,
    ) -> Result<impl std::ops::Deref<Target = Connection> + use<>> {
        self.inner.pool.get().await
    }

    /// Runs a statement of ours, in which `rowlock.` stands for the schema, on any of the client's connections.
    pub(crate) async fn rows(
        &self,
        doing: &str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<tokio_postgres::Row>> {
        let sql = self.inner.schema.sql(sql);
        let connection = self.connection().await?;
        connection
            .rows(&sql, params)
            .await
            .map_err(|e| Error::database(doing, self.inner.schema.as_str(), e))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("database", &self.inner.info)
            .field("schema", &self.inner.schema)
            .finish_non_exhaustive()
    }
}
