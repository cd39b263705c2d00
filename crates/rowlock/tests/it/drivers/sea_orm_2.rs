//! The suite on SeaORM 2.

use sea_orm_2::{Database, DatabaseConnection, DatabaseTransaction, TransactionTrait};

use super::{Driver, conforms};

conforms!(DatabaseConnection);

impl Driver for DatabaseConnection {
    type Tx<'c> = DatabaseTransaction;

    async fn connect(url: &str) -> Self {
        Database::connect(url).await.unwrap()
    }

    async fn begin(&mut self) -> Self::Tx<'_> {
        TransactionTrait::begin(self).await.unwrap()
    }

    async fn commit(tx: Self::Tx<'_>) {
        tx.commit().await.unwrap();
    }

    async fn roll_back(tx: Self::Tx<'_>) {
        tx.rollback().await.unwrap();
    }
}
