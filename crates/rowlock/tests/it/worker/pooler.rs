//! Behind PgBouncer in transaction mode, where nothing of a session lasts.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rowlock::{Client, Ctx, Worker};
use rowlock_testkit::PrivatePostgres;
use tokio_postgres::NoTls;

use super::kit::{Note, SOON, Tally, note, notes, start, within};

const PROGRAM: &str = "/usr/sbin/pgbouncer";

struct PgBouncer {
    url: String,
    process: Child,
    _dir: tempfile::TempDir,
}

impl PgBouncer {
    fn before(postgres: &PrivatePostgres) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let (users, ini) = (dir.path().join("users"), dir.path().join("ini"));
        std::fs::write(&users, "\"postgres\" \"\"\n").unwrap();
        let settings = format!(
            "[databases]\npostgres = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\npool_mode = transaction\nauth_type = trust\nauth_file = {}\ndefault_pool_size = 4\n",
            postgres.port(),
            users.display()
        );
        std::fs::write(&ini, settings).unwrap();
        let mut command = Command::new(PROGRAM);
        if let Some((uid, gid)) = postgres_ids_if_root() {
            for path in [dir.path(), &users, &ini] {
                chown(path, Some(uid), Some(gid)).unwrap();
            }
            command.uid(uid).gid(gid);
        }
        command
            .arg(&ini)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let bouncer = Self {
            url: format!("postgres://postgres@127.0.0.1:{port}/postgres"),
            process: command.spawn().unwrap(),
            _dir: dir,
        };
        let deadline = Instant::now() + SOON;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "PgBouncer does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        bouncer
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// PgBouncer refuses to run as root; the user of Postgres will do.
fn postgres_ids_if_root() -> Option<(u32, u32)> {
    let id = |args: &[&str]| -> Option<u32> {
        let output = Command::new("id").args(args).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    (id(&["-u"])? == 0).then(|| {
        let user =
            |what| id(&[what, "postgres"]).expect("a user postgres, as root must not run it");
        (user("-u"), user("-g"))
    })
}

/// What was logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_worker_runs_behind_a_pooler_and_says_what_that_costs() {
    if !Path::new(PROGRAM).exists() {
        eprintln!("skipped: there is no {PROGRAM} on this machine");
        return;
    }
    let postgres = PrivatePostgres::builder()
        .fsync(false)
        .tcp(true)
        .start()
        .unwrap();
    let bouncer = PgBouncer::before(&postgres);
    let direct = Client::builder()
        .lazy(rowlock::ConnInfo::parse(&postgres.url("postgres")).unwrap())
        .unwrap();
    direct.migrate().await.unwrap();

    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);

    let client = Client::connect(&bouncer.url).await.unwrap();
    let told = Tally::new();
    let tally = told.clone();
    let builder = Worker::builder(client.clone())
        .queue("default")
        .poll(Duration::from_millis(100))
        .lease(Duration::from_secs(1))
        .handle(move |job: Note, ctx: Ctx| {
            let told = tally.clone();
            async move {
                if job.n == 100 {
                    // Longer than its lease.
                    let told =
                        tokio::time::timeout(Duration::from_millis(2500), ctx.cancelled()).await;
                    assert!(
                        told.is_err(),
                        "its lease is renewed through the pooler: {told:?}"
                    );
                    ctx.progress(&1).await?;
                    ctx.once("x", || async { Ok::<_, rowlock::Error>(1) })
                        .await?;
                }
                told.add(job.n);
                Ok::<_, rowlock::Error>(())
            }
        });
    let worker = start(builder).await;
    client.enqueue_new(note(100)).await.unwrap();
    client.enqueue_all(notes(50)).await.unwrap();
    client
        .enqueue_all((0..50).map(|n| {
            note(n)
                .queue(if n % 2 == 0 { "default" } else { "else" })
                .unique(n.to_string())
        }))
        .await
        .unwrap();
    assert_eq!(client.bulk(notes(100)).await.unwrap(), 100);
    told.reach(176).await;
    assert!(!worker.is_listening());
    within(SOON, "the queue is drained", worker.drained()).await;
    let stopped = within(SOON, "the worker stops", worker.shutdown()).await;
    assert_eq!((stopped.handled, stopped.unsettled), (176, 0));
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        text.lines()
            .any(|l| l.contains("WARN") && l.contains("pooler")),
        "it warns: {text}"
    );

    let (sql, connection) = tokio_postgres::connect(&postgres.url("postgres"), NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let row = sql
        .query_one(
            "select count(*), max(attempt) from rowlock.finished where outcome = 'done'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i32>(1)), (176, 1));
}
