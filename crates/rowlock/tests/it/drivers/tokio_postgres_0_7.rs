//! The suite on tokio-postgres 0.7.

use tokio_postgres::{Client, NoTls, Transaction};

use super::{Driver, Receipt, Setting, conforms};

conforms!(Client);

impl Driver for Client {
    type Tx<'c> = Transaction<'c>;

    async fn connect(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn begin(&mut self) -> Self::Tx<'_> {
        self.transaction().await.unwrap()
    }

    async fn commit(tx: Self::Tx<'_>) {
        tx.commit().await.unwrap();
    }

    async fn roll_back(tx: Self::Tx<'_>) {
        tx.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn a_savepoint_can_be_rolled_back_alone() {
    let setting = Setting::new().await;
    let mut client: Client = setting.driver().await;
    let mut tx = client.begin().await;
    let kept = setting.client.enqueue(Receipt { order: 7 });
    kept.in_tx(&mut tx).await.unwrap();
    let mut savepoint = tx.transaction().await.unwrap();
    let dropped = setting.client.enqueue(Receipt { order: 8 });
    dropped.in_tx(&mut savepoint).await.unwrap();
    savepoint.rollback().await.unwrap();
    tx.commit().await.unwrap();

    assert_eq!(setting.orders().await, [7]);
}
