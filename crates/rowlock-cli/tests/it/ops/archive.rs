//! `rowlock archive`.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rowlock::manage::{JobInfo, JobState};
use rowlock_testkit::TestQueue;
use serde_json::json;

use super::support::{dead, drain, enqueue, redacted, rowlock, sql, state};

/// The jobs in an archive.
fn read(path: &Path) -> Vec<JobInfo> {
    let file = File::open(path).unwrap();
    let mut reader: Box<dyn Read> = match path.extension().unwrap().to_str().unwrap() {
        "gz" => Box::new(flate2::read::GzDecoder::new(file)),
        "zst" => Box::new(zstd::Decoder::new(file).unwrap()),
        _ => Box::new(file),
    };
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

async fn finished(queue: &TestQueue, name: &str, jobs: usize) {
    for n in 0..jobs {
        enqueue(queue, name, "email", json!({"n": n})).await;
    }
    drain(queue).await;
}

#[tokio::test]
async fn jobs_move_to_a_file_compressed_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["jobs.ndjson", "jobs.ndjson.gz", "jobs.ndjson.zst"] {
        let queue = TestQueue::new().await.unwrap();
        finished(&queue, "mail", 5).await;
        let failed = dead(&queue, "mail", "email", "no").await;
        let path = directory.path().join(name);
        let ran = rowlock(
            &queue,
            &["archive", path.to_str().unwrap(), "--older-than", "0s"],
        )
        .await
        .expect(0);
        assert!(
            ran.out.starts_with("5 jobs archived to ") && ran.out.contains("and deleted"),
            "{}",
            ran.out
        );
        let jobs = read(&path);
        assert_eq!(jobs.len(), 5);
        assert!(
            jobs.iter()
                .all(|job| job.state == JobState::Done && job.queue == "mail")
        );
        assert_eq!(state(&queue, jobs[0].id).await, None);
        assert_eq!(state(&queue, failed).await.as_deref(), Some("dead"));
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            1,
            "a temporary file is left"
        );
        fs::remove_file(&path).unwrap();
    }
}

#[tokio::test]
async fn only_what_is_asked_for_is_archived() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jobs.ndjson");
    let file = path.to_str().unwrap();
    let queue = TestQueue::new().await.unwrap();
    finished(&queue, "mail", 2).await;
    finished(&queue, "reports", 1).await;
    dead(&queue, "mail", "email", "no").await;

    let young = rowlock(&queue, &["archive", file, "--older-than", "1h"])
        .await
        .expect(3);
    assert!(young.err.contains("nothing to archive"), "{}", young.err);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);

    let copy = rowlock(
        &queue,
        &["archive", file, "--older-than", "0s", "--keep", "--json"],
    )
    .await
    .expect(0)
    .json();
    let mut copy = redacted(copy);
    copy["file"] = "[file]".into();
    for size in ["bytes", "file_bytes"] {
        assert!(copy[size].as_u64().unwrap() > 0);
        copy[size] = "[bytes]".into();
    }
    insta::assert_json_snapshot!(copy);
    assert_eq!(read(&path).len(), 3);

    queue
        .set_clock_ahead(Duration::from_secs(7200))
        .await
        .unwrap();
    let args = [
        "archive",
        file,
        "--force",
        "--older-than",
        "1h",
        "--queue",
        "mail",
        "--with-dead",
    ];
    rowlock(&queue, &args).await.expect(0);
    assert_eq!(read(&path).len(), 3);
    let rest = directory.path().join("rest.ndjson");
    rowlock(
        &queue,
        &["archive", rest.to_str().unwrap(), "--older-than", "0s"],
    )
    .await
    .expect(0);
    assert_eq!(read(&rest)[0].queue, "reports");
}

#[tokio::test]
async fn no_file_is_overwritten_by_accident() {
    let directory = tempfile::tempdir().unwrap();
    let queue = TestQueue::new().await.unwrap();
    finished(&queue, "mail", 1).await;
    let path = directory.path().join("jobs.ndjson");
    let file = path.to_str().unwrap();
    fs::write(&path, "precious").unwrap();
    let ran = rowlock(&queue, &["archive", file, "--older-than", "0s"])
        .await
        .expect(1);
    assert!(ran.err.contains("--force"), "{}", ran.err);
    fs::write(directory.path().join("jobs.ndjson.part"), "the only copy").unwrap();
    let ran = rowlock(&queue, &["archive", file, "--older-than", "0s", "--force"])
        .await
        .expect(1);
    assert!(ran.err.contains("only copy"), "{}", ran.err);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    assert_eq!(
        queue
            .client()
            .queue_stats("mail")
            .await
            .unwrap()
            .unwrap()
            .finished_hour,
        1
    );
}

#[tokio::test]
async fn what_was_written_before_a_failure_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let queue = TestQueue::new().await.unwrap();
    finished(&queue, "mail", 3).await;
    // The first batch is written, and then cannot be deleted.
    sql(&queue, "create rule none as on delete to rowlock.finished do instead nothing; drop function rowlock.archive_done").await;
    let path = directory.path().join("jobs.ndjson.gz");
    let ran = rowlock(
        &queue,
        &["archive", path.to_str().unwrap(), "--older-than", "0s"],
    )
    .await
    .expect(1);
    assert!(
        ran.err.contains("safe in") && ran.err.contains("jobs.ndjson.gz.part"),
        "{}",
        ran.err
    );
    assert!(!path.exists());
    fs::rename(directory.path().join("jobs.ndjson.gz.part"), &path).unwrap();
    assert_eq!(read(&path).len(), 3);
}

#[tokio::test]
async fn history_moves_to_a_table() {
    let queue = TestQueue::new().await.unwrap();
    sql(
        &queue,
        "select rowlock.make_partition('2020-01-01', 0);
         insert into rowlock.finished (id, created_at, run_at, finished_at, worker, attempt, failures, crashes, priority, queue, kind, outcome, payload)
         select n, '2020-01-01', '2020-01-01', '2020-01-01', 0, 1, 0, 0, 0, 'mail', 'k', 'done', '{}' from generate_series(1, 7) n",
    )
    .await;
    let ran = rowlock(&queue, &["archive", "--table"]).await.expect(0);
    assert!(
        ran.out
            .contains("finished_20200101: dropped, and 7 rows archived"),
        "{}",
        ran.out
    );
    let session = queue.db().connect().await.unwrap();
    let moved: i64 = session
        .query_one("select count(*) from rowlock.archive", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(moved, 7);
    let again = rowlock(&queue, &["archive", "--table", "--json"])
        .await
        .expect(0)
        .json();
    assert_eq!(again["partitions"], json!([]));
    let wrong = rowlock(&queue, &["archive", "--table", "no.where"])
        .await
        .expect(2);
    assert!(wrong.err.contains("is no table of"), "{}", wrong.err);
}
