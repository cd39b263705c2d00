//! Wake-up: by the bell, by the poll, by the time that a job is due.

use std::time::{Duration, Instant};

use super::kit::{Bench, Note, SOON, Tally, note, start, within};

const HOUR: Duration = Duration::from_secs(3600);

/// A worker that tells the notes it runs.
fn telling(builder: rowlock::WorkerBuilder, told: &Tally) -> rowlock::WorkerBuilder {
    let told = told.clone();
    builder.handle(move |job: Note| {
        told.add(job.n);
        async {}
    })
}

#[tokio::test]
async fn an_idle_worker_is_rung_up() {
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let told = Tally::new();
    let worker = start(telling(bench.worker().poll(HOUR), &told)).await;
    let mut quick = 0;
    for n in 0..6 {
        bench.until_armed(&worker).await;
        let enqueued = Instant::now();
        bench.enqueue(note(n)).await;
        told.reach(usize::try_from(n).unwrap() + 1).await;
        quick += usize::from(enqueued.elapsed() < Duration::from_millis(400));
    }
    // Apart from the bell, it looks only when it arms again, after 6 to 8 s.
    assert!(quick >= 4, "only {quick} of 6 were started at once");
    bench.finish(&worker).await;
}

/// The bell stays armed while jobs come and go: whenever the next one comes, before, while or after the worker looks, it is rung for.
#[tokio::test]
async fn jobs_that_come_and_go_are_all_rung_for() {
    const JOBS: usize = 150;
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let told = Tally::new();
    let worker = start(telling(bench.worker().poll(HOUR), &told)).await;
    bench.until_armed(&worker).await;
    let mut slow = Vec::new();
    for n in 0..JOBS {
        let enqueued = Instant::now();
        bench.enqueue(note(i64::try_from(n).unwrap())).await;
        told.reach(n + 1).await;
        if enqueued.elapsed() > Duration::from_secs(1) {
            slow.push((n, enqueued.elapsed()));
        }
        // Nothing is waited for: the next one comes at another moment of the worker's look.
        tokio::time::sleep(Duration::from_micros(u64::try_from(n % 10).unwrap() * 700)).await;
    }
    // Who is not rung for waits until the bell is armed again, for most of 8 s.
    assert!(slow.len() <= 2, "started late: {slow:?}");
    bench.finish(&worker).await;
}

/// Two producers may commit in another order than they read the clock, and the second may ring while nobody waits for it.
#[tokio::test]
async fn jobs_that_commit_out_of_order_are_found_soon() {
    const PAIRS: i64 = 60;
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let other = bench.db.connect().await.expect("a connection");
    let told = Tally::new();
    let worker = start(telling(bench.worker().poll(HOUR), &told)).await;
    bench.until_armed(&worker).await;
    let mut slow = Vec::new();
    for n in 0..PAIRS {
        let earlier = format!(
            "begin; select rowlock.enqueue('note', '{{\"n\": {}}}')",
            2 * n
        );
        other.batch_execute(&earlier).await.expect("it is enqueued");
        let enqueued = Instant::now();
        let commit = async {
            // As above: at another moment each time.
            tokio::time::sleep(Duration::from_micros(u64::try_from(n % 20).unwrap() * 200)).await;
            other
                .batch_execute("commit")
                .await
                .expect("it is committed");
        };
        tokio::join!(bench.enqueue(note(2 * n + 1)), commit);
        told.reach(usize::try_from(2 * n + 2).unwrap()).await;
        if enqueued.elapsed() > Duration::from_secs(1) {
            slow.push((n, enqueued.elapsed()));
        }
    }
    // Who is missed waits until somebody else rings, or until the bell is armed again and somebody looks.
    assert!(slow.len() <= 2, "found late: {slow:?}");
    bench.finish(&worker).await;
}

#[tokio::test]
async fn a_bell_that_rings_too_often_is_disarmed() {
    let bench = Bench::new().await;
    let told = Tally::new();
    let worker = start(telling(bench.worker(), &told)).await;
    bench.until_armed(&worker).await;
    // Each ring in a commit of its own: in one, the same message is sent once.
    let ring = "do $$ begin for n in 1 .. 60 loop perform pg_notify('rowlock', 'ring default'); commit; end loop; end $$";
    let listener = bench.db.connect().await.expect("a connection");
    let silent = "select pg_sequence_last_value(('rowlock.bell_' || no % 32)::regclass) = 0 from rowlock.queue where name = 'default'";
    let disarmed = async {
        for n in 1.. {
            listener.batch_execute(ring).await.expect("it rings");
            bench.enqueue(note(n)).await;
            if bench.text(silent).await == "true" {
                return;
            }
        }
    };
    within(SOON, "the bell is disarmed", disarmed).await;
    // Afterwards it is quiet, and armed again.
    bench.until_armed(&worker).await;
    bench.finish(&worker).await;
}

/// An arming lasts 3.5 s and was renewed with the poll: with a slow poll, nobody rang any more after that.
#[tokio::test]
async fn the_bell_stays_armed_however_rarely_the_worker_polls() {
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let told = Tally::new();
    let worker = start(telling(bench.worker().poll(HOUR), &told)).await;
    bench.until_armed(&worker).await;
    let lapsed = "select pg_sequence_last_value(('rowlock.bell_' || no % 32)::regclass) \
                  < extract(epoch from clock_timestamp()) * 1000 from rowlock.queue where name = 'default'";
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        assert_eq!(
            bench.text(lapsed).await,
            "false",
            "the arming has lapsed after {:?}",
            began.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bench.enqueue(note(1)).await;
    told.reach(1).await;
    bench.finish(&worker).await;
}

/// The race that the settling is for: the producer looked at the bell before it was armed, and commits after the worker's look at
/// the table.
#[tokio::test]
async fn a_producer_that_looked_before_the_arming_is_not_missed() {
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let told = Tally::new();
    // A queue that is made by the open transaction has no bell yet.
    bench.set_queue(serde_json::json!({})).await;
    for round in 0..3 {
        let mut producer = bench.db.connect().await.unwrap();
        let tx = producer.transaction().await.unwrap();
        let enqueue = format!("select rowlock.enqueue('note', '{{\"n\": {round}}}')");
        tx.batch_execute(&enqueue).await.unwrap();
        let worker = start(telling(bench.worker().poll(HOUR), &told)).await;
        let armed = "select pg_sequence_last_value(('rowlock.bell_' || no % 32)::regclass) \
                     > extract(epoch from clock_timestamp()) * 1000 from rowlock.queue where name = 'default'";
        bench.until(SOON, "the bell is armed", armed, "true").await;
        let armed = Instant::now();
        tx.commit().await.unwrap();
        told.reach(round + 1).await;
        // Otherwise it would have been found by the look that comes with the next arming, seconds after the first.
        let after = armed.elapsed();
        assert!(
            after < Duration::from_millis(2000),
            "found only after {after:?}"
        );
        bench.finish(&worker).await;
        bench
            .sql
            .batch_execute("select rowlock.disarm('{default}')")
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn polling_alone_will_do() {
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let told = Tally::new();
    let builder = bench.worker().poll_only().poll(Duration::from_millis(50));
    let worker = start(telling(builder, &told)).await;
    within(SOON, "it is idle", worker.drained()).await;
    for n in 0..3 {
        bench.enqueue(note(n)).await;
        told.reach(usize::try_from(n).unwrap() + 1).await;
        assert!(!worker.is_listening());
    }
    bench.finish(&worker).await;
    let armed = "select max(last_value) from pg_sequences where schemaname = 'rowlock' and sequencename like 'bell%'";
    assert_eq!(
        bench.text(armed).await,
        "null",
        "nobody armed a bell that is not heard"
    );
}

#[tokio::test]
async fn scheduled_jobs_start_when_they_are_due_and_not_before() {
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let told = Tally::new();
    let worker = start(telling(bench.worker(), &told)).await;
    bench.until_armed(&worker).await;
    // The second is due first; the third never.
    let ids = bench
        .enqueue_all(
            [1500, 700, 3_600_000].map(|ms| note(ms).delay(Duration::from_millis(ms as u64))),
        )
        .await;
    assert_eq!(told.reach(2).await, [700, 1500]);
    within(SOON, "the second is acknowledged", worker.drained()).await;
    for id in &ids[..2] {
        let late = format!(
            "select extract(epoch from started_at - run_at) from rowlock.finished where id = {id}"
        );
        let late: f64 = bench.text(&late).await.parse().unwrap();
        assert!(
            (0.0..1.9).contains(&late),
            "it started {late} s after it was due"
        );
    }
    bench.finish(&worker).await;
    assert!(bench.live(ids[2]).await.is_some());
}

/// A worker that waits knows when the next job is due, and does not find it by luck.
#[tokio::test]
async fn a_job_scheduled_before_the_worker_went_idle_starts_on_time() {
    let bench = Bench::new().await;
    bench.without_sweeps().await;
    let told = Tally::new();
    let id = bench
        .enqueue(note(1).delay(Duration::from_millis(1200)))
        .await;
    let worker = start(telling(bench.worker().poll(HOUR), &told)).await;
    told.reach(1).await;
    bench.finish(&worker).await;
    let late = format!(
        "select extract(epoch from started_at - run_at) from rowlock.finished where id = {id}"
    );
    let late: f64 = bench.text(&late).await.parse().unwrap();
    assert!(
        (0.0..0.7).contains(&late),
        "it started {late} s after it was due"
    );
}

/// A new queue of a pattern was not armed until the next poll.
#[tokio::test]
async fn the_bell_of_a_new_queue_is_armed_too() {
    let bench = Bench::new().await;
    let told = Tally::new();
    let builder = rowlock::Worker::builder(bench.client.clone())
        .queue("new-*")
        .poll(HOUR);
    let worker = start(telling(builder, &told)).await;
    bench.enqueue(note(1).queue("new-1")).await;
    told.reach(1).await;
    let armed = "select pg_sequence_last_value(('rowlock.bell_' || no % 32)::regclass) \
                 > extract(epoch from clock_timestamp()) * 1000 + 500 from rowlock.queue where name = 'new-1'";
    bench
        .until(Duration::from_secs(5), "its bell is armed", armed, "true")
        .await;
    let enqueued = Instant::now();
    bench.enqueue(note(2).queue("new-1")).await;
    told.reach(2).await;
    assert!(enqueued.elapsed() < SOON);
    bench.finish(&worker).await;
}
