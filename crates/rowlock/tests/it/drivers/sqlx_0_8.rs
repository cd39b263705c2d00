//! The suite on sqlx 0.8: its transactions, and connections with one open.

use sqlx_0_8::{Connection, PgConnection, Postgres, Transaction};

use super::{Driver, conforms};

conforms!(PgConnection);

impl Driver for PgConnection {
    type Tx<'c> = Transaction<'c, Postgres>;

    async fn connect(url: &str) -> Self {
        <Self as Connection>::connect(url).await.unwrap()
    }

    async fn begin(&mut self) -> Self::Tx<'_> {
        Connection::begin(self).await.unwrap()
    }

    async fn commit(tx: Self::Tx<'_>) {
        tx.commit().await.unwrap();
    }

    async fn roll_back(tx: Self::Tx<'_>) {
        tx.rollback().await.unwrap();
    }
}

mod on_a_connection {
    use sqlx_0_8::{Connection, PgConnection, query};

    use crate::drivers::{Driver, conforms};

    struct Bare(PgConnection);

    conforms!(Bare);

    impl Driver for Bare {
        type Tx<'c> = &'c mut PgConnection;

        async fn connect(url: &str) -> Self {
            Self(<PgConnection as Connection>::connect(url).await.unwrap())
        }

        async fn begin(&mut self) -> Self::Tx<'_> {
            query("begin").execute(&mut self.0).await.unwrap();
            &mut self.0
        }

        async fn commit(tx: Self::Tx<'_>) {
            query("commit").execute(tx).await.unwrap();
        }

        async fn roll_back(tx: Self::Tx<'_>) {
            query("rollback").execute(tx).await.unwrap();
        }
    }
}
