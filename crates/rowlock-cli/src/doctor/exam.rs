//! What the checks look with.

use std::time::Duration;

use rowlock::{Client, MigrationStatus};
use serde::de::DeserializeOwned;

/// One examination.
pub(super) struct Exam {
    pub(super) client: Client,
    pub(super) status: MigrationStatus,
    /// How long one query may take.
    limit: Duration,
    /// How long a transaction may be open.
    pub(super) pinned_after: Duration,
}

impl Exam {
    pub(super) fn new(
        client: Client,
        status: MigrationStatus,
        limit: Duration,
        pinned_after: Duration,
    ) -> Self {
        Self {
            client,
            status,
            limit,
            pinned_after,
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
