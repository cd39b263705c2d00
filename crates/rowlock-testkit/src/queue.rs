//! A queue for one test: what was enqueued, what becomes of it, and what time it is.
//!
//! Promises: real Postgres, a real worker, time that moves only when told to. Must not: stand in for any part of the queue.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use rowlock::{Client, ConnInfo, Job, JobId, Queue, Stopped, Worker, WorkerBuilder};

use crate::database::TestDb;
use crate::error::{Error, Result};

/// A migrated queue in a database of its own, with time under the test's control.
///
/// ```no_run
/// # use rowlock::Job;
/// # #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
/// # struct Welcome { user: i64 }
/// # impl Job for Welcome { const KIND: &'static str = "welcome"; }
/// # async fn sign_up(_: &rowlock::Client) {}
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use rowlock_testkit::TestQueue;
///
/// let queue = TestQueue::new().await?;
/// sign_up(queue.client()).await;
/// queue.assert_enqueued(&Welcome { user: 7 }).await;
///
/// let ran = queue.drain(|worker| worker.handle(async |_: Welcome| {})).await?;
/// assert_eq!(ran.handled, 1);
/// queue.assert_not_enqueued::<Welcome>().await;
/// # Ok(())
/// # }
/// ```
pub struct TestQueue {
    client: Client,
    db: TestDb,
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Fate {
    /// `scheduled`, `ready` or `running` while it lives; `done`, `cancelled`, `expired` or `dead` after.
    pub state: String,
    /// How often it was claimed.
    pub attempt: i32,
    /// How often it failed.
    pub failures: i16,
    /// The newest error.
    pub error: Option<String>,
    /// What its handler returned.
    pub result: Option<serde_json::Value>,
}

impl TestQueue {
    /// Makes a database on the [`shared()`](crate::shared()) server with the queue installed in it.
    pub async fn new() -> Result<TestQueue> {
        // Installing takes longer than copying, so it is done once for all tests of a run, and again when the schema changes.
        let script = Client::builder()
            .lazy(ConnInfo::parse("host=localhost").map_err(rowlock::Error::from)?)?
            .migration_script();
        let mut hasher = DefaultHasher::new();
        script.hash(&mut hasher);
        let install = |url: String| async move {
            Client::builder()
                .lazy(ConnInfo::parse(&url)?)?
                .migrate()
                .await?;
            Ok(())
        };
        let db = TestDb::prepared(&format!("rowlock-{:016x}", hasher.finish()), install).await?;
        let info = ConnInfo::parse(db.url()).map_err(rowlock::Error::from)?;
        let client = Client::builder().schema(db.schema()).lazy(info)?;
        Ok(TestQueue { client, db })
    }

    /// The database and the client apart.
    #[must_use]
    pub fn into_parts(self) -> (TestDb, Client) {
        (self.db, self.client)
    }

    /// A client of the queue, to hand to the code under test.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The database that it is in.
    #[must_use]
    pub fn db(&self) -> &TestDb {
        &self.db
    }

    /// The live jobs of a kind, oldest first.
    pub async fn enqueued<J: Job>(&self) -> Result<Vec<J>> {
        let sql = format!(
            "select payload::text from {}.job where kind = $1 order by id",
            self.db.schema()
        );
        let rows = self.query(&sql, &[&J::KIND]).await?;
        rows.iter()
            .map(|row| serde_json::from_str(row.get(0)).map_err(Error::Payload))
            .collect()
    }

    /// Fails the test unless a live job of this kind has exactly this payload.
    pub async fn assert_enqueued<J: Job + Debug>(&self, wanted: &J) {
        let found = self.enqueued::<J>().await.expect("the jobs can be listed");
        let json = |job: &J| serde_json::to_value(job).expect("a job is JSON");
        assert!(
            found.iter().any(|job| json(job) == json(wanted)),
            "no live job of kind {:?} is {wanted:?}; there are {found:?}",
            J::KIND
        );
    }

    /// Fails the test if a job of this kind is live.
    pub async fn assert_not_enqueued<J: Job + Debug>(&self) {
        let found = self.enqueued::<J>().await.expect("the jobs can be listed");
        assert!(
            found.is_empty(),
            "jobs of kind {:?} are live: {found:?}",
            J::KIND
        );
    }

    /// Runs a worker on all queues until nothing is ready any more. The closure adds the handlers.
    pub async fn drain(
        &self,
        handlers: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    ) -> Result<Stopped> {
        let worker = handlers(
            Worker::builder(self.client.clone())
                .name("test")
                .queue(Queue::all())
                .without_maintenance(),
        );
        Ok(worker.build()?.drain().await?)
    }

    /// Enqueues a job, runs it now, and tells what became of it.
    pub async fn run_now<J: Job>(
        &self,
        job: J,
        handlers: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    ) -> Result<Fate> {
        let id = self.client.enqueue(job).await?.id;
        self.drain(handlers).await?;
        self.fate(id).await?.ok_or(Error::JobGone { id: id.0 })
    }

    /// What became of a job; `None` if there is no trace of it.
    pub async fn fate(&self, id: JobId) -> Result<Option<Fate>> {
        let sql = format!(
            "select state, attempt, failures, errors -> -1 ->> 'error', result::text from {}.find_job($1)",
            self.db.schema()
        );
        let rows = self.query(&sql, &[&id.0]).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let result = row
            .get::<_, Option<&str>>(4)
            .map(serde_json::from_str)
            .transpose()
            .map_err(Error::Payload)?;
        Ok(Some(Fate {
            state: row.get(0),
            attempt: row.get(1),
            failures: row.get(2),
            error: row.get(3),
            result,
        }))
    }

    /// Moves the queue's clock to `ahead` of the real one: jobs become due, leases run out. Everything in Rowlock asks this one clock.
    pub async fn set_clock_ahead(&self, ahead: Duration) -> Result<()> {
        let schema = self.db.schema();
        let script = format!(
            "create or replace function {schema}.clock() returns timestamptz language sql volatile parallel safe
               return clock_timestamp() + interval '{} microseconds';
             select pg_notify('{schema}', 'rewind ' || name) from {schema}.queue",
            ahead.as_micros()
        );
        let client = self.db.connect().await?;
        client.batch_execute(&script).await.map_err(Error::Query)
    }

    async fn query(
        &self,
        sql: &str,
        params: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>> {
        self.db
            .connect()
            .await?
            .query(sql, params)
            .await
            .map_err(Error::Query)
    }
}

impl Debug for TestQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestQueue")
            .field("db", &self.db)
            .finish_non_exhaustive()
    }
}

impl From<rowlock::Error> for Error {
    fn from(error: rowlock::Error) -> Self {
        Error::Queue(error)
    }
}
