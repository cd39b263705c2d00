//! What the checks look with.

use std::time::Duration;

use rowlock::{Client, MigrationStatus};
use serde::de::DeserializeOwned;

use super::Doctor;

/// One examination.
pub(super) struct Exam {
    pub(super) client: Client,
    pub(super) status: MigrationStatus,
    /// How long one query may take.
    limit: Duration,
    /// How long a transaction may be open.
    pub(super) pinned_after: Duration,
    /// How many transactions old the oldest id may be.
    pub(super) frozen_after: u64,
}

impl Exam {
    pub(super) fn new(client: Client, status: MigrationStatus, asked: &Doctor) -> Self {
        Self {
            client,
            status,
            limit: asked.timeout,
            pinned_after: asked.pinned_after,
            frozen_after: asked.frozen_after,
        }
    }

    /// The rows of a query, in which `rowlock.` stands for the schema.
    pub(super) async fn look<T: DeserializeOwned>(&self, sql: &str) -> rowlock::Result<Vec<T>> {
        self.client
            .look("examine the database", sql, self.limit)
            .await
    }

    /// The only row of a query that always has one.
    pub(super) async fn look_one<T: DeserializeOwned>(&self, sql: &str) -> anyhow::Result<T> {
        let rows = self.look(sql).await?;
        let row = rows.into_iter().next();
        row.ok_or_else(|| anyhow::anyhow!("a query came back without its row"))
    }

    /// The schema, for statements that people are told to run.
    pub(super) fn schema(&self) -> &str {
        self.client.schema().as_str()
    }
}
