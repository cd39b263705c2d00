//! The smallest whole program: a job, its handler, one enqueue, one worker.
//!
//! ```text
//! cargo run -p rowlock-examples --bin hello
//! ```

use rowlock::{Job, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "email.welcome")]
struct Welcome {
    to: String,
}

async fn send(job: Welcome) -> std::io::Result<()> {
    println!("welcome, {}", job.to);
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = rowlock_examples::database().await?;
    let to = "ann@example.com".into();
    db.client.enqueue(Welcome { to }).await?;

    // A service calls `run_until_signal` instead, which works until Ctrl-C or SIGTERM.
    let worker = Worker::builder(db.client.clone())
        .queue("default")
        .handle(send)
        .build()?;
    let stopped = worker.drain().await?;
    println!("handled {}", stopped.handled);
    Ok(())
}
