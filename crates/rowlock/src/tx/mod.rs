//! The door to the caller's own transaction, whatever driver it belongs to.
//!
//! One narrow door for all drivers: texts go in, texts come out. So each driver needs a few lines, and the same suite of tests is
//! run against all of them. The impls are behind features named after the driver and its version. They hide nothing of what the
//! driver does: an error that the database reports leaves the transaction as that driver leaves it.

use std::future::Future;

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

/// An open transaction of some driver: what [`in_tx`](crate::Enqueue::in_tx) takes.
///
/// | driver | feature | type | Rust |
/// |---|---|---|---|
/// | tokio-postgres 0.7 | `tokio-postgres-0_7` (on by default) | `tokio_postgres::Transaction` | 1.85 |
/// | sqlx 0.8 | `sqlx-0_8` | `sqlx::Transaction<Postgres>`, `sqlx::PgConnection` | 1.85 |
/// | sqlx 0.9 | `sqlx-0_9` | `sqlx::Transaction<Postgres>`, `sqlx::PgConnection` | 1.94 |
/// | diesel-async 0.9 | `diesel-async-0_9` | `diesel_async::AsyncPgConnection` | 1.86 |
/// | SeaORM 2 | `sea-orm-2` | `sea_orm::DatabaseTransaction` | 1.94 |
///
/// Features can be combined, also both versions of sqlx. They bring no TLS and no macros of the driver: what your program enables
/// itself is what you get.
///
/// What a pool hands out is usually a wrapper that can be dereferenced: pass `&mut *wrapper`.
///
/// A connection that has a transaction open, as sqlx and diesel-async hand it around, is taken for one. If none is open, each
/// statement commits by itself, and more than 500 jobs at once are more than one statement.
///
/// If the database refuses a statement, Postgres takes no more of them in that transaction: roll it back (or to a savepoint).
/// Values that Rowlock refuses itself, before they travel, leave the transaction as it was.
///
/// # Another driver
///
/// Implement this for a wrapper of your own. The statements are ours and few, the values are always parameters, so a driver may
/// keep them prepared.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no transaction that Rowlock knows",
    note = "enable the feature of your driver: `tokio-postgres-0_7`, `sqlx-0_8`, `sqlx-0_9`, `diesel-async-0_9` or `sea-orm-2`",
    note = "pass the transaction itself; of a pool's wrapper around a connection, what it dereferences to: `&mut *connection`"
)]
pub trait Transaction: Send {
    /// Runs one statement whose parameters are all of type `text` and whose result columns are all `text`, inside the
    /// transaction, and returns the rows.
    fn query_text(
        &mut self,
        sql: &str,
        params: &[Option<&str>],
    ) -> impl Future<Output = Result<Vec<Vec<Option<String>>>, BoxError>> + Send;
}

/// What the database answered with, as far as the driver tells.
pub(crate) fn sqlstate(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(e) = cause {
        if let Some(e) = e.downcast_ref::<tokio_postgres::Error>() {
            return e.code().map(|code| code.code().to_owned());
        }
        #[cfg(feature = "sqlx-0_8")]
        if let Some(e) = e.downcast_ref::<::sqlx_0_8::Error>() {
            return e.as_database_error()?.code().map(Into::into);
        }
        #[cfg(feature = "sqlx-0_9")]
        if let Some(e) = e.downcast_ref::<::sqlx_0_9::Error>() {
            return e.as_database_error()?.code().map(Into::into);
        }
        cause = e.source();
    }
    None
}

/// Any error of any driver.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A borrowed transaction is one too.
impl<T: Transaction> Transaction for &mut T {
    async fn query_text(
        &mut self,
        sql: &str,
        params: &[Option<&str>],
    ) -> Result<Vec<Vec<Option<String>>>, BoxError> {
        (**self).query_text(sql, params).await
    }
}
