//! Which job runs first: priorities within a queue, order between queues, queues by pattern.
//!
//! ```text
//! cargo run -p rowlock-examples --bin priorities_and_queues
//! ```

use std::sync::{Arc, Mutex};

use rowlock::{Ctx, Job, Order, Queue, State, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "step")]
struct Step {
    name: String,
}

impl Step {
    fn new(name: &str) -> Self {
        Self { name: name.into() }
    }
}

type Log = Arc<Mutex<Vec<String>>>;

async fn run(job: Step, State(log): State<Log>, ctx: Ctx) {
    println!(
        "{} (queue {}, priority {})",
        job.name,
        ctx.queue(),
        ctx.priority()
    );
    log.lock().expect("nobody panics here").push(job.name);
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = rowlock_examples::database().await?;
    let client = &db.client;
    client.enqueue(Step::new("nightly")).queue("bulk").await?;
    client
        .enqueue(Step::new("tenant a"))
        .queue("tenant-a")
        .await?;
    client.enqueue(Step::new("usual")).queue("urgent").await?;
    client
        .enqueue(Step::new("first"))
        .queue("urgent")
        .priority(4)
        .await?;
    client
        .enqueue(Step::new("last"))
        .queue("urgent")
        .priority(-4)
        .await?;

    // One slot, so that the order shows. Strict: a queue is served when those before it are empty.
    let log = Log::default();
    let worker = Worker::builder(client.clone())
        .queue("urgent")
        .queue("bulk")
        .queue(Queue::matching("tenant-*").concurrency(2))
        .order(Order::Strict)
        .concurrency(1)
        .state(log.clone())
        .handle(run)
        .build()?;
    worker.drain().await?;
    let order = log.lock().expect("nobody panics here").join(", ");
    println!("order: {order}");
    Ok(())
}
