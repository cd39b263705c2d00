//! A bad network between the worker and its database: no job is lost or done twice, and the worker is never stuck.

use std::time::Duration;

use rowlock::{Client, Ctx, Worker, WorkerBuilder};
use rowlock_testkit::{Direction, FaultProxy};

use super::kit::{Bench, Note, SOON, Tally, note, notes, start, within};

const SECOND: Duration = Duration::from_secs(1);
/// Everything that was cut off, timed out and expired has come back after this.
const RECOVERED: Duration = Duration::from_secs(60);

struct Shaky {
    bench: Bench,
    proxy: FaultProxy,
    client: Client,
    told: Tally,
}

impl Shaky {
    async fn new() -> Self {
        let bench = Bench::new().await;
        // A claim whose answer is lost looks like a crash of its worker, and here that happens often.
        bench
            .set_queue(serde_json::json!({"max_crashes": 1000}))
            .await;
        let proxy = FaultProxy::before(bench.db.url()).await.unwrap();
        let client = Client::connect(&proxy.url()).await.unwrap();
        Self {
            bench,
            proxy,
            client,
            told: Tally::new(),
        }
    }

    fn worker(&self) -> WorkerBuilder {
        let told = self.told.clone();
        Worker::builder(self.client.clone())
            .queue("default")
            .concurrency(10)
            .lease(SECOND)
            .statement_timeout(SECOND)
            .without_maintenance()
            .handle(move |job: Note, _: Ctx| {
                let told = told.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    told.add(job.n);
                }
            })
    }

    /// Waits until all are done, each once, with the fault gone.
    async fn all_done(&self, jobs: usize) {
        let live = "select count(*) from rowlock.job";
        self.bench
            .until(RECOVERED, "no job is left", live, "0")
            .await;
        self.bench.assert_all_done(jobs).await;
    }
}

#[tokio::test]
async fn connections_reset_in_the_middle_of_messages() {
    let shaky = Shaky::new().await;
    let worker = start(shaky.worker()).await;
    shaky.bench.enqueue_all(notes(1500)).await;
    for round in 0..25_u64 {
        let (n, direction) = match round % 2 {
            0 => (50 + 613 * round, Direction::ToClient),
            _ => (20 + 311 * round, Direction::ToServer),
        };
        shaky.proxy.reset_after(n, direction).await;
        let cut = tokio::time::timeout(SECOND, shaky.proxy.wait_for_cuts(round + 1)).await;
        if cut.is_err() {
            // Too little passes while it connects again: cut them all.
            shaky.proxy.pass().await;
            shaky.proxy.reset().await;
        }
        shaky.bench.enqueue_all(notes(20)).await;
    }
    assert!(shaky.proxy.cuts() >= 5, "only {} cuts", shaky.proxy.cuts());
    shaky.proxy.pass().await;
    shaky.all_done(1500 + 25 * 20).await;
    shaky.bench.finish(&worker).await;
}

#[tokio::test]
async fn all_connections_reset_while_jobs_flow() {
    let shaky = Shaky::new().await;
    let worker = start(shaky.worker()).await;
    for round in 0..10 {
        shaky.bench.enqueue_all(notes(100)).await;
        // Something has moved since the last time.
        shaky.told.reach_within(RECOVERED, 40 * round + 1).await;
        shaky.proxy.reset().await;
    }
    shaky.all_done(1000).await;
    shaky.bench.finish(&worker).await;
}

#[tokio::test]
async fn a_peer_that_never_answers() {
    let shaky = Shaky::new().await;
    let worker = start(shaky.worker()).await;
    for round in 0..3_usize {
        shaky.bench.enqueue_all(notes(200)).await;
        shaky.told.reach_within(RECOVERED, 150 * round + 1).await;
        let connected = shaky.proxy.accepted();
        shaky.proxy.half_open().await;
        // It has given up on connections that do not answer, and has tried new ones.
        within(
            SOON,
            "it connects again",
            shaky.proxy.wait_for_accepted(connected + 2),
        )
        .await;
        shaky.proxy.pass().await;
    }
    shaky.all_done(600).await;
    shaky.bench.finish(&worker).await;
}

#[tokio::test]
async fn a_slow_network() {
    let shaky = Shaky::new().await;
    shaky.proxy.delay(Duration::from_millis(30)).await;
    let worker = start(shaky.worker().statement_timeout(10 * SECOND)).await;
    shaky.bench.enqueue_all(notes(300)).await;
    shaky.all_done(300).await;
    within(SOON, "it stops", worker.shutdown()).await;
    let once = "select max(attempt) from rowlock.finished";
    assert_eq!(shaky.bench.number(once).await, 1, "slow is not broken");
}

/// It claimed as much ahead as the handlers finish in 30 ms: with claims that take longer, that was nothing.
#[tokio::test]
async fn a_slow_network_does_not_keep_a_worker_at_one_job_for_each_claim() {
    let shaky = Shaky::new().await;
    shaky.proxy.delay(Duration::from_millis(50)).await;
    let told = shaky.told.clone();
    let builder = Worker::builder(shaky.client.clone())
        .queue("default")
        .concurrency(1)
        .handle(move |job: Note| {
            told.add(job.n);
            async {}
        });
    let worker = start(builder).await;
    shaky.bench.enqueue_all(notes(2000)).await;
    // One for each claim would take 200 s.
    shaky.told.reach_within(RECOVERED, 2000).await;
    within(SOON, "it stops", worker.shutdown()).await;
    shaky.bench.assert_all_done(2000).await;
}

#[tokio::test]
async fn a_database_that_refuses_for_a_while() {
    let shaky = Shaky::new().await;
    let worker = start(shaky.worker()).await;
    for _ in 0..2 {
        shaky.bench.enqueue_all(notes(300)).await;
        shaky.told.reach(shaky.told.len() + 1).await;
        shaky.proxy.refuse().await;
        shaky.proxy.reset().await;
        // Handlers that were running still end; then nothing moves.
        within(SOON, "the handlers end", async {
            while worker.running() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        assert!(
            shaky
                .client
                .enqueue_new(note(0))
                .await
                .is_err_and(|e| e.is_retryable())
        );
        shaky.proxy.pass().await;
    }
    shaky.all_done(600).await;
    assert!(worker.is_listening(), "it listens again");
    shaky.bench.finish(&worker).await;
}
