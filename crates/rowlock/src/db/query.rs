//! Running a statement: prepared once where the session is ours alone, unnamed in one round trip where a pooler may hand the
//! next statement to another server process.

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::connect::Connection;

/// A parameter and its type. The type is always said, so that the server need not be asked.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

impl Connection {
    /// Runs a statement and returns all rows. `sql` must be one of a bounded set of texts: each is remembered.
    pub(crate) async fn rows(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, tokio_postgres::Error> {
        if !self.direct {
            return self.client.query_typed(sql, params).await;
        }
        let known = self.prepared.lock().get(sql).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let types: Vec<Type> = params.iter().map(|(_, ty)| ty.clone()).collect();
                let statement = self.client.prepare_typed(sql, &types).await?;
                self.prepared.lock().insert(sql.into(), statement.clone());
                statement
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
        self.client.query(&statement, &values).await
    }

    /// Runs a statement that returns exactly one row.
    pub(crate) async fn row(&self, sql: &str, params: &[Param<'_>]) -> Result<Row, tokio_postgres::Error> {
        let mut rows = self.rows(sql, params).await?;
        // Our statements of this sort are `select function(...)`, which always give one row.
        Ok(rows.swap_remove(0))
    }
}
