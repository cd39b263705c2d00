//! A small believable workload: welcome emails, reports that take a while and say how far they are, a payment service that fails now and
//! then, and an import that can never succeed.

use std::time::Duration;

use rowlock::{Backoff, Client, Ctx, Done, Fail, Job, Queue, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "email.welcome", queue = "mail", priority = 1)]
struct WelcomeEmail {
    user_id: u32,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "report.monthly", queue = "reports", timeout = "30s")]
struct MonthlyReport {
    account: u32,
    pages: u32,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "payment.capture", queue = "payments", max_attempts = 6)]
struct CapturePayment {
    order: u32,
    cents: u32,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "import.legacy", queue = "imports", max_attempts = 2)]
struct LegacyImport {
    file: String,
}

async fn send_welcome(job: WelcomeEmail) {
    tokio::time::sleep(Duration::from_millis(20 + u64::from(job.user_id % 60))).await;
}

async fn write_report(job: MonthlyReport, ctx: Ctx) -> rowlock::Result<Done<u32>> {
    for page in 1..=job.pages {
        tokio::time::sleep(Duration::from_millis(150)).await;
        ctx.progress(&serde_json::json!({ "pages": page, "of": job.pages }))
            .await?;
    }
    Ok(Done(job.pages))
}

async fn capture(job: CapturePayment, ctx: Ctx) -> Result<(), Fail> {
    tokio::time::sleep(Duration::from_millis(40)).await;
    // Two of five calls fail; the same job fails at different attempts, so that most succeed in the end.
    if (job.order as i32 + ctx.attempt()) % 5 < 2 {
        return Err(Fail::retry_after(
            "the payment service answered 503",
            Duration::from_secs(2),
        ));
    }
    Ok(())
}

async fn import(job: LegacyImport) -> Result<(), String> {
    tokio::time::sleep(Duration::from_millis(80)).await;
    Err(format!(
        "{} is not in a format that anybody knows",
        job.file
    ))
}

/// A worker for all of it.
pub(super) fn worker(client: &Client) -> rowlock::Result<Worker> {
    Worker::builder(client.clone())
        .name("demo")
        .queue(Queue::named("mail").concurrency(20))
        .queue(Queue::named("payments").concurrency(10))
        .queue(Queue::named("reports").concurrency(4))
        .queue(Queue::named("imports").concurrency(2))
        .concurrency(30)
        .grace(Duration::from_secs(10))
        .handle(send_welcome)
        .handle(write_report)
        .handle(capture)
        .handle(import)
        .build()
}

/// Enqueues about `rate` jobs a second, until it is aborted.
pub(super) async fn produce(client: Client, rate: f64) {
    let mut tick = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
    for n in 0_u32.. {
        tick.tick().await;
        let enqueued = match n % 20 {
            0 => {
                client
                    .enqueue(LegacyImport {
                        file: format!("export-{n}.dat"),
                    })
                    .backoff(Backoff::fixed(Duration::from_secs(3)))
                    .await
            }
            1 | 2 => {
                client
                    .enqueue(MonthlyReport {
                        account: n,
                        pages: 4 + n % 8,
                    })
                    .await
            }
            3..=7 => {
                client
                    .enqueue(CapturePayment {
                        order: n,
                        cents: 100 + n,
                    })
                    .await
            }
            8 => {
                client
                    .enqueue(WelcomeEmail { user_id: n })
                    .delay(Duration::from_secs(5))
                    .await
            }
            _ => client.enqueue(WelcomeEmail { user_id: n }).await,
        };
        if let Err(e) = enqueued {
            tracing::error!(error = %e, "cannot enqueue");
        }
    }
}
