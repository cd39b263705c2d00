//! What the tests share: a migrated database of their own.

use rowlock::{Client, ConnInfo};
use rowlock_testkit::{TestDb, TestQueue};

/// A fresh database with a migrated schema, and a client of it.
pub(crate) async fn queue() -> (TestDb, Client) {
    let queue = TestQueue::new().await.expect("a queue for the test");
    queue.into_parts()
}

/// A client that has not connected yet.
pub(crate) fn lazy(db: &TestDb) -> Client {
    Client::builder()
        .lazy(ConnInfo::parse(db.url()).expect("a good url"))
        .expect("good settings")
}
