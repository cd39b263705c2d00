//! What the tests of the worker share: a queue of their own, jobs, signals, and waits that say what they wait for.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rowlock::{BoxError, Client, Job, NewJob, Transaction, Worker, WorkerBuilder, WorkerHandle};
use rowlock_testkit::TestDb;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio_postgres::types::{ToSql, Type};

use crate::support;

/// What happens at once on a quiet machine happens within this time on a busy one.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// A number; its handler may do anything with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) n: i64,
}

impl Job for Note {
    const KIND: &'static str = "note";
    const ALIASES: &'static [&'static str] = &["memo"];
}

pub(super) fn note(n: i64) -> NewJob {
    NewJob::of(&Note { n }).expect("a note is JSON")
}

pub(super) fn notes(n: usize) -> impl Iterator<Item = NewJob> {
    (0..n as i64).map(note)
}

/// Waits for a future, and says what was waited for if it takes too long.
pub(super) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {limit:?} in vain until {what}"),
    }
}

/// A migrated database, a client of it, and a connection to look behind the curtain.
pub(super) struct Bench {
    pub(super) client: Client,
    pub(super) sql: tokio_postgres::Client,
    pub(super) db: TestDb,
}

impl Bench {
    pub(super) async fn new() -> Self {
        let (db, client) = support::queue().await;
        let sql = db.connect().await.expect("a connection to the database");
        Self { client, sql, db }
    }

    /// A worker of the queue `default`. Housekeeping is left out: it is not what is tested here.
    pub(super) fn worker(&self) -> WorkerBuilder {
        Worker::builder(self.client.clone())
            .queue("default")
            .without_maintenance()
    }

    pub(super) async fn enqueue(&self, job: NewJob) -> i64 {
        let enqueued = self.client.enqueue_new(job).await;
        enqueued.expect("the job is enqueued").id.0
    }

    pub(super) async fn enqueue_all(&self, jobs: impl IntoIterator<Item = NewJob>) -> Vec<i64> {
        let enqueued = self.client.enqueue_all(jobs).await;
        let enqueued = enqueued.expect("the jobs are enqueued");
        enqueued.iter().map(|e| e.id.0).collect()
    }

    /// One value of any type, as text.
    pub(super) async fn text(&self, sql: &str) -> String {
        let sql = format!("select coalesce(({sql})::text, 'null')");
        let row = self.sql.query_one(&sql, &[]).await;
        row.unwrap_or_else(|e| panic!("{sql}: {e:?}")).get(0)
    }

    pub(super) async fn number(&self, sql: &str) -> i64 {
        let text = self.text(sql).await;
        text.parse()
            .unwrap_or_else(|_| panic!("{sql} is {text}, which is no number"))
    }

    async fn row(&self, table: &str, id: i64) -> Option<Value> {
        let sql = format!("select to_jsonb(t) from rowlock.{table} t where id = $1");
        let row = self.sql.query_opt(&sql, &[&id]).await;
        row.expect("the table can be read").map(|row| row.get(0))
    }

    /// The live job, if it is live.
    pub(super) async fn live(&self, id: i64) -> Option<Value> {
        self.row("job", id).await
    }

    /// The job in the history.
    pub(super) async fn finished(&self, id: i64) -> Value {
        let row = self.row("finished", id).await;
        match row {
            Some(row) => row,
            None => panic!("job {id} is not in the history; {}", self.state(id).await),
        }
    }

    /// The job among the dead.
    pub(super) async fn dead(&self, id: i64) -> Value {
        let row = self.row("dead", id).await;
        match row {
            Some(row) => row,
            None => panic!("job {id} is not among the dead; {}", self.state(id).await),
        }
    }

    async fn state(&self, id: i64) -> String {
        format!(
            "live: {:?}, finished: {:?}, dead: {:?}",
            self.live(id).await,
            self.row("finished", id).await,
            self.row("dead", id).await
        )
    }

    /// How many jobs are live, done, and dead.
    pub(super) async fn counts(&self) -> (i64, i64, i64) {
        (
            self.number("select count(*) from rowlock.job").await,
            self.number("select count(*) from rowlock.finished where outcome = 'done'")
                .await,
            self.number("select count(*) from rowlock.dead").await,
        )
    }

    /// Every one of `jobs` is in the history as done, once, and nothing else is anywhere.
    pub(super) async fn assert_all_done(&self, jobs: usize) {
        let twice = "select count(*) from (select id from rowlock.finished group by id having count(*) > 1) t";
        assert_eq!(self.number(twice).await, 0, "jobs finished twice");
        let dead = "select jsonb_agg(errors) from (select errors from rowlock.dead limit 3) t";
        assert_eq!(
            self.counts().await,
            (0, jobs as i64, 0),
            "live, done, dead; dead ones: {}",
            self.text(dead).await
        );
    }

    /// For the messages of failed tests: how things stand.
    async fn overview(&self) -> String {
        let live = "select jsonb_agg(to_jsonb(j) - '{errors,payload}'::text[]) from (select * from rowlock.job order by lease_until desc limit 3) j";
        format!(
            "{:?} are live, done and dead at {}; some of the live: {}",
            self.counts().await,
            self.text("select clock_timestamp()").await,
            self.text(live).await
        )
    }

    /// Waits until a query gives this answer.
    pub(super) async fn until(&self, limit: Duration, what: &str, sql: &str, answer: &str) {
        let deadline = Instant::now() + limit;
        loop {
            let now = self.text(sql).await;
            if now == answer {
                return;
            }
            if Instant::now() >= deadline {
                panic!(
                    "waited {limit:?} in vain until {what}: {sql} is {now}, not {answer}; {}",
                    self.overview().await
                );
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Waits until the worker waits for the bell of the queue `default`.
    pub(super) async fn until_armed(&self, worker: &WorkerHandle) {
        let armed = "select pg_sequence_last_value(('rowlock.bell_' || no % 32)::regclass) \
                     > extract(epoch from clock_timestamp()) * 1000 + 500 from rowlock.queue where name = 'default'";
        self.until(SOON, "the worker arms the bell", armed, "true")
            .await;
        assert!(worker.is_listening(), "it has armed, so it must listen");
    }

    /// Keeps all full scans of the queue `default` from happening for as long as this bench lives.
    pub(super) async fn without_sweeps(&self) {
        let lock = "select pg_advisory_lock(hashtextextended('rowlock sweep default', 0))";
        let locked = self.sql.execute(lock, &[]).await;
        locked.expect("the lock is free");
    }

    pub(super) async fn set_queue(&self, settings: Value) {
        let sql = "select rowlock.set_queue('default', $1)";
        let set = self.sql.execute(sql, &[&settings]).await;
        set.expect("the settings are good");
    }

    /// Takes the one job of the queue away from whoever holds it, as a claim after the end of its lease would.
    pub(super) async fn steal(&self) -> i64 {
        self.steal_leased_for(3600).await
    }

    /// As [`steal`](Self::steal), from one whose lease is at most so long.
    pub(super) async fn steal_leased_for(&self, seconds: u32) -> i64 {
        const CLOCK: &str = "create or replace function rowlock.clock() returns timestamptz language sql volatile parallel safe \
                             return clock_timestamp()";
        // Nobody else sees the moved clock.
        let steal = format!(
            "begin; {CLOCK} + interval '{seconds} s'; \
             create temp table stolen on commit preserve rows as select token from rowlock.claim('{{default}}', 1); {CLOCK}; commit"
        );
        let deadline = Instant::now() + SOON;
        loop {
            let stolen = self.sql.batch_execute(&steal).await;
            stolen.expect("the job can be claimed");
            let row = self.sql.query_opt("select token from stolen", &[]).await;
            let dropped = self.sql.batch_execute("drop table stolen").await;
            dropped.expect("the table is ours");
            if let Some(row) = row.expect("the table is ours") {
                return row.get(0);
            }
            // Its row was locked for a moment: its holder is just renewing the lease.
            assert!(Instant::now() < deadline, "there is no job to steal");
        }
    }

    /// Waits until the worker has nothing to do, and stops it.
    pub(super) async fn finish(&self, worker: &WorkerHandle) {
        self.finish_leased(worker).await;
        let leased = "select count(*) from rowlock.job where lease_until <> '-infinity'";
        assert_eq!(self.number(leased).await, 0, "jobs are left leased");
    }

    /// As [`finish`](Self::finish), where somebody else holds a lease.
    pub(super) async fn finish_leased(&self, worker: &WorkerHandle) {
        if tokio::time::timeout(SOON, worker.drained()).await.is_err() {
            panic!(
                "waited {SOON:?} in vain until the queue is drained: {} handled, {} running; {}",
                worker.handled(),
                worker.running(),
                self.overview().await
            );
        }
        let stopped = within(SOON, "the worker stops", worker.shutdown()).await;
        assert_eq!(stopped.unsettled, 0, "{stopped:?}");
    }
}

pub(super) async fn start(builder: WorkerBuilder) -> WorkerHandle {
    let worker = builder.build().expect("the worker is put together well");
    within(SOON, "the worker starts", worker.start())
        .await
        .expect("the worker starts")
}

/// The texts of the errors that a job has collected, oldest first.
pub(super) fn errors(row: &Value) -> Vec<&str> {
    let errors = row["errors"].as_array().map_or(&[][..], Vec::as_slice);
    errors.iter().filter_map(|e| e["error"].as_str()).collect()
}

/// What handlers tell a test, in the order in which they tell it.
#[derive(Debug, Clone)]
pub(super) struct Tally<T = i64>(Arc<watch::Sender<Vec<T>>>);

impl<T: Clone + std::fmt::Debug + Send + Sync + 'static> Tally<T> {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    pub(super) fn add(&self, entry: T) {
        self.0.send_modify(|all| all.push(entry));
    }

    pub(super) fn all(&self) -> Vec<T> {
        self.0.borrow().clone()
    }

    pub(super) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Waits until so many entries are there, and returns them.
    pub(super) async fn reach(&self, n: usize) -> Vec<T> {
        self.reach_within(SOON, n).await
    }

    pub(super) async fn reach_within(&self, limit: Duration, n: usize) -> Vec<T> {
        let mut receiver = self.0.subscribe();
        let wait = receiver.wait_for(|all| all.len() >= n);
        match tokio::time::timeout(limit, wait).await {
            Ok(all) => all.expect("the sender is here").clone(),
            Err(_) => panic!(
                "waited {limit:?} in vain for {n} entries; there are {}, the last: {:?}",
                self.len(),
                self.all().last()
            ),
        }
    }
}

/// Handlers wait here until a test lets them go on.
#[derive(Debug, Clone)]
pub(super) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(super) fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    pub(super) async fn pass(&self) {
        self.0.acquire().await.expect("it is never closed").forget();
    }

    pub(super) fn let_through(&self, n: usize) {
        self.0.add_permits(n);
    }
}

/// How many of something are going on, and the most that ever were.
#[derive(Debug, Clone, Default)]
pub(super) struct Crowd(Arc<Mutex<(usize, usize)>>);

impl Crowd {
    pub(super) fn enter(&self) -> Here {
        let mut counts = self.0.lock().expect("nobody panics here");
        counts.0 += 1;
        counts.1 = counts.1.max(counts.0);
        Here(self.clone())
    }

    pub(super) fn most(&self) -> usize {
        self.0.lock().expect("nobody panics here").1
    }
}

pub(super) struct Here(Crowd);

impl Drop for Here {
    fn drop(&mut self) {
        self.0.0.lock().expect("nobody panics here").0 -= 1;
    }
}

/// The plainest way through the door for transactions of other drivers.
pub(super) struct Tx<'a>(pub(super) tokio_postgres::Transaction<'a>);

impl Transaction for Tx<'_> {
    async fn query_text(
        &mut self,
        sql: &str,
        params: &[Option<&str>],
    ) -> Result<Vec<Vec<Option<String>>>, BoxError> {
        let params: Vec<(&(dyn ToSql + Sync), Type)> = params
            .iter()
            .map(|p| (p as &(dyn ToSql + Sync), Type::TEXT))
            .collect();
        let rows = self.0.query_typed(sql, &params).await?;
        Ok(rows
            .iter()
            .map(|row| (0..row.len()).map(|n| row.get(n)).collect())
            .collect())
    }
}

/// A job of a kind that has no Rust type here.
pub(super) fn raw(kind: &'static str) -> NewJob {
    NewJob::new(kind, &json!({})).expect("an empty object is JSON")
}
