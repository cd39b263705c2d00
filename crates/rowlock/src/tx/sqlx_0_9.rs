//! Transactions of sqlx 0.9.

use sqlx_0_9::{PgConnection, Postgres, Row, query};

use super::{BoxError, Transaction};

impl Transaction for PgConnection {
    async fn query_text(
        &mut self,
        sql: &str,
        params: &[Option<&str>],
    ) -> Result<Vec<Vec<Option<String>>>, BoxError> {
        // The text is one of ours, with the name of the schema put in, which has been checked.
        let mut statement = query(sqlx_0_9::AssertSqlSafe(sql));
        for param in params {
            statement = statement.bind(*param);
        }
        let rows = statement.fetch_all(self).await?;
        rows.iter()
            .map(|row| {
                Ok((0..row.len())
                    .map(|n| row.try_get(n))
                    .collect::<Result<_, _>>()?)
            })
            .collect()
    }
}

/// ```no_run
/// # use sqlx_0_9 as sqlx;
/// # use rowlock::Job;
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # #[job(kind = "receipt")]
/// # struct Receipt { order: i64 }
/// # async fn f(client: &rowlock::Client, pool: &sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = pool.begin().await?;
/// sqlx::query("insert into orders (id) values ($1)").bind(7_i64).execute(&mut *tx).await?;
/// client.enqueue(Receipt { order: 7 }).in_tx(&mut tx).await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
impl Transaction for sqlx_0_9::Transaction<'_, Postgres> {
    async fn query_text(
        &mut self,
        sql: &str,
        params: &[Option<&str>],
    ) -> Result<Vec<Vec<Option<String>>>, BoxError> {
        (**self).query_text(sql, params).await
    }
}
