//! Many processes, and processes that die.
//!
//! The child processes are this test binary again, told by its environment what to do. They end when their standard input does, so
//! none outlives the test that started it.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rowlock::{Client, Ctx, Fail, State, Stopped, Worker, WorkerBuilder};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

use super::kit::{Bench, Note, SOON, note, notes, raw, within};

const MODE: &str = "ROWLOCK_TEST_CHILD";
const URL: &str = "ROWLOCK_TEST_CHILD_URL";
const REPORT: &str = "report:";

/// A child process.
struct Child {
    process: tokio::process::Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    fn spawn(bench: &Bench, mode: &str) -> Self {
        let me = std::env::current_exe().expect("this program has a path");
        let mut process = Command::new(me)
            .args([
                "--exact",
                "worker::processes::child",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(MODE, mode)
            .env(URL, bench.db.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this program can be started again");
        Self {
            stdin: process.stdin.take(),
            lines: BufReader::new(process.stdout.take().expect("it is piped")).lines(),
            process,
        }
    }

    /// Reads on until a line has this text in it.
    async fn line_with(&mut self, text: &str) -> String {
        let read = async {
            while let Some(line) = self.lines.next_line().await.expect("its output is text") {
                if line.contains(text) {
                    return line;
                }
            }
            panic!("the child ended without saying {text:?}");
        };
        within(SOON, &format!("the child says {text:?}"), read).await
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().expect("it is running").to_string();
        let sent = std::process::Command::new("kill")
            .args([signal, &pid])
            .status();
        assert!(sent.expect("there is a program kill").success());
    }

    /// Asks it to stop, and returns its report: jobs handled, interrupted, unsettled.
    async fn stop(mut self) -> [u64; 3] {
        drop(self.stdin.take());
        self.ended().await
    }

    async fn ended(mut self) -> [u64; 3] {
        let line = self.line_with(REPORT).await;
        let status = within(SOON, "the child ends", self.process.wait())
            .await
            .expect("it is ours");
        assert!(status.success(), "{status}");
        let numbers: Vec<u64> = line.split_once(REPORT).map_or(Vec::new(), |(_, rest)| {
            rest.split_whitespace()
                .filter_map(|n| n.parse().ok())
                .collect()
        });
        numbers.try_into().expect("three numbers")
    }
}

#[test]
#[ignore = "it is started by the other tests here, as a process of its own"]
fn child() {
    let (Ok(mode), Ok(url)) = (std::env::var(MODE), std::env::var(URL)) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let stopped = runtime.block_on(async {
        let client = Client::connect(&url).await.expect("the database is there");
        match mode.as_str() {
            "drain" => work(client, 5, |builder| builder.handle(|_: Note| async {})).await,
            "record" => {
                let sql = connect(&url).await;
                work(client, 2, |builder| {
                    builder
                        .concurrency(20)
                        .lease(Duration::from_secs(1))
                        .state(sql.clone())
                        .handle(record)
                })
                .await
            }
            "poison" => {
                work(client, 1, |builder| {
                    builder
                        .concurrency(1)
                        .lease(Duration::from_secs(1))
                        .handle(|_: Note| tokio::time::sleep(Duration::from_millis(1)))
                        .handle_kind("killer", |_, ctx: Ctx| async move {
                            if ctx.kind() == "killer" {
                                std::process::abort();
                            }
                        })
                })
                .await
            }
            "signals" => signals(client, connect(&url).await).await,
            other => panic!("nobody knows the mode {other}"),
        }
    });
    let handled: u64 = stopped.iter().map(|s| s.handled).sum();
    let interrupted: usize = stopped.iter().map(|s| s.interrupted).sum();
    let unsettled: usize = stopped.iter().map(|s| s.unsettled).sum();
    println!("\n{REPORT} {handled} {interrupted} {unsettled}");
}

type Sql = std::sync::Arc<tokio_postgres::Client>;

async fn connect(url: &str) -> Sql {
    let (sql, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .expect("the database is there");
    tokio::spawn(connection);
    sql.into()
}

/// Runs some workers until the standard input ends.
async fn work(
    client: Client,
    workers: usize,
    with: impl Fn(WorkerBuilder) -> WorkerBuilder,
) -> Vec<Stopped> {
    let end = CancellationToken::new();
    let ended = end.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended.cancel();
    });
    let mut handles = Vec::new();
    for _ in 0..workers {
        let builder = Worker::builder(client.clone())
            .queue("default")
            .without_maintenance();
        let worker = with(builder).build().expect("it is put together well");
        handles.push(worker.start().await.expect("it starts"));
    }
    end.cancelled().await;
    let mut stopped = Vec::new();
    for handle in handles {
        stopped.push(handle.shutdown().await);
    }
    stopped
}

/// Writes down that this attempt ran, and under which token.
async fn record(_: Note, ctx: Ctx, State(sql): State<Sql>) -> Result<(), tokio_postgres::Error> {
    let insert = "insert into ran (id, attempt, token) select id, attempt, token from rowlock.job where id = $1 and attempt = $2";
    sql.execute(insert, &[&ctx.id().0, &ctx.attempt()]).await?;
    Ok(())
}

/// One job that goes on until the table `go` has a row.
async fn signals(client: Client, sql: Sql) -> Vec<Stopped> {
    tracing_subscriber::fmt().with_ansi(false).init();
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(3);
    });
    let worker = Worker::builder(client)
        .queue("default")
        .grace(Duration::from_secs(3600))
        .state(sql)
        .handle(|_: Note, ctx: Ctx, State(sql): State<Sql>| async move {
            println!("\nhandler started");
            loop {
                tokio::select! {
                    reason = ctx.cancelled() => return Err(Fail::dead(format!("{reason:?}"))),
                    () = tokio::time::sleep(Duration::from_millis(50)) => {}
                }
                let rows = sql
                    .query("select from go", &[])
                    .await
                    .expect("the table is there");
                if !rows.is_empty() {
                    return Ok(());
                }
            }
        });
    let worker = worker.build().expect("it is put together well");
    vec![worker.run_until_signal().await.expect("it starts")]
}

#[tokio::test]
async fn twenty_workers_in_four_processes_run_every_job_exactly_once() {
    const JOBS: usize = 100_000;
    let bench = Bench::new().await;
    assert_eq!(bench.client.bulk(notes(JOBS)).await.unwrap(), JOBS as u64);
    let began = Instant::now();
    let children: Vec<Child> = (0..4).map(|_| Child::spawn(&bench, "drain")).collect();
    let live = "select exists (select from rowlock.job)";
    bench
        .until(Duration::from_secs(120), "all are done", live, "false")
        .await;
    eprintln!("{JOBS} jobs in {:?}", began.elapsed());
    let (mut ran, mut idle) = (0, 0);
    for child in children {
        let [handled, interrupted, unsettled] = child.stop().await;
        assert_eq!((interrupted, unsettled), (0, 0));
        ran += handled;
        idle += usize::from(handled == 0);
    }
    assert_eq!(ran, JOBS as u64, "each ran once");
    assert_eq!(idle, 0, "each process had its share");
    bench.assert_all_done(JOBS).await;
    assert_eq!(
        bench
            .number("select max(attempt) from rowlock.finished")
            .await,
        1
    );
}

#[tokio::test]
async fn processes_are_killed_and_replaced_and_no_job_is_lost_or_finished_twice() {
    const JOBS: usize = 20_000;
    let bench = Bench::new().await;
    // Everybody is killed here all the time, whatever they run.
    bench.set_queue(json!({"max_crashes": 1000})).await;
    let table = "create table ran (id bigint, attempt int, token bigint, at timestamptz default clock_timestamp())";
    bench.sql.batch_execute(table).await.unwrap();
    bench.client.bulk(notes(JOBS)).await.unwrap();
    let mut children: Vec<Child> = (0..4).map(|_| Child::spawn(&bench, "record")).collect();
    let ran = "select exists (select from ran)";
    bench.until(SOON, "the first has run", ran, "true").await;
    let (deadline, mut kills) = (Instant::now() + Duration::from_secs(100), 0);
    while bench.text("select exists (select from rowlock.job)").await == "true" {
        assert!(
            Instant::now() < deadline,
            "after {kills} kills {} jobs are left",
            bench.number("select count(*) from rowlock.job").await
        );
        if kills < 12 {
            let mut killed = children.remove(0);
            killed.process.kill().await.expect("it is ours");
            kills += 1;
            children.push(Child::spawn(&bench, "record"));
        }
        tokio::time::sleep(Duration::from_millis(900)).await;
    }
    for child in children {
        let [_, interrupted, unsettled] = child.stop().await;
        assert_eq!((interrupted, unsettled), (0, 0));
    }
    bench.assert_all_done(JOBS).await;

    let again = bench
        .number("select count(*) from rowlock.finished where attempt > 1")
        .await;
    eprintln!("{kills} kills, {again} jobs delivered again");
    assert!(
        kills > 0 && again > 0,
        "{kills} kills, {again} jobs delivered again"
    );
    let same = "select count(*) from (select from ran group by id having count(*) > count(distinct token) \
                or count(*) > count(distinct attempt)) t";
    assert_eq!(
        bench.number(same).await,
        0,
        "attempts that share a token or a number"
    );
    let back = "select count(*) from (select attempt, lag(attempt) over (partition by id order by at) as before from ran) t \
                where attempt <= before";
    assert_eq!(
        bench.number(back).await,
        0,
        "attempts whose number did not rise"
    );
    let missing = "select count(*) from rowlock.finished f where not exists \
                   (select from ran r where r.id = f.id and r.attempt = f.attempt)";
    assert_eq!(
        bench.number(missing).await,
        0,
        "attempts that finished without having run"
    );
}

#[tokio::test]
async fn a_job_that_kills_its_process_is_parked_and_its_neighbours_finish() {
    let bench = Bench::new().await;
    bench.set_queue(json!({"max_crashes": 3})).await;
    let neighbours: Vec<_> = notes(600).collect();
    bench.enqueue_all(neighbours[..300].iter().cloned()).await;
    let killer = bench.enqueue(raw("killer")).await;
    bench.enqueue_all(neighbours[300..].iter().cloned()).await;

    let (mut deaths, deadline) = (0, Instant::now() + Duration::from_secs(90));
    let mut child = Child::spawn(&bench, "poison");
    while bench.text("select exists (select from rowlock.job)").await == "true" {
        assert!(
            Instant::now() < deadline,
            "after {deaths} deaths there are still jobs"
        );
        let died = tokio::time::timeout(Duration::from_millis(100), child.process.wait()).await;
        if let Ok(status) = died {
            assert!(!status.expect("it is ours").success(), "it died of the job");
            deaths += 1;
            child = Child::spawn(&bench, "poison");
        }
    }
    child.stop().await;
    let dead = bench.dead(killer).await;
    assert_eq!(
        (&dead["reason"], &dead["crashes"], deaths),
        (&json!("poison"), &json!(3), 3)
    );
    assert_eq!(bench.counts().await, (0, 600, 1));
    // Those that waited in the process when it died are blamed for that once: after that they are not claimed ahead.
    let blamed = bench
        .number("select max(crashes) from rowlock.finished")
        .await;
    assert!(blamed <= 1, "a neighbour was blamed {blamed} times");
}

#[tokio::test]
async fn the_first_signal_lets_jobs_finish_and_the_second_does_not() {
    let bench = Bench::new().await;
    bench
        .sql
        .batch_execute("create table go (n int)")
        .await
        .unwrap();
    for hard in [true, false] {
        let id = bench.enqueue(note(1)).await;
        let mut child = Child::spawn(&bench, "signals");
        child.line_with("handler started").await;
        child.signal(if hard { "-INT" } else { "-TERM" });
        child.line_with("stopping: finishing what runs").await;
        if hard {
            child.signal("-TERM");
        } else {
            bench
                .sql
                .batch_execute("insert into go values (1)")
                .await
                .unwrap();
        }
        let report = child.ended().await;
        assert_eq!(report, [1, u64::from(hard), 0]);
        if hard {
            assert_eq!(bench.dead(id).await["errors"][0]["error"], "Shutdown");
        } else {
            assert_eq!(bench.finished(id).await["outcome"], "done");
        }
    }
}
