//! Outbox: the order and the job that announces it are written in one transaction. Either both exist or neither does.
//!
//! ```text
//! cargo run -p rowlock-examples --bin outbox
//! ```

use rowlock::{Client, Job, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "order.confirm")]
struct ConfirmOrder {
    order: i64,
}

async fn confirm(job: ConfirmOrder) {
    println!("confirmed order {}", job.order);
}

/// Stores an order and enqueues its confirmation. The stock may say no at the last moment.
async fn place_order(
    queue: &Client,
    pg: &mut tokio_postgres::Client,
    order: i64,
    in_stock: bool,
) -> anyhow::Result<()> {
    let mut tx = pg.transaction().await?;
    tx.execute("insert into orders (id) values ($1)", &[&order])
        .await?;
    queue.enqueue(ConfirmOrder { order }).in_tx(&mut tx).await?;
    if in_stock {
        tx.commit().await?;
        println!("placed order {order}");
    } else {
        // Dropping the transaction would do the same: the order is gone, and so is its job.
        tx.rollback().await?;
        println!("refused order {order}");
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = rowlock_examples::database().await?;
    let mut pg = rowlock_examples::connect(&db.url).await?;
    pg.batch_execute("create table if not exists orders (id bigint primary key); truncate orders")
        .await?;

    place_order(&db.client, &mut pg, 1, true).await?;
    place_order(&db.client, &mut pg, 2, false).await?;
    place_order(&db.client, &mut pg, 3, true).await?;

    let worker = Worker::builder(db.client.clone())
        .queue("default")
        .handle(confirm)
        .build()?;
    let stopped = worker.drain().await?;
    anyhow::ensure!(stopped.handled == 2, "2 orders were placed: {stopped:?}");
    Ok(())
}
