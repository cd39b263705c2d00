//! `rowlock bench`: every scenario with a few jobs. What is measured is not looked at, only that it is there.

use std::process::Stdio;

use rowlock_testkit::TestQueue;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::support::{DEADLINE, Ran, program, run};

/// Few and short, so that it is quick.
const JOBS: [&str; 2] = ["--jobs", "300"];
const AT_A_RATE: [&str; 4] = ["--rate", "400", "--duration", "300ms"];
const SAMPLES: [&str; 2] = ["--samples", "5"];

async fn bench(queue: &TestQueue, arguments: &[&str]) -> Ran {
    let mut command = program(
        std::env::temp_dir().as_path(),
        &[&["bench"], arguments].concat(),
    );
    command.env("DATABASE_URL", queue.db().url());
    run(command).await
}

/// Measures one scenario, checks what every report and every line has, and returns the lines.
async fn lines(scenario: &str, arguments: &[&str]) -> Vec<Value> {
    let queue = TestQueue::new().await.unwrap();
    let ran = bench(&queue, &[&[scenario, "--json"], arguments].concat()).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    for field in [
        "version",
        "at",
        "server",
        "settings",
        "cores",
        "optimised",
        "load_before",
        "rounds",
        "place",
        "options",
    ] {
        assert!(!report[field].is_null(), "{field}: {report}");
    }
    assert!(report["failed"].is_null(), "{report}");
    let lines = report["lines"].as_array().expect("lines").clone();
    for line in &lines {
        assert_eq!(line["scenario"], scenario);
        assert!(line["case"].is_string() && line["jobs"].is_u64(), "{line}");
    }
    nothing_is_left(&queue).await;
    lines
}

async fn nothing_is_left(queue: &TestQueue) {
    let client = queue.db().connect().await.unwrap();
    let sql = "select (select count(*) from pg_namespace where nspname = 'rowlock_bench')
                    + (select count(*) from pg_extension where extname = 'pg_walinspect')";
    let left: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(left, 0, "a schema or an extension is left behind");
}

#[track_caller]
fn assert_cases(lines: &[Value], cases: &[&str]) {
    let found: Vec<&str> = lines.iter().filter_map(|l| l["case"].as_str()).collect();
    assert_eq!(found, cases);
}

/// All of these are numbers, and none is negative.
#[track_caller]
fn assert_figures(line: &Value, names: &[&str]) {
    for name in names {
        assert!(
            line[name].as_f64().is_some_and(|v| v >= 0.0),
            "{name}: {line}"
        );
    }
}

/// What every throughput has.
const COST: [&str; 8] = [
    "seconds",
    "per_second",
    "client_cpu_us",
    "postgres_cpu_us",
    "wal_bytes",
    "table_bytes_before",
    "table_bytes_after",
    "index_bytes_after",
];
const STARTS: [&str; 5] = [
    "start_p50_ms",
    "start_p90_ms",
    "start_p99_ms",
    "start_p999_ms",
    "start_max_ms",
];

#[tokio::test]
async fn floor() {
    let lines = lines("floor", &JOBS).await;
    assert_cases(
        &lines,
        &[
            "COPY in, 1 connection",
            "COPY in, 4 connections",
            "claim and delete",
        ],
    );
    for line in &lines {
        assert_figures(line, &COST);
        assert_eq!(line["jobs"], 300);
    }
}

#[tokio::test]
async fn enqueue() {
    let lines = lines("enqueue", &[&JOBS[..], &["--producers", "1,3"]].concat()).await;
    assert_cases(
        &lines,
        &[
            "plain INSERT, 1 producer",
            "one by one, 1 producer",
            "plain INSERT, 3 producers",
            "one by one, 3 producers",
            "plain INSERT, 1 producer, a worker busy",
            "one by one, 1 producer, a worker busy",
            "plain INSERT, 3 producers, a worker busy",
            "one by one, 3 producers, a worker busy",
            "in a transaction: alone, 1 caller",
            "in a transaction: and a prepared INSERT, 1 caller",
            "in a transaction: and a plain INSERT, 1 caller",
            "in a transaction: and a job, 1 caller",
            "in a transaction: alone, 3 callers",
            "in a transaction: and a prepared INSERT, 3 callers",
            "in a transaction: and a plain INSERT, 3 callers",
            "in a transaction: and a job, 3 callers",
            "plain INSERT of 100 rows, 1 producer",
            "batches of 100, 1 producer",
            "plain INSERT of 100 rows, 3 producers",
            "batches of 100, 3 producers",
            "by COPY, 1 producer",
            "by COPY, 3 producers",
        ],
    );
    for line in &lines {
        assert_figures(line, &COST);
        if line["case"].as_str().unwrap().starts_with("one by one") {
            assert_figures(line, &["of_plain"]);
        }
    }
    assert_figures(&lines[11], &["of_plain", "of_prepared", "of_alone"]);
}

#[tokio::test]
async fn drain_without_and_with_history() {
    let lines = lines("drain", &[&JOBS[..], &["--payload", "500"]].concat()).await;
    assert_cases(&lines, &["history off", "history kept"]);
    for line in &lines {
        assert_figures(line, &COST);
    }
    let kept = |n: usize| lines[n]["history_bytes_after"].as_f64().unwrap();
    assert!(kept(1) > kept(0), "{lines:?}");
}

#[tokio::test]
async fn steady() {
    let lines = lines("steady", &[&JOBS[..], &AT_A_RATE, &["--history"]].concat()).await;
    assert_cases(
        &lines,
        &[
            "flat out",
            "at 400 a second",
            "10 ms handlers, 1,000 at a time",
        ],
    );
    assert_figures(&lines[0], &COST);
    assert_figures(&lines[1], &STARTS);
    assert_figures(
        &lines[1],
        &["offered_per_second", "of_offered", "late_max_ms"],
    );
    assert_eq!(lines[1]["jobs"], 120, "400 a second for 300 ms");
    assert_windows(&lines[1]);
    assert_figures(&lines[2], &["of_possible", "handlers_allow_per_second"]);
}

#[track_caller]
fn assert_windows(line: &Value) {
    let windows = line["windows"].as_array().expect("windows");
    assert_eq!(windows.len(), 10);
    for window in windows {
        assert_figures(window, &["from_s", "to_s", "start_p99_ms"]);
    }
    // In a short stretch on a slow machine nothing may be handled, and then nothing costs anything for each job.
    let costs = windows.iter().filter(|w| w["postgres_cpu_us"].is_f64());
    assert!(costs.count() > 0, "{windows:?}");
}

#[tokio::test]
async fn latency_to_the_start_and_to_the_completion() {
    let lines = lines("latency", &[&SAMPLES[..], &["--idle", "100ms"]].concat()).await;
    assert_cases(&lines, &["idle queue, after 100ms"]);
    assert_eq!(lines[0]["jobs"], 5);
    assert_figures(&lines[0], &STARTS);
    assert_figures(
        &lines[0],
        &[
            "postgres_cpu_us",
            "wal_bytes",
            "done_p50_ms",
            "done_p90_ms",
            "done_p99_ms",
            "done_p999_ms",
            "done_max_ms",
            "first_start_ms",
            "first_done_ms",
        ],
    );
    let ms = |name: &str| lines[0][name].as_f64().unwrap();
    assert!(ms("start_max_ms") <= ms("done_max_ms"), "{lines:?}");
}

#[tokio::test]
async fn pinned() {
    let lines = lines("pinned", &[&JOBS[..], &AT_A_RATE].concat()).await;
    assert_cases(
        &lines,
        &[
            "400 a second, held back by nobody",
            "400 a second, held back by a reader",
            "400 a second, held back by a writer",
            "drain first, held back by nobody",
            "drain again, over its dead rows, held back by nobody",
            "drain first, held back by a reader",
            "drain again, over its dead rows, held back by a reader",
            "drain first, held back by a writer",
            "drain again, over its dead rows, held back by a writer",
        ],
    );
    for line in &lines[..3] {
        assert_windows(line);
    }
    assert_figures(
        &lines[1],
        &[
            "start_p99_of_clean",
            "start_p99_worst_of_clean",
            "postgres_cpu_of_clean",
            "postgres_cpu_worst_of_clean",
        ],
    );
    assert_figures(&lines[8], &["of_clean"]);
}

#[tokio::test]
async fn backlog() {
    let lines = lines("backlog", &["--jobs", "20k"]).await;
    assert_cases(&lines, &["10,000 waiting", "20,000 waiting"]);
    for line in &lines {
        assert_figures(line, &COST);
        assert_figures(
            line,
            &[
                "claim_p50_ms",
                "simple_claim_p50_ms",
                "worker_rss_start_bytes",
                "worker_rss_max_bytes",
            ],
        );
    }
    assert_figures(&lines[1], &["claim_of_small", "worker_rss_of_small"]);
}

#[tokio::test]
async fn processes() {
    let lines = lines("processes", &JOBS).await;
    assert_cases(
        &lines,
        &["1 process", "2 processes", "4 processes", "8 processes"],
    );
    for line in &lines {
        assert_figures(line, &COST);
        assert_figures(line, &["of_one"]);
    }
    // Of two, half is one.
    let with_half: Vec<_> = lines.iter().map(|l| l["of_half"].is_number()).collect();
    assert_eq!(with_half, [false, false, true, true], "{lines:?}");
}

/// Each round begins with another number of processes; the report has them in the order in which they were asked for.
#[tokio::test]
async fn as_many_processes_as_are_asked_for() {
    let chosen = ["--processes", "3,1", "--rounds", "2"];
    let chosen = lines("processes", &[&JOBS[..], &chosen].concat()).await;
    assert_cases(&chosen, &["3 processes", "1 process"]);
    for line in &chosen {
        assert_eq!(line["rounds"], 2);
        assert_figures(line, &["of_one"]);
    }
    assert_eq!(chosen[1]["of_one"], 1.0);
    let without_one = lines("processes", &[&JOBS[..], &["--processes", "2"]].concat()).await;
    assert!(without_one[0]["of_one"].is_null(), "{without_one:?}");
}

#[tokio::test]
async fn mixed() {
    let lines = lines("mixed", &JOBS).await;
    assert_eq!(lines.len(), 1);
    assert_figures(&lines[0], &COST);
}

#[tokio::test]
async fn features() {
    let lines = lines("features", &JOBS).await;
    assert_eq!(lines[0]["case"], "plain");
    assert!(lines.len() > 10, "{lines:?}");
    for line in &lines {
        assert_figures(line, &COST);
        assert_figures(line, &["of_plain"]);
    }
}

#[tokio::test]
async fn idle_workers() {
    let lines = lines("idle", &["--workers", "2", "--duration", "300ms"]).await;
    assert_cases(&lines, &["2 idle workers"]);
    assert_figures(&lines[0], &["postgres_cpu_percent", "client_cpu_percent"]);
}

#[tokio::test]
async fn rounds_have_a_spread_and_know_the_floor() {
    let queue = TestQueue::new().await.unwrap();
    let ran = bench(
        &queue,
        &[&["drain", "floor", "--rounds", "2", "--json"][..], &JOBS].concat(),
    )
    .await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(report["rounds"], 2);
    let drain = &report["lines"][0];
    assert_eq!(
        (&drain["case"], &drain["rounds"]),
        (&"history off".into(), &2.into())
    );
    let [least, most] = [0, 1].map(|n| drain["spread"]["per_second"][n].as_f64().unwrap());
    let middle = drain["per_second"].as_f64().unwrap();
    assert!(least <= middle && middle <= most, "{drain}");
    assert_figures(drain, &["of_floor"]);
}

#[tokio::test]
async fn a_table_and_a_report_for_people() {
    let queue = TestQueue::new().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("measured.html");
    let path = path.to_str().unwrap();
    let ran = bench(
        &queue,
        &[
            &["steady", "latency", "--report", path][..],
            &JOBS,
            &AT_A_RATE,
            &SAMPLES,
        ]
        .concat(),
    )
    .await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for text in [
        "\nsteady\n",
        "flat out",
        "idle queue",
        "p99.9",
        "Each job ran and was acknowledged exactly once.",
        "measured the schema rowlock_bench in postgresql://",
        "jobs 300, rate 400/s, duration 300ms, samples 5, idle 0ms, history off, payload about 16 B",
    ] {
        assert!(ran.out.contains(text), "{text}: {}", ran.out);
    }
    let page = std::fs::read_to_string(path).unwrap();
    for text in [
        "<h2>steady</h2>",
        "<h2>latency</h2>",
        "<svg",
        "<polyline",
        "Jobs per second",
        "CPU of Postgres for each job",
        "Write-ahead log for each job",
        "<code>start_p50_ms</code>",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("<code>claim_p50_ms"), "not on this page");
    for outside in ["http:", "https:", "src=", "<script", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[tokio::test]
async fn mistakes_are_explained_before_anything_happens() {
    let queue = TestQueue::new().await.unwrap();
    for (arguments, code, said) in [
        (&["--jobs", "0"][..], 2, "is no number from 1 to 100000000"),
        (&["--jobs", "101M"], 2, "200k or 10M"),
        (&["--report", "out.svg"], 2, "let its name end in .html"),
        (
            &["pinned", "--rate", "1000000", "--duration", "1h"],
            1,
            "1,000,000 jobs a second for 1h are more than 100,000,000 jobs",
        ),
        (&["--producers", "1,0"], 2, "is no number from 1 to 256"),
        (&["--producers", "many"], 2, "is no number from 1 to 256"),
        (
            &["processes", "--processes", "8,65"],
            2,
            "is no number from 1 to 64",
        ),
        (
            &["drain", "--processes", "8"],
            1,
            "--processes means nothing here: it is for processes",
        ),
        (&["backlog", "--jobs", "300"], 1, "say more --jobs"),
        (&["--duration", "1ms"], 2, "is not from 100ms to 1d"),
        (&["--rate", "0"], 2, "0 is not in 1..=1000000"),
        (&["--payload", "3"], 2, "3 is not in 16..=1000000"),
        (&["--rounds", "0"], 2, "0 is not in 1..=1000"),
        (
            &["drain", "idle", "--rate", "5"],
            1,
            "--rate means nothing here: it is for steady, pinned",
        ),
        (
            &["drain", "--history"],
            1,
            "--history means nothing here: it is for enqueue, steady",
        ),
        (&["drian"], 2, "invalid value 'drian'"),
        (
            &["--schema", "billing"],
            1,
            "leave --schema and ROWLOCK_SCHEMA out",
        ),
        (
            &["--report", "/nowhere/report.html"],
            1,
            "cannot write the report to /nowhere/report.html",
        ),
        (
            // Also if it comes later: drain would be measured for nothing.
            &["drain", "idle", "--workers", "900", "--jobs", "10"],
            1,
            "900 workers may need 4505: say fewer --workers",
        ),
    ] {
        let mut command = program(
            std::env::temp_dir().as_path(),
            &[&["bench"], arguments].concat(),
        );
        command.env("DATABASE_URL", queue.db().url());
        let ran = run(command).await;
        assert_eq!(ran.code, Some(code), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{arguments:?}: {}", ran.err);
        assert_eq!(ran.out, "");
        nothing_is_left(&queue).await;
    }
}

#[tokio::test]
async fn an_interrupted_run_shows_what_it_has_and_leaves_nothing_behind() {
    let queue = TestQueue::new().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("measured.html");
    let arguments = [
        "bench",
        "steady",
        "--jobs",
        "300",
        "--rate",
        "50",
        "--duration",
        "1d",
        "--json",
        "--report",
        page.to_str().unwrap(),
    ];
    let mut command = program(std::env::temp_dir().as_path(), &arguments);
    command
        .env("DATABASE_URL", queue.db().url())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut answers = process.stdout.take().unwrap();
    let ended = tokio::time::timeout(DEADLINE, async {
        // After that it offers jobs for a day.
        while !said
            .next_line()
            .await
            .unwrap()
            .unwrap()
            .contains("flat out")
        {}
        let pid = Pid::from_raw(i32::try_from(process.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let mut last = String::new();
        while let Some(line) = said.next_line().await.unwrap() {
            last = line;
        }
        let mut answer = String::new();
        answers.read_to_string(&mut answer).await.unwrap();
        (process.wait().await.unwrap(), last, answer)
    });
    let (status, last, answer) = ended.await.expect("it ends");
    assert_eq!(status.code(), Some(1), "{last}");
    assert_eq!(last, "rowlock: steady, after \"flat out\": interrupted");
    let report: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(report["failed"], "steady, after \"flat out\": interrupted");
    let lines = report["lines"].as_array().expect("lines");
    assert_cases(lines, &["flat out"]);
    assert_figures(&lines[0], &COST);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("INCOMPLETE: steady"), "{page}");
    nothing_is_left(&queue).await;
}

#[tokio::test]
async fn two_benches_do_not_share_a_database() {
    let queue = TestQueue::new().await.unwrap();
    let client = queue.db().connect().await.unwrap();
    client
        .batch_execute("create schema rowlock_bench; select pg_advisory_lock(hashtextextended('rowlock_bench', 0))")
        .await
        .unwrap();
    let ran = bench(&queue, &["drain", "--jobs", "10"]).await;
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(
        ran.err.contains("another rowlock bench is at work"),
        "{}",
        ran.err
    );
    let there = "select count(*) from pg_namespace where nspname = 'rowlock_bench'";
    let there: i64 = client.query_one(there, &[]).await.unwrap().get(0);
    assert_eq!(there, 1, "nothing was changed");
}

/// Another database than the one that is named would be measured silently.
#[tokio::test]
async fn the_environment_names_a_database_as_everywhere() {
    let queue = TestQueue::new().await.unwrap();
    let url: rowlock::ConnInfo = queue.db().url().parse().unwrap();
    let mut command = program(
        std::env::temp_dir().as_path(),
        &[
            "bench",
            "processes",
            "--processes",
            "2",
            "--jobs",
            "1k",
            "--json",
        ],
    );
    for (name, value) in surroundings(queue.db().url()) {
        command.env(name, value);
    }
    let ran = run(command).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(report["place"]["private"], false);
    let database = report["place"]["database"].as_str().unwrap();
    assert!(database.contains(url.dbname()), "{database}");
    assert_eq!(report["lines"][0]["jobs"], 1000);
    nothing_is_left(&queue).await;
}

/// The same place, in the words of libpq's environment.
fn surroundings(url: &str) -> Vec<(&'static str, String)> {
    let config: tokio_postgres::Config = url.parse().unwrap();
    let host = match &config.get_hosts()[0] {
        tokio_postgres::config::Host::Tcp(name) => name.clone(),
        tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
    };
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let password = config.get_password().unwrap_or_default();
    vec![
        ("PGHOST", host),
        ("PGPORT", config.get_ports()[0].to_string()),
        ("PGUSER", text(config.get_user())),
        ("PGDATABASE", text(config.get_dbname())),
        ("PGPASSWORD", String::from_utf8_lossy(password).into_owned()),
    ]
}

#[tokio::test]
async fn what_is_wrong_with_a_connection_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("host={} user=nobody dbname=nothing", dir.path().display());
    let mut command = program(dir.path(), &["bench", "drain"]);
    command.env("DATABASE_URL", url);
    let ran = run(command).await;
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("No such file or directory"), "{}", ran.err);
    assert!(!ran.err.contains("TLS"), "{}", ran.err);
}

#[tokio::test]
async fn what_is_said_twice_is_measured_once() {
    let twice = ["--processes", "2,1,2"];
    let lines = lines("processes", &[&JOBS[..], &["processes"], &twice].concat()).await;
    assert_cases(&lines, &["2 processes", "1 process"]);
    assert_eq!(lines[0]["rounds"], 1);
}

#[tokio::test]
async fn a_worker_process_without_a_task_says_so() {
    let dir = std::env::temp_dir();
    let mut command = program(&dir, &["bench"]);
    command.env("ROWLOCK_BENCH_WORKER_PROCESS", "1");
    let ran = run(command).await;
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.contains("whoever started this process is gone"),
        "{}",
        ran.err
    );
}
