//! Test kit of Rowlock: a private Postgres, a database for each test, and faults on the way to it.
//!
//! | you need | use |
//! |---|---|
//! | a queue for one test: was it enqueued, run it, move the time | [`TestQueue`] |
//! | an empty database for one test | [`TestDb`] |
//! | a whole server for one test: to crash it, to tune it, to keep its data | [`PrivatePostgres`] |
//! | the server that all tests of a run share | [`shared()`] |
//! | a bad network between the code under test and Postgres | [`FaultProxy`] |
//!
//! Nothing here needs a Postgres that is already running, a container, or the network: it needs the PostgreSQL programs
//! (`initdb` and `postgres`, 14 or newer) on the machine. `ROWLOCK_PG_BIN` says where they are, if they are
//! neither on the `PATH` nor where packages put them. `ROWLOCK_TEST_DATABASE_URL` makes [`TestDb`] use a server that is
//! already there.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use rowlock_testkit::TestDb;
//!
//! let db = TestDb::new().await?;
//! let client = db.connect().await?;
//! let answer: i32 = client.query_one("select 42", &[]).await?.get(0);
//! assert_eq!(answer, 42);
//! # Ok(())
//! # }
//! ```

mod database;
mod error;
mod postgres;
mod proxy;
mod queue;
mod shared;
mod url;

pub use database::TestDb;
pub use error::{Error, Result};
pub use postgres::{PrivatePostgres, PrivatePostgresBuilder, Version};
pub use proxy::{Direction, FaultProxy, Upstream};
pub use queue::{Fate, TestQueue};
pub use shared::{SharedServer, shared};
