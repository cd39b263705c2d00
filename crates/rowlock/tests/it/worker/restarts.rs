//! The database itself goes down: in good order, and by the plug. A restart costs retries, never a job.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rowlock::{Client, ConnInfo, Worker};
use rowlock_testkit::PrivatePostgres;
use tokio_postgres::NoTls;

use super::kit::{Note, SOON, Tally, note, start, within};

/// Enqueues one after the other until told to stop, and returns those that were acknowledged.
async fn produce(client: Client, stop: Arc<AtomicBool>) -> Vec<i64> {
    let (mut ids, mut errors) = (Vec::new(), 0);
    while !stop.load(SeqCst) {
        match client.enqueue_new(note(1)).await {
            Ok(enqueued) => ids.push(enqueued.id.0),
            Err(e) => {
                errors += 1;
                assert!(
                    e.is_retryable(),
                    "the database is down for a while, no more: {e}"
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(errors > 0, "it never noticed that the database was down");
    ids
}

async fn survives(down_and_up: impl Fn(&mut PrivatePostgres) + Send + Clone + 'static) {
    let mut postgres = PrivatePostgres::builder().fsync(false).start().unwrap();
    let url = postgres.url("postgres");
    let client = Client::builder()
        .lazy(ConnInfo::parse(&url).unwrap())
        .unwrap();
    client.migrate().await.unwrap();
    let told = Tally::new();
    let tally = told.clone();
    let builder = Worker::builder(client.clone())
        .queue("default")
        .concurrency(20)
        .lease(Duration::from_secs(1))
        .statement_timeout(Duration::from_secs(5))
        .handle(move |job: Note| {
            let told = tally.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                told.add(job.n);
            }
        });
    let worker = start(builder).await;
    let stop = Arc::new(AtomicBool::new(false));
    let producer = tokio::spawn(produce(client.clone(), stop.clone()));
    for _ in 0..3 {
        told.reach(told.len() + 100).await;
        let fall = down_and_up.clone();
        postgres = tokio::task::spawn_blocking(move || {
            fall(&mut postgres);
            postgres
        })
        .await
        .unwrap();
    }
    told.reach(told.len() + 100).await;
    stop.store(true, SeqCst);
    let ids = within(SOON, "the producer ends", producer).await.unwrap();

    let (sql, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let live: i64 = sql
            .query_one("select count(*) from rowlock.job", &[])
            .await
            .unwrap()
            .get(0);
        if live == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{live} jobs are left");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    within(SOON, "the worker stops", worker.shutdown()).await;
    let row = sql
        .query_one(
            "select count(*) filter (where f.id is null), count(*) - count(distinct f.id), (select count(*) from rowlock.dead) \
             from unnest($1::bigint[]) as i (id) left join rowlock.finished f on f.id = i.id and f.outcome = 'done'",
            &[&ids],
        )
        .await
        .unwrap();
    let (lost, twice, dead): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(
        (lost, twice, dead),
        (0, 0, 0),
        "of {} acknowledged jobs: lost, finished twice, dead",
        ids.len()
    );
    assert!(ids.len() >= 300, "only {} jobs", ids.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_in_good_order() {
    survives(|postgres| postgres.restart().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_work() {
    survives(|postgres| {
        postgres.kill9().unwrap();
        postgres.restart().unwrap();
    })
    .await;
}
