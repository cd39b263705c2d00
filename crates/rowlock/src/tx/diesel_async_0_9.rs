//! Connections of diesel-async 0.9, which are what its transactions are run on.

use diesel::deserialize::{FromSql, QueryableByName};
use diesel::pg::Pg;
use diesel::row::{Field, NamedRow, Row};
use diesel::sql_types::{Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::{BoxError, Transaction};

/// ```no_run
/// # use rowlock::Job;
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # #[job(kind = "receipt")]
/// # struct Receipt { order: i64 }
/// # type Error = Box<dyn std::error::Error + Send + Sync>;
/// # async fn f(client: &rowlock::Client, connection: &mut diesel_async::AsyncPgConnection) -> Result<(), Error> {
/// use diesel_async::{AsyncConnection, RunQueryDsl};
///
/// connection
///     .transaction::<_, Error, _>(async |tx| {
///         diesel::sql_query("insert into orders (id) values (7)").execute(tx).await?;
///         client.enqueue(Receipt { order: 7 }).in_tx(tx).await?;
///         Ok(())
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
impl Transaction for AsyncPgConnection {
    async fn query_text(
        &mut self,
        sql: &str,
        params: &[Option<&str>],
    ) -> Result<Vec<Vec<Option<String>>>, BoxError> {
        let mut statement = diesel::sql_query(sql).into_boxed();
        for param in params {
            statement = statement.bind::<Nullable<Text>, _>(*param);
        }
        let rows: Vec<Texts> = statement.load(self).await?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }
}

/// A row of texts, however many.
struct Texts(Vec<Option<String>>);

impl QueryableByName<Pg> for Texts {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> diesel::deserialize::Result<Self> {
        let text = |n| {
            let field = Row::get(row, n).ok_or("a row has fewer columns than it said")?;
            <Option<String> as FromSql<Nullable<Text>, Pg>>::from_nullable_sql(field.value())
        };
        (0..row.field_count())
            .map(text)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}
