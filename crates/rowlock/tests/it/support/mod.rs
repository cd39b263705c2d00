//! What the tests share: a migrated database of their own.

use rowlock::{Client, ConnInfo};
use rowlock_testkit::TestDb;

/// A fresh database with a migrated schema, and a client of it.
pub(crate) async fn queue() -> (TestDb, Client) {
    let db = TestDb::new().await.expect("a database for the test");
    let client = lazy(&db);
    client.migrate().await.expect("the schema can be migrated");
    (db, client)
}

/// A client that has not connected yet.
pub(crate) fn lazy(db: &TestDb) -> Client {
    Client::builder()
        .lazy(ConnInfo::parse(db.url()).expect("a good url"))
        .expect("good settings")
}
