//! The suite on diesel-async 0.9, and the closure in which its transactions are usually written.

use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncPgConnection, TransactionManager,
};

use super::{Driver, Receipt, Setting, conforms};

conforms!(AsyncPgConnection);

impl Driver for AsyncPgConnection {
    type Tx<'c> = &'c mut AsyncPgConnection;

    async fn connect(url: &str) -> Self {
        Self::establish(url).await.unwrap()
    }

    async fn begin(&mut self) -> Self::Tx<'_> {
        AnsiTransactionManager::begin_transaction(self)
            .await
            .unwrap();
        self
    }

    async fn commit(tx: Self::Tx<'_>) {
        AnsiTransactionManager::commit_transaction(tx)
            .await
            .unwrap();
    }

    async fn roll_back(tx: Self::Tx<'_>) {
        AnsiTransactionManager::rollback_transaction(tx)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn the_closure_of_a_transaction() {
    let setting = Setting::new().await;
    let mut connection: AsyncPgConnection = setting.driver().await;
    let client = &setting.client;

    let kept = connection.transaction::<_, rowlock::BoxError, _>(async |tx| {
        client.enqueue(Receipt { order: 7 }).in_tx(tx).await?;
        Ok(())
    });
    kept.await.unwrap();
    let undone = connection.transaction::<(), rowlock::BoxError, _>(async |tx| {
        client.enqueue(Receipt { order: 8 }).in_tx(tx).await?;
        Err("something else went wrong".into())
    });
    undone.await.unwrap_err();

    assert_eq!(setting.orders().await, [7]);
}
