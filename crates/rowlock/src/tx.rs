//! The door to the caller's own transaction, whatever driver it belongs to.
//!
//! One narrow door for all drivers: texts go in, texts come out. So each driver needs a few lines, and the same suite of tests is
//! run against all of them. The impls are behind features named after the driver and its version.

use std::future::Future;

/// An open transaction of some driver. [`in_tx`](crate::Enqueue::in_tx) and
/// [`complete_in_tx`](crate::Ctx::complete_in_tx) take one.
///
/// Implemented, behind the feature of the same name, for the transactions of `tokio-postgres-0_7`, `sqlx-0_8`, `sqlx-0_9`,
/// `diesel-async-0_9` and `sea-orm-2`; implement it for a wrapper of your own if you use another.
pub trait Transaction: Send {
    /// Runs one statement whose parameters are all of type `text` and whose result columns are all `text`, inside the
    /// transaction, and returns the rows.
    fn query_text(
        &mut self,
        sql: &str,
        params: &[Option<&str>],
    ) -> impl Future<Output = Result<Vec<Vec<Option<String>>>, BoxError>> + Send;
}

/// Any error of any driver.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
