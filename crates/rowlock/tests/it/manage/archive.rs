use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use jiff::ToSpan;
use rowlock::Error;
use rowlock::manage::{JobInfo, JobState};
use tokio::io::AsyncWrite;

use super::{Bench, bench};

/// Finished and dead jobs of two queues that ended an hour ago and more.
async fn history(b: &Bench, jobs: i32) {
    b.sql(&format!(
        "insert into rowlock.finished (id, created_at, run_at, started_at, finished_at, worker, attempt, failures, crashes, priority, queue, kind, outcome,
                                       payload, tags, options, result)
         select nextval('rowlock.job_id'), now(), now(), now(), now() - interval '1 hour' - n % 7 * interval '1 second', 3, 1, 0, 0, 0, 'q' || n % 2, 'k', 'done',
                jsonb_build_object('n', n), '{{t}}', '{{\"max_attempts\": 3, \"trace\": \"x\"}}', '{{\"ok\": true}}'
           from generate_series(1, {jobs}) n;
         insert into rowlock.dead (id, created_at, run_at, died_at, worker, attempt, failures, crashes, priority, queue, kind, reason, payload, errors)
         select nextval('rowlock.job_id'), now(), now(), now() - interval '1 hour', 0, 1, 1, 0, 0, 'q' || n % 2, 'k', 'failed', '{{}}',
                jsonb_build_array(jsonb_build_object('attempt', 1, 'at', now(), 'worker', 0, 'error', 'boom'))
           from generate_series(1, {jobs}) n"
    ))
    .await;
}

async fn left(b: &Bench) -> (i64, i64) {
    (
        b.number("select count(*) from rowlock.finished").await,
        b.number("select count(*) from rowlock.dead").await,
    )
}

#[tokio::test]
async fn what_was_written_is_deleted_and_nothing_else() {
    let b = bench().await;
    history(&b, 2500).await;
    b.enqueue("q0", "k").await;
    b.finish("q0").await;
    let before = b.client.clock().await.unwrap() - 30.minutes();

    let mut lines = Vec::new();
    let mut batches = 0;
    let did = b
        .client
        .archive_to(&mut lines, before)
        .on_progress(|_| batches += 1)
        .await
        .unwrap();
    assert_eq!((did.archived, did.deleted), (2500, 2500));
    assert_eq!(did.bytes, lines.len() as u64);
    assert!(batches >= 3);
    assert_eq!(left(&b).await, (1, 2500));

    let text = String::from_utf8(lines).unwrap();
    let jobs: Vec<JobInfo> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(jobs.len(), 2500);
    assert!(jobs.is_sorted_by(|a, b| (a.ended_at, a.id) < (b.ended_at, b.id)));
    let one = &jobs[0];
    assert_eq!(one.state, JobState::Done);
    assert_eq!(
        (one.max_attempts, one.trace.as_deref()),
        (Some(3), Some("x"))
    );
    assert_eq!((&*one.tags[0], one.worker), ("t", Some(3)));
    assert_eq!(one.result.as_ref().unwrap().get(), "{\"ok\": true}");
}

#[tokio::test]
async fn the_dead_of_one_queue() {
    let b = bench().await;
    history(&b, 1200).await;
    let before = b.client.clock().await.unwrap();
    let mut lines = Vec::new();
    let did = b
        .client
        .archive_to(&mut lines, before)
        .only_dead()
        .queue("q1")
        .await
        .unwrap();
    assert_eq!((did.archived, did.deleted), (600, 600));
    assert_eq!(left(&b).await, (1200, 600));
    let line = lines.split(|c| *c == b'\n').next().unwrap();
    let job: JobInfo = serde_json::from_slice(line).unwrap();
    assert_eq!((job.state, &*job.queue), (JobState::Dead, "q1"));
    assert_eq!(job.last_error().unwrap().error, "boom");

    let did = b
        .client
        .archive_to(&mut lines, before)
        .with_dead()
        .await
        .unwrap();
    assert_eq!(did.deleted, 1800);
    assert_eq!(left(&b).await, (0, 0));
}

#[tokio::test]
async fn a_copy_deletes_nothing() {
    let b = bench().await;
    history(&b, 1500).await;
    let before = b.client.clock().await.unwrap();
    let did = b
        .client
        .archive_to(tokio::io::sink(), before)
        .with_dead()
        .copy_only()
        .await
        .unwrap();
    assert_eq!((did.archived, did.deleted), (3000, 0));
    assert_eq!(left(&b).await, (1500, 1500));
}

/// Takes some bytes, and then the disk is full; or refuses to flush.
struct Full {
    room: usize,
    flushes: usize,
}

impl AsyncWrite for Full {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.room < bytes.len() {
            return Poll::Ready(Err(io::ErrorKind::StorageFull.into()));
        }
        self.room -= bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.flushes == 0 {
            return Poll::Ready(Err(io::ErrorKind::StorageFull.into()));
        }
        self.flushes -= 1;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn what_could_not_be_written_or_flushed_is_kept() {
    let b = bench().await;
    history(&b, 2500).await;
    let before = b.client.clock().await.unwrap();
    let full = Full {
        room: 1000,
        flushes: 99,
    };
    let e = b.client.archive_to(full, before).await.unwrap_err();
    assert!(matches!(e, Error::Io { .. }), "{e}");
    assert!(e.to_string().starts_with("cannot write the archive"), "{e}");
    assert_eq!(left(&b).await, (2500, 2500));

    // The first batch is flushed, and gone; the second is written but not flushed, and stays.
    let full = Full {
        room: usize::MAX,
        flushes: 1,
    };
    let e = b.client.archive_to(full, before).await.unwrap_err();
    assert!(matches!(e, Error::Io { .. }), "{e}");
    assert_eq!(left(&b).await, (1500, 2500));
}

#[tokio::test]
async fn large_jobs_come_in_small_batches() {
    let b = bench().await;
    b.sql(
        "insert into rowlock.finished (id, created_at, run_at, finished_at, worker, attempt, failures, crashes, priority, queue, kind, outcome, payload)
         select n, now(), now(), now() - interval '1 hour', 0, 1, 0, 0, 0, 'q', 'k', 'done', jsonb_build_object('big', repeat('x', 100000))
           from generate_series(1, 20) n;
         insert into rowlock.dead (id, created_at, run_at, died_at, worker, attempt, failures, crashes, priority, queue, kind, reason, payload)
         select n, now(), now(), now() - interval '1 hour', 0, 1, 1, 0, 0, 'q', 'k', 'failed', jsonb_build_object('big', repeat('x', 100000))
           from generate_series(1, 20) n;",
    )
    .await;
    for place in ["finished", "dead"] {
        let mut next: Option<String> = None;
        let (mut jobs, mut rounds) = (0, 0);
        loop {
            let rows = b
                .pg
                .query(
                    "select id, next::text from rowlock.archive_batch($1, now(), max_bytes => 350000, from_next => $2::text::jsonb)",
                    &[&place, &next],
                )
                .await
                .unwrap();
            assert!(rows.len() <= 5, "four jobs, and how to go on");
            jobs += rows.len() - 1;
            rounds += 1;
            next = rows[rows.len() - 1].get(1);
            if next.is_none() {
                break;
            }
        }
        assert_eq!(jobs, 20, "{place}");
        assert!(rounds >= 5, "{place}");
    }
}

/// Between the writing and the deleting a dead job may be redriven, and die again with more to tell.
#[tokio::test]
async fn a_job_that_died_again_is_not_deleted() {
    let b = bench().await;
    b.enqueue("q", "k").await;
    let id = b.kill("q", "boom").await;
    b.client.retry(&[id]).await.unwrap();
    let earlier =
        b.pg.query_one(
            "select died_at - interval '1 second' from (select now() as died_at) x",
            &[],
        )
        .await
        .unwrap();
    let earlier: jiff::Timestamp = earlier.get(0);
    b.kill("q", "boom again").await;
    let deleted: i64 =
        b.pg.query_one(
            "select rowlock.archive_done('dead', array[$1::bigint], array[$2::timestamptz])",
            &[&id.0, &earlier],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(deleted, 0);
    assert!(b.client.job(id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_time_ahead_is_refused() {
    let b = bench().await;
    let ahead = b.client.clock().await.unwrap() + 1.hour();
    let e = b
        .client
        .archive_to(tokio::io::sink(), ahead)
        .await
        .unwrap_err();
    assert!(matches!(e, Error::Invalid(_)), "{e}");
}
