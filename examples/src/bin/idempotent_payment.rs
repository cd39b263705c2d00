//! A payment that is charged once although its job runs twice.
//!
//! The first attempt dies between the charge and the bookkeeping. The second finds the receipt of the first (`once`), charges
//! nothing, and writes the books and ends the job in one transaction (`complete_in_tx`).
//!
//! ```text
//! cargo run -p rowlock-examples --bin idempotent_payment
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rowlock::{Backoff, Ctx, Job, State, Worker};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "payment.charge")]
struct Charge {
    account: i64,
    cents: i64,
}

/// Somebody else's service. It knows idempotency keys, as such services should.
#[derive(Clone, Default)]
struct Bank {
    charges: Arc<Mutex<HashMap<String, i64>>>,
}

impl Bank {
    async fn charge(&self, key: &str, cents: i64) -> anyhow::Result<String> {
        println!("bank: charging {cents} cents");
        self.charges
            .lock()
            .expect("nobody panics here")
            .insert(key.into(), cents);
        Ok(format!("receipt-for-{cents}"))
    }
}

async fn charge(
    job: Charge,
    State(bank): State<Bank>,
    State(url): State<String>,
    State(paid): State<Arc<Notify>>,
    ctx: Ctx,
) -> anyhow::Result<()> {
    // Outside of this database: remembered under the job. The key goes along for the gap that remains.
    let key = ctx.key();
    let receipt: String = ctx.once("charge", || bank.charge(&key, job.cents)).await?;

    if ctx.attempt() == 1 {
        println!("attempt 1: the process stumbles after the charge");
        anyhow::bail!("stumbled");
    }

    // Inside of this database: the books and the end of the job commit together.
    let mut pg = rowlock_examples::connect(&url).await?;
    let mut tx = pg.transaction().await?;
    tx.execute(
        "insert into payment (account, cents, receipt) values ($1, $2, $3)",
        &[&job.account, &job.cents, &receipt],
    )
    .await?;
    ctx.complete_in_tx(&mut tx).await?;
    tx.commit().await?;
    println!("attempt {}: booked {receipt}", ctx.attempt());
    paid.notify_one();
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = rowlock_examples::database().await?;
    let pg = rowlock_examples::connect(&db.url).await?;
    pg.batch_execute(
        "create table if not exists payment (account bigint, cents bigint, receipt text); truncate payment",
    )
    .await?;

    let (bank, paid) = (Bank::default(), Arc::new(Notify::new()));
    let worker = Worker::builder(db.client.clone())
        .queue("default")
        .state(bank.clone())
        .state(db.url.clone())
        .state(paid.clone())
        .handle(charge)
        .build()?
        .start()
        .await?;
    let job = Charge {
        account: 7,
        cents: 4200,
    };
    // Soon, because this is an example: the default waits a minute before the second attempt.
    let soon = Backoff::fixed(Duration::from_millis(10));
    db.client.enqueue(job).backoff(soon).await?;

    tokio::time::timeout(Duration::from_secs(20), paid.notified()).await?;
    worker.shutdown().await;
    let charges = bank.charges.lock().expect("nobody panics here").len();
    let booked: i64 = pg
        .query_one("select count(*) from payment", &[])
        .await?
        .get(0);
    println!("charged {charges} time, booked {booked} time");
    anyhow::ensure!((charges, booked) == (1, 1));
    Ok(())
}
