//! A row of a table as a task. Its transaction holds it: when that ends early, the handler is dropped and not told.

use std::sync::Arc;

use opentelemetry::KeyValue;
use rowlock::{CancelReason, TableRow};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::task::Task;
use crate::traces::Facts;

/// The longest key that is given to others as it is.
const KEY_BYTES_MAX: usize = 200;

/// What is the same for all rows of a table.
pub(super) struct TableFacts {
    /// The name of the section.
    pub(super) table: String,
    /// The schema of the queue.
    pub(super) schema: String,
    /// After how many failures a row is parked.
    pub(super) park_after: u32,
}

/// A row that is to be handled.
pub(super) struct RowTask {
    pub(super) facts: Arc<TableFacts>,
    pub(super) row: TableRow<Box<RawValue>>,
}

/// The body of a request.
#[derive(Serialize)]
struct Envelope<'a> {
    table: &'a str,
    row_key: &'a str,
    attempt: u32,
    failures: u32,
    max_attempts: u32,
    key: String,
    payload: &'a RawValue,
}

impl RowTask {
    fn attempt(&self) -> u32 {
        self.row.failures.saturating_add(1)
    }
}

impl Task for RowTask {
    fn key(&self) -> String {
        let facts = &self.facts;
        header_safe(format!("{}-{}-{}", facts.schema, facts.table, self.row.key))
    }

    fn payload(&self) -> &str {
        self.row.data.get()
    }

    fn trace(&self) -> Option<&str> {
        None
    }

    fn facts(&self) -> Facts {
        let table = &self.facts.table;
        Facts {
            name: format!("process {table}"),
            attributes: vec![
                KeyValue::new("messaging.system", "rowlock"),
                KeyValue::new("messaging.operation.name", "process"),
                KeyValue::new("messaging.operation.type", "process"),
                KeyValue::new("messaging.destination.name", table.clone()),
                KeyValue::new("messaging.message.id", self.row.key.clone()),
                KeyValue::new("rowlock.table", table.clone()),
                KeyValue::new("rowlock.attempt", i64::from(self.attempt())),
                KeyValue::new("rowlock.failures", i64::from(self.row.failures)),
            ],
        }
    }

    fn is_given_back(&self) -> bool {
        false
    }

    fn body(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&Envelope {
            table: &self.facts.table,
            row_key: &self.row.key,
            attempt: self.attempt(),
            failures: self.row.failures,
            max_attempts: self.facts.park_after,
            key: self.key(),
            payload: &self.row.data,
        })
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let last = self.attempt() >= self.facts.park_after;
        vec![
            ("ROWLOCK_TABLE", self.facts.table.clone()),
            ("ROWLOCK_ROW_KEY", self.row.key.clone()),
            ("ROWLOCK_SCHEMA", self.facts.schema.clone()),
            ("ROWLOCK_ATTEMPT", self.attempt().to_string()),
            ("ROWLOCK_FAILURES", self.row.failures.to_string()),
            ("ROWLOCK_MAX_ATTEMPTS", self.facts.park_after.to_string()),
            ("ROWLOCK_LAST_ATTEMPT", u8::from(last).to_string()),
            ("ROWLOCK_KEY", self.key()),
        ]
    }

    async fn told_to_stop(&self) -> CancelReason {
        std::future::pending().await
    }
}

/// A text column can be a key, with anything in it; what no header can carry goes as its hash.
fn header_safe(key: String) -> String {
    if key.len() <= KEY_BYTES_MAX && key.bytes().all(|b| b.is_ascii_graphic()) {
        return key;
    }
    let hash = Sha256::digest(key.as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_no_header_can_carry_are_hashed() {
        assert_eq!(header_safe("rowlock-items-17".into()), "rowlock-items-17");
        let (one, other) = (header_safe("a b".into()), header_safe("a\nb".into()));
        assert_ne!(one, other);
        for hash in [one, other, header_safe("x".repeat(201))] {
            assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
        }
    }
}
