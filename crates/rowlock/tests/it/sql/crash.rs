//! A crash of Postgres itself: what was acknowledged stays, a claim may be forgotten, and the forgotten holder is kept out.

use rowlock::{Client, ConnInfo, NewJob};
use rowlock_testkit::PrivatePostgres;
use serde_json::json;
use tokio_postgres::NoTls;

use super::kit::{claim, complete, number, one, rows, run};

/// A claim that is forgotten is a matter of milliseconds; this many crashes without one would mean that claims wait for the disk.
const CRASHES_MAX: usize = 5;

async fn connect(url: &str) -> tokio_postgres::Client {
    let (pg, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .expect("the server answers");
    tokio::spawn(async move { drop(connection.await) });
    pg
}

#[tokio::test]
async fn a_crash_forgets_a_claim_and_the_token_keeps_its_holder_out() {
    // The writer of the log, which makes asynchronous commits durable, sleeps through the test.
    let mut server = PrivatePostgres::builder()
        .setting("wal_writer_delay", "10s")
        .setting("synchronous_commit", "on")
        .setting("fsync", "on")
        .setting("full_page_writes", "on")
        .start()
        .expect("a server of its own");
    let url = server.url("postgres");
    let client = Client::builder()
        .lazy(ConnInfo::parse(&url).expect("a good url"))
        .expect("good settings");
    client.migrate().await.expect("migrated");

    let mut completed = 0;
    for crash in 1..=CRASHES_MAX {
        let pg = connect(&url).await;
        let finished = client
            .enqueue_new(NewJob::new("finished before the crash", &json!({})).expect("a job"))
            .await
            .expect("durable")
            .id;
        let held = claim(&pg, "n => 1").await;
        assert_eq!(
            complete(&pg, &held).await,
            format!("{{{finished}}}|{{}}|{{}}")
        );
        completed += 1;
        let id = client
            .enqueue_new(NewJob::new("k", &json!({})).expect("a job"))
            .await
            .expect("durable")
            .id;
        let old = claim(&pg, "n => 1").await;
        assert_eq!(
            (old[0].id, old[0].attempt),
            (id.0, 1),
            "claimed, and committed asynchronously"
        );
        server.kill9().expect("killed");
        drop(pg);
        server.restart().expect("recovered");

        let pg = connect(&url).await;
        assert_eq!(
            number(&pg, "select count(*) from rowlock.finished").await,
            completed,
            "an acknowledged completion is never lost"
        );
        assert_eq!(
            rows(&pg, "select id from rowlock.job").await,
            [id.to_string()],
            "an acknowledged enqueue is never lost"
        );
        if one(&pg, "select attempt, token from rowlock.job").await != "0|0" {
            // This time the claim reached the disk. It is somebody's until its lease ends; finish it and try again.
            assert!(
                complete(&pg, &old).await.ends_with("|{}|{}"),
                "the holder is still the holder"
            );
            completed += 1;
            continue;
        }

        let new = claim(&pg, "n => 1").await;
        assert_eq!(
            (new[0].id, new[0].attempt),
            (id.0, 1),
            "crash {crash} forgot attempt 1, and attempt 1 is handed out again"
        );
        assert_ne!(new[0].token, old[0].token, "but never the same token");
        let before = one(&pg, "select j from rowlock.job j").await;
        let lost = format!("{{}}|{{{id}}}|{{}}");
        assert_eq!(
            complete(&pg, &old).await,
            lost,
            "the forgotten holder cannot complete it"
        );
        for ack in [
            "fail({}, '{x}')",
            "extend({})",
            "release({})",
            "snooze({}, '{0}')",
        ] {
            let call = ack.replacen("{}", &super::kit::named(&old), 1);
            assert_eq!(
                one(&pg, &format!("select done, lost, busy from rowlock.{call}")).await,
                lost,
                "nor {call}"
            );
        }
        assert_eq!(
            one(&pg, "select j from rowlock.job j").await,
            before,
            "and has changed nothing"
        );
        assert_eq!(
            complete(&pg, &new).await,
            format!("{{{id}}}|{{}}|{{}}"),
            "the new holder can"
        );
        run(&pg, "select rowlock.enqueue('k')").await;
        return;
    }
    panic!(
        "{CRASHES_MAX} crashes right after a claim, and none was forgotten: claims seem to wait for the disk"
    );
}
