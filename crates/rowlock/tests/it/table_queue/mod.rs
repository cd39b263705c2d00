//! Any table as a queue.

mod crashes;
mod failures;
mod plans;
mod settings;
mod stop;
mod work;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rowlock::{
    Backoff, Client, ConnInfo, OnDone, OnFailed, TableQueue, TableQueueBuilder, TableRow,
};
use rowlock_testkit::TestDb;

/// Far more than anything here takes; a test that hangs fails instead.
const LIMIT: Duration = Duration::from_secs(60);

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work)
        .await
        .expect("nothing happened")
}

#[derive(Debug, Clone, serde::Deserialize)]
struct Item {
    id: i64,
    note: String,
}

const ITEMS: &str = "
create table work_items (
  id         bigint      primary key generated always as identity,
  created_at timestamptz not null default clock_timestamp(),
  status     text        not null default 'pending',
  done_at    timestamptz,
  note       text        not null default ''
);
create index work_items_pending on work_items (created_at, id) where status = 'pending';
create table ledger (item bigint primary key, note text not null);";

/// A database with the queue's schema and a table of somebody's own.
struct Fixture {
    client: Client,
    pg: tokio_postgres::Client,
    /// Last, so that it is dropped last.
    db: TestDb,
}

fn client(url: &str) -> Client {
    let info = ConnInfo::parse(url).unwrap();
    Client::builder().lazy(info).unwrap()
}

impl Fixture {
    async fn new() -> Self {
        let db = TestDb::new().await.unwrap();
        let client = client(db.url());
        client.migrate().await.unwrap();
        let pg = db.connect().await.unwrap();
        pg.batch_execute(ITEMS).await.unwrap();
        Self { client, pg, db }
    }

    /// A client whose sessions have these settings.
    fn client_with(&self, options: &str) -> Client {
        let url = self.db.url();
        let separator = if url.contains('?') { '&' } else { '?' };
        client(&format!("{url}{separator}options={options}"))
    }

    async fn with_items(n: i64) -> Self {
        let fixture = Self::new().await;
        fixture.add(n).await;
        fixture
    }

    async fn add(&self, n: i64) {
        self.sql(&format!(
            "insert into work_items (note) select 'item ' || n from generate_series(1, {n}) n"
        ))
        .await;
    }

    async fn sql(&self, sql: &str) {
        self.pg.batch_execute(sql).await.unwrap();
    }

    async fn number(&self, sql: &str) -> i64 {
        let row = self.pg.query_one(sql, &[]).await;
        row.unwrap_or_else(|e| panic!("{sql}: {e}")).get(0)
    }

    async fn pending(&self) -> i64 {
        self.number("select count(*) from work_items where status = 'pending'")
            .await
    }

    /// Moves the queue's clock to so many seconds from now.
    async fn set_clock(&self, seconds: i64) {
        self.sql(&format!(
            "create or replace function rowlock.clock() returns timestamptz language sql volatile parallel safe
               return clock_timestamp() + interval '{seconds} seconds'"
        ))
        .await;
    }
}

/// Marks items as done, in order.
fn items() -> TableQueueBuilder {
    TableQueue::builder("work_items")
        .pending("status = 'pending'")
        .order_by("created_at, id")
        .on_done(OnDone::set("status = 'done', done_at = now()"))
}

/// Tries again at once, and gives up after so many failures.
fn no_delay(failures: u32) -> OnFailed {
    OnFailed::park_after(failures).backoff(Backoff::fixed(Duration::ZERO).jitter(0.0))
}

/// How often each row was worked.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<i64, usize>>>);

impl Seen {
    /// Notes a row, and tells how often it was seen, this time included.
    fn note(&self, row: &TableRow<Item>) -> usize {
        let mut seen = self.0.lock().unwrap();
        let times = seen.entry(row.data.id).or_default();
        *times += 1;
        *times
    }

    fn times(&self, id: i64) -> usize {
        self.0.lock().unwrap().get(&id).copied().unwrap_or(0)
    }

    fn ids(&self) -> Vec<i64> {
        self.0.lock().unwrap().keys().copied().collect()
    }

    fn all_once(&self) -> bool {
        self.0.lock().unwrap().values().all(|times| *times == 1)
    }
}
