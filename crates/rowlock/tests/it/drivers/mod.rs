//! Enqueue in the caller's own transaction: one suite, run against every driver.
//!
//! What a test looks at afterwards, it looks at through a connection of its own.

// Without any driver there is nobody to run the suite.
#![cfg_attr(
    not(any(
        feature = "tokio-postgres-0_7",
        feature = "sqlx-0_8",
        feature = "sqlx-0_9",
        feature = "diesel-async-0_9",
        feature = "sea-orm-2"
    )),
    allow(dead_code, unused_imports, unused_macros)
)]

use rowlock::{Client, ConnInfo, Error, Job, NewJob, Transaction};
use rowlock_testkit::TestDb;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[cfg(feature = "diesel-async-0_9")]
mod diesel_async_0_9;
#[cfg(feature = "sea-orm-2")]
mod sea_orm_2;
#[cfg(feature = "sqlx-0_8")]
mod sqlx_0_8;
#[cfg(feature = "sqlx-0_9")]
mod sqlx_0_9;
#[cfg(feature = "tokio-postgres-0_7")]
mod tokio_postgres_0_7;

/// A connection of some driver.
trait Driver: Sized {
    type Tx<'c>: Transaction
    where
        Self: 'c;

    async fn connect(url: &str) -> Self;
    async fn begin(&mut self) -> Self::Tx<'_>;
    async fn commit(tx: Self::Tx<'_>);
    async fn roll_back(tx: Self::Tx<'_>);
}

/// The tests of the suite, for one driver.
macro_rules! conforms {
    ($driver:ty) => {
        conforms!($driver:
            a_commit_makes_the_job_exist,
            a_rollback_leaves_nothing,
            nobody_else_sees_the_job_before_the_commit,
            many_jobs_are_answered_in_their_order,
            no_jobs_are_no_error,
            a_duplicate_is_answered_with_the_first,
            a_borrowed_transaction_will_do,
            what_rowlock_refuses_leaves_the_transaction_usable,
            what_the_database_refuses_is_told_in_its_words,
            another_schema_is_found,
            texts_and_nulls_go_in_and_come_out,
        );
    };
    ($driver:ty: $($test:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $test() {
                crate::drivers::$test::<$driver>().await;
            }
        )+
    };
}
use conforms;

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "receipt", queue = "mail", max_attempts = 3, tags("paper"))]
struct Receipt {
    order: i64,
}

/// A database with a queue in it, and someone who looks at it from outside.
struct Setting {
    db: TestDb,
    client: Client,
    outside: tokio_postgres::Client,
}

impl Setting {
    async fn new() -> Self {
        Self::in_schema("rowlock").await
    }

    async fn in_schema(schema: &str) -> Self {
        let db = TestDb::new().await.unwrap().with_schema(schema);
        let info = ConnInfo::parse(db.url()).unwrap();
        let client = Client::builder().schema(schema).lazy(info).unwrap();
        client.migrate().await.unwrap();
        let outside = db.connect().await.unwrap();
        Self {
            db,
            client,
            outside,
        }
    }

    async fn driver<D: Driver>(&self) -> D {
        D::connect(self.db.url()).await
    }

    /// The orders of the receipts that are in the queue, by id.
    async fn orders(&self) -> Vec<i64> {
        let sql = format!(
            "select (payload ->> 'order')::bigint from {}.job where kind = 'receipt' order by id",
            self.db.schema()
        );
        let rows = self.outside.query(&sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

async fn a_commit_makes_the_job_exist<D: Driver>() {
    let setting = Setting::new().await;
    let mut driver: D = setting.driver().await;
    let mut tx = driver.begin().await;
    let enqueued = setting
        .client
        .enqueue(Receipt { order: 7 })
        .priority(2)
        .in_tx(&mut tx)
        .await
        .unwrap();
    D::commit(tx).await;

    assert!(!enqueued.duplicate);
    let sql = "select id, queue, kind, payload, priority, max_attempts, tags from rowlock.job";
    let row = setting.outside.query_one(sql, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>("id"), enqueued.id.0);
    assert_eq!(row.get::<_, &str>("queue"), "mail");
    assert_eq!(row.get::<_, &str>("kind"), "receipt");
    assert_eq!(
        row.get::<_, serde_json::Value>("payload"),
        json!({"order": 7})
    );
    assert_eq!(row.get::<_, i16>("priority"), 2);
    assert_eq!(row.get::<_, i16>("max_attempts"), 3);
    assert_eq!(row.get::<_, Vec<&str>>("tags"), ["paper"]);
}

async fn a_rollback_leaves_nothing<D: Driver>() {
    let setting = Setting::new().await;
    let mut driver: D = setting.driver().await;
    let mut tx = driver.begin().await;
    let one = setting.client.enqueue(Receipt { order: 7 });
    one.in_tx(&mut tx).await.unwrap();
    let many = setting.client.enqueue_many([Receipt { order: 8 }]);
    many.in_tx(&mut tx).await.unwrap();
    D::roll_back(tx).await;

    assert!(setting.orders().await.is_empty());
}

async fn nobody_else_sees_the_job_before_the_commit<D: Driver>() {
    let setting = Setting::new().await;
    let mut driver: D = setting.driver().await;
    let mut tx = driver.begin().await;
    let job = setting.client.enqueue(Receipt { order: 7 });
    job.in_tx(&mut tx).await.unwrap();
    assert!(setting.orders().await.is_empty());
    let inside = "select count(*)::text from rowlock.job";
    assert_eq!(
        tx.query_text(inside, &[]).await.unwrap(),
        [[Some("1".to_owned())]]
    );
    D::commit(tx).await;

    assert_eq!(setting.orders().await, [7]);
}

async fn many_jobs_are_answered_in_their_order<D: Driver>() {
    // More than fit in one statement, in two queues.
    const JOBS: i64 = 1201;
    let setting = Setting::new().await;
    let mut driver: D = setting.driver().await;
    let mut tx = driver.begin().await;
    let jobs = (0..JOBS).map(|order| {
        let queue = if order % 2 == 0 { "even" } else { "odd" };
        NewJob::of(&Receipt { order }).unwrap().queue(queue)
    });
    let enqueued = setting
        .client
        .enqueue_all(jobs)
        .in_tx(&mut tx)
        .await
        .unwrap();
    D::commit(tx).await;

    let ids: Vec<i64> = enqueued.iter().map(|answer| answer.id.0).collect();
    let sql = "select (payload ->> 'order')::bigint, queue from rowlock.job
                 join unnest($1::bigint[]) with ordinality as answer (id, n) using (id) order by n";
    let rows = setting.outside.query(sql, &[&ids]).await.unwrap();
    let found: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected: Vec<(i64, String)> = (0..JOBS)
        .map(|order| {
            (
                order,
                if order % 2 == 0 { "even" } else { "odd" }.to_owned(),
            )
        })
        .collect();
    assert_eq!(found, expected);
}

async fn no_jobs_are_no_error<D: Driver>() {
    let setting = Setting::new().await;
    let mut driver: D = setting.driver().await;
    let mut tx = driver.begin().await;
    let none = setting.client.enqueue_many(Vec::<Receipt>::new());
    assert_eq!(none.in_tx(&mut tx).await.unwrap(), []);
    D::commit(tx).await;
}

async fn a_duplicate_is_answered_with_the_first<D: Driver>() {
    let setting = Setting::new().await;
    let mut driver: D = setting.driver().await;
    let job = |order| setting.client.enqueue(Receipt { order }).unique("seven");

    let mut tx = driver.begin().await;
    let first = job(7).in_tx(&mut tx).await.unwrap();
    let second = job(8).in_tx(&mut tx).await.unwrap();
    D::commit(tx).await;
    let mut tx = driver.begin().await;
    let third = job(9).in_tx(&mut tx).await.unwrap();
    D::commit(tx).await;

    assert!(!first.duplicate);
    assert!(second.duplicate && third.duplicate);
    assert_eq!([second.id, third.id], [first.id; 2]);
    assert_eq!(setting.orders().await, [7]);
}

async fn a_borrowed_transaction_will_do<D: Driver>() {
    async fn enqueue(client: &Client, mut tx: &mut impl Transaction) {
        let one = client.enqueue(Receipt { order: 7 });
        one.in_tx(tx).await.unwrap();
        let other = client.enqueue(Receipt { order: 8 });
        other.in_tx(&mut tx).await.unwrap();
    }
    let setting = Setting::new().await;
    let mut driver: D = setting.driver().await;
    let mut tx = driver.begin().await;
    enqueue(&setting.client, &mut tx).await;
    D::commit(tx).await;

    assert_eq!(setting.orders().await, [7, 8]);
}

async fn what_rowlock_refuses_leaves_the_transaction_usable<D: Driver>() {
    let setting = Setting::new().await;
    let mut driver: D = setting.driver().await;
    let mut tx = driver.begin().await;
    let job = |order| setting.client.enqueue(Receipt { order });

    let bad = [
        (job(1).queue(""), "queue"),
        (job(2).priority(5), "priority"),
        (job(3).tag("a\nb"), "tag"),
        (job(4).unique(""), "unique_key"),
    ];
    for (bad, what) in bad {
        match bad.in_tx(&mut tx).await {
            Err(Error::Invalid(invalid)) => assert_eq!(invalid.what, what),
            other => panic!("{what}: {other:?}"),
        }
    }
    let no_object = NewJob::new("receipt", &[1, 2]).unwrap();
    let mixed = [NewJob::of(&Receipt { order: 5 }).unwrap(), no_object];
    let refused = setting.client.enqueue_all(mixed).in_tx(&mut tx).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");

    job(7).in_tx(&mut tx).await.unwrap();
    D::commit(tx).await;
    assert_eq!(setting.orders().await, [7]);
}

async fn what_the_database_refuses_is_told_in_its_words<D: Driver>() {
    let setting = Setting::new().await;
    let mut driver: D = setting.driver().await;
    let mut tx = driver.begin().await;
    let fine = setting.client.enqueue(Receipt { order: 7 });
    fine.in_tx(&mut tx).await.unwrap();
    // The limit is the queue's, so the library cannot know it.
    let large = NewJob::new("large", &json!({"text": "x".repeat(2 << 20)})).unwrap();
    let refused = setting.client.enqueue_new(large).in_tx(&mut tx).await;
    let error = refused.unwrap_err();
    assert!(
        chain(&error).contains("payload") && chain(&error).contains("too large"),
        "{}",
        chain(&error)
    );
    // Postgres, not the driver, decides what becomes of a transaction with an error in it.
    let after = tx.query_text("select 'still here'", &[]).await.unwrap_err();
    assert!(chain(&*after).contains("aborted"), "{}", chain(&*after));
    D::roll_back(tx).await;
    assert!(setting.orders().await.is_empty());

    let mut tx = driver.begin().await;
    let next = setting.client.enqueue(Receipt { order: 8 });
    next.in_tx(&mut tx).await.unwrap();
    D::commit(tx).await;
    assert_eq!(setting.orders().await, [8]);
}

async fn another_schema_is_found<D: Driver>() {
    let setting = Setting::in_schema("tenant_7").await;
    let mut driver: D = setting.driver().await;
    let mut tx = driver.begin().await;
    let job = setting.client.enqueue(Receipt { order: 7 });
    job.in_tx(&mut tx).await.unwrap();
    D::commit(tx).await;

    assert_eq!(setting.orders().await, [7]);
}

/// The contract of [`Transaction::query_text`] itself.
async fn texts_and_nulls_go_in_and_come_out<D: Driver>() {
    let db = TestDb::new().await.unwrap();
    let mut driver = D::connect(db.url()).await;
    let mut tx = driver.begin().await;
    let text = |text: &str| Some(text.to_owned());

    let odd = "größe '\" \\ $1 \u{1F980}\n";
    let sql = "select $1::text, $2::text, upper($3::text), null::text, ''::text";
    let rows = tx
        .query_text(sql, &[Some(odd), None, Some("a")])
        .await
        .unwrap();
    assert_eq!(rows, [[text(odd), None, text("A"), None, text("")]]);

    // The same statement with other values, then others.
    let rows = tx.query_text(sql, &[None, Some(""), None]).await.unwrap();
    assert_eq!(rows, [[None, text(""), None, None, text("")]]);
    let many = "select n::text from generate_series(1, 3) n order by n";
    let rows = tx.query_text(many, &[]).await.unwrap();
    assert_eq!(rows, [[text("1")], [text("2")], [text("3")]]);
    let none = "select $1::text where false";
    let rows = tx.query_text(none, &[Some("x")]).await.unwrap();
    assert!(rows.is_empty());
    D::roll_back(tx).await;
}

/// An error with all that it says about its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    said
}
