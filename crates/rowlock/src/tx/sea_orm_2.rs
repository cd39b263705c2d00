//! Transactions of SeaORM 2.

use sea_orm_2::{ConnectionTrait, DatabaseTransaction, DbErr, Statement};

use super::{BoxError, Transaction};

/// ```no_run
/// # use sea_orm_2 as sea_orm;
/// # use rowlock::Job;
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # #[job(kind = "receipt")]
/// # struct Receipt { order: i64 }
/// # async fn f(client: &rowlock::Client, db: &sea_orm::DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
/// use sea_orm::{ConnectionTrait, TransactionTrait};
///
/// let mut tx = db.begin().await?;
/// tx.execute_unprepared("insert into orders (id) values (7)").await?;
/// client.enqueue(Receipt { order: 7 }).in_tx(&mut tx).await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
impl Transaction for DatabaseTransaction {
    async fn query_text(
        &mut self,
        sql: &str,
        params: &[Option<&str>],
    ) -> Result<Vec<Vec<Option<String>>>, BoxError> {
        let params = params.iter().map(|param| param.map(str::to_owned).into());
        let statement = Statement::from_sql_and_values(self.get_database_backend(), sql, params);
        let rows = self.query_all_raw(statement).await?;
        let texts = rows.iter().map(|row| {
            (0..row.column_names().len())
                .map(|n| row.try_get_by_index(n))
                .collect()
        });
        Ok(texts.collect::<Result<_, DbErr>>()?)
    }
}
