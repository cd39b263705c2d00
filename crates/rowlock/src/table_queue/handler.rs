//! Handlers: plain async functions from a row to an outcome.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;

use super::row_tx::RowTx;
use super::{IntoOutcome, Outcome};
use crate::unreadable;

/// A row that is being worked.
#[derive(Clone)]
#[non_exhaustive]
pub struct TableRow<T> {
    /// The columns of the row, by their names. Any type that serde can make of them, also `serde_json::Value`.
    pub data: T,
    /// The key of the row as text; of a key of several columns a JSON array of them.
    pub key: String,
    /// How often this row has failed before.
    pub failures: u32,
}

/// Without the data, which belongs in no log.
impl<T> fmt::Debug for TableRow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableRow")
            .field("key", &self.key)
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}

/// A row as it was claimed.
#[derive(Clone)]
pub(super) struct Claimed {
    pub(super) key: String,
    pub(super) failures: u32,
    /// `None`: it was too large to be sent.
    pub(super) json: Option<String>,
}

impl Claimed {
    fn decode<T: DeserializeOwned>(self) -> Result<TableRow<T>, Outcome> {
        let json = self.json.as_deref().unwrap_or_default();
        match serde_json::from_str(json) {
            Ok(data) => Ok(TableRow {
                data,
                key: self.key,
                failures: self.failures,
            }),
            Err(e) => Err(Outcome::Retry {
                error: format!(
                    "the row is not what its handler expects: {}",
                    unreadable::why(&e)
                ),
                after: None,
            }),
        }
    }
}

type Outside = dyn Fn(Claimed) -> BoxFuture<'static, Outcome> + Send + Sync;
type InTx = dyn Fn(Claimed, RowTx) -> BoxFuture<'static, Outcome> + Send + Sync;

/// A handler whose types are no longer seen.
pub(super) enum Handler {
    /// Has its effects elsewhere.
    Outside(Box<Outside>),
    /// Has its effects in the transaction of the batch.
    InTx(Box<InTx>),
}

impl Handler {
    pub(super) fn outside<T, H, F>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(TableRow<T>) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: IntoOutcome,
    {
        Self::Outside(Box::new(move |row| match row.decode() {
            Ok(row) => Box::pin(handler(row).map(IntoOutcome::into_outcome)),
            Err(outcome) => Box::pin(std::future::ready(outcome)),
        }))
    }

    pub(super) fn in_tx<T, H, F>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(TableRow<T>, RowTx) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: IntoOutcome,
    {
        Self::InTx(Box::new(move |row, tx| match row.decode() {
            Ok(row) => Box::pin(handler(row, tx).map(IntoOutcome::into_outcome)),
            Err(outcome) => Box::pin(std::future::ready(outcome)),
        }))
    }
}

/// Runs a handler with its time limit, and turns a panic into text. `start` makes the future: it may panic, too.
pub(super) async fn guarded(
    start: impl FnOnce() -> BoxFuture<'static, Outcome>,
    limit: Duration,
) -> Outcome {
    let handled = AssertUnwindSafe(async { start().await }).catch_unwind();
    let failed = |error: String| Outcome::Retry { error, after: None };
    match tokio::time::timeout(limit, handled).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => failed(format!("panicked: {}", panic_text(&*panic))),
        Err(_) => failed(format!("timed out after {limit:?}")),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(json: &str) -> Claimed {
        Claimed {
            key: "7".into(),
            failures: 2,
            json: Some(json.into()),
        }
    }

    async fn run<T, F>(handler: impl Fn(TableRow<T>) -> F + Send + Sync + 'static) -> Outcome
    where
        T: DeserializeOwned + Send + 'static,
        F: Future + Send + 'static,
        F::Output: IntoOutcome,
    {
        let Handler::Outside(handler) = Handler::outside(handler) else {
            unreachable!()
        };
        guarded(
            || handler(claimed(r#"{"a": 1}"#)),
            Duration::from_millis(20),
        )
        .await
    }

    fn error(outcome: Outcome) -> String {
        match outcome {
            Outcome::Retry { error, .. } => error,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn whatever_a_handler_does_is_an_outcome() {
        #[derive(serde::Deserialize)]
        struct A {
            a: i64,
        }
        #[derive(serde::Deserialize)]
        struct B {
            #[serde(rename = "b")]
            _b: i64,
        }
        let done = run(|row: TableRow<A>| async move {
            assert_eq!((row.data.a, &*row.key, row.failures), (1, "7", 2));
        });
        assert!(matches!(done.await, Outcome::Done(None)));

        let panics =
            run(|row: TableRow<A>| async move { assert_eq!(row.data.a, 2, "at the disco") });
        assert!(error(panics.await).contains("at the disco"));

        let panics_early = run(|_: TableRow<A>| -> std::future::Ready<()> { panic!("early") });
        assert_eq!(error(panics_early.await), "panicked: early");

        let hangs = run(|_: TableRow<A>| std::future::pending::<()>());
        assert_eq!(error(hangs.await), "timed out after 20ms");

        let unfit = run(|_: TableRow<B>| async {});
        assert!(error(unfit.await).contains("missing field `b`"));
    }

    #[test]
    fn a_row_never_shows_its_data() {
        let row: TableRow<serde_json::Value> = claimed(r#"{"secret": "x"}"#).decode().unwrap();
        assert!(!format!("{row:?}").contains("secret"));
    }
}
