//! Transactions of tokio-postgres 0.7.

use tokio_postgres::types::{ToSql, Type};

use super::{BoxError, Transaction};

/// ```no_run
/// # use rowlock::Job;
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # #[job(kind = "receipt")]
/// # struct Receipt { order: i64 }
/// # async fn f(client: &rowlock::Client, pg: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = pg.transaction().await?;
/// tx.execute("insert into orders (id) values (7)", &[]).await?;
/// client.enqueue(Receipt { order: 7 }).in_tx(&mut tx).await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
impl Transaction for tokio_postgres::Transaction<'_> {
    async fn query_text(
        &mut self,
        sql: &str,
        params: &[Option<&str>],
    ) -> Result<Vec<Vec<Option<String>>>, BoxError> {
        // Types that are said need not be asked for: one round trip, and nothing stays prepared behind a pooler.
        let params: Vec<(&(dyn ToSql + Sync), Type)> = params
            .iter()
            .map(|param| (param as &(dyn ToSql + Sync), Type::TEXT))
            .collect();
        let rows = self.query_typed(sql, &params).await?;
        rows.iter()
            .map(|row| {
                Ok((0..row.len())
                    .map(|n| row.try_get(n))
                    .collect::<Result<_, _>>()?)
            })
            .collect()
    }
}
