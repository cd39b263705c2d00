//! A long job that says how far it is, and stops when somebody asks it to.
//!
//! ```text
//! cargo run -p rowlock-examples --bin progress_and_cancel
//! ```

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rowlock::manage::JobState;
use rowlock::{CancelReason, Ctx, Fail, Job, State, Worker};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Notify;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "export")]
struct Export {
    rows: u32,
}

async fn export(job: Export, State(half): State<Arc<Notify>>, ctx: Ctx) -> Result<(), Fail> {
    for row in 1..=job.rows {
        tokio::select! {
            // One step of the work.
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
            // Timeout, lost lease, cancelled by somebody, shutdown: the reason says which.
            reason = ctx.cancelled() => {
                println!("handler: stopping at row {row}: {reason:?}");
                return match reason {
                    CancelReason::Cancelled => Err(Fail::cancel("asked to stop")),
                    other => Err(Fail::retry_after(format!("{other:?}"), Duration::ZERO)),
                };
            }
        }
        if row == job.rows / 2 {
            let progress = json!({"done": row, "of": job.rows});
            ctx.progress(&progress)
                .await
                .map_err(|e| Fail::retry_after(e, Duration::ZERO))?;
            half.notify_one();
        }
    }
    println!("handler: done");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let db = rowlock_examples::database().await?;
    let client = &db.client;
    let half = Arc::new(Notify::new());
    let worker = Worker::builder(client.clone())
        .queue("default")
        .state(half.clone())
        .handle(export)
        .build()?
        .start()
        .await?;

    let id = client.enqueue(Export { rows: 400 }).await?.id;
    tokio::time::timeout(Duration::from_secs(20), half.notified()).await?;
    let job = client.job(id).await?.context("the job is live")?;
    let progress = job.progress.context("it has said how far it is")?;
    println!("operator: job is {}, {progress}; cancelling it", job.state);
    let answers = client.cancel(&[id]).await?;
    println!("operator: answer is {}", answers[0].answer);

    // The handler hears of it at once, gives up, and the job ends as cancelled.
    tokio::time::timeout(Duration::from_secs(20), worker.drained()).await?;
    worker.shutdown().await;
    let job = client.job(id).await?.context("the job is in the history")?;
    println!("operator: job is {}, {}", job.place, job.state);
    anyhow::ensure!(job.state == JobState::Cancelled);
    Ok(())
}
