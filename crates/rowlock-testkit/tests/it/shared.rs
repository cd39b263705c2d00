//! The server that the processes of a run share.
//!
//! Each test here has a temporary directory of its own, and so servers of its own.

use std::path::Path;
use std::process::Command;

use rowlock_testkit::PrivatePostgres;
use rustix::process::{Signal, kill_process};

use crate::helper::{Helper, LONG, connect, ends_within, open_dir, pid, try_connect, value, watch};

fn user_in(dir: &Path) -> Command {
    let mut command = Helper::command("shared");
    command
        .env("TMPDIR", dir)
        .env("ROWLOCK_TEST_LINGER_S", "0")
        .env_remove("ROWLOCK_TEST_DATABASE_URL");
    command
}

fn parent_of(process: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

fn server_pid(socket_dir: &str) -> u32 {
    let file = Path::new(socket_dir)
        .parent()
        .unwrap()
        .join("cluster/postmaster.pid");
    std::fs::read_to_string(file)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn processes_that_come_at_once_share_one_server_and_it_ends_after_the_last() {
    let dir = open_dir();
    let mut users: Vec<Helper> = (0..4).map(|_| Helper::spawn(user_in(dir.path()))).collect();
    let sockets: Vec<String> = users.iter_mut().map(|user| user.told("SOCKET ")).collect();
    assert!(
        sockets.iter().all(|socket| *socket == sockets[0]),
        "{sockets:?}"
    );
    let server = watch(server_pid(&sockets[0]));

    let last = users.pop().unwrap();
    for mut user in users {
        user.kill();
    }
    // The supervisor looks every second: with a user left, the server survives some looks.
    assert!(!ends_within(&server, std::time::Duration::from_secs(3)));
    last.finish();
    assert!(ends_within(&server, LONG));
}

#[test]
fn killed_processes_leave_no_server_and_no_data() {
    let dir = open_dir();
    let mut user = Helper::spawn(user_in(dir.path()));
    let socket = user.told("SOCKET ");
    let server = watch(server_pid(&socket));
    let home = Path::new(&socket).parent().unwrap().to_owned();
    user.kill();
    assert!(ends_within(&server, LONG));

    // The next one finds nothing to use, waits for the supervisor to finish, and starts anew.
    let mut next = Helper::spawn(user_in(dir.path()));
    assert_ne!(next.told("SOCKET "), socket);
    assert!(!home.exists());
    next.finish();
}

#[tokio::test]
async fn a_server_that_died_is_replaced() {
    let dir = open_dir();
    let mut first = Helper::spawn(user_in(dir.path()));
    let dead = first.told("SOCKET ");
    let server = watch(server_pid(&dead));
    kill_process(pid(server_pid(&dead)), Signal::KILL).unwrap();
    assert!(ends_within(&server, LONG));

    let mut second = Helper::spawn(user_in(dir.path()));
    let url = second.told("URL ");
    assert_ne!(second.told("SOCKET "), dead);
    assert_eq!(value(&connect(&url).await, "1 + 1").await, "2");
    first.finish();
    assert!(
        try_connect(&url).await.is_ok(),
        "the end of the first user is not the end of the second server"
    );
    second.finish();
}

#[test]
fn a_server_does_not_outlive_its_supervisor() {
    let can_guard = Command::new("setpriv")
        .args(["--pdeathsig", "QUIT", "true"])
        .status();
    if !can_guard.is_ok_and(|status| status.success()) {
        return; // then a supervisor that is killed does leave its server behind
    }
    let dir = open_dir();
    let mut user = Helper::spawn(user_in(dir.path()));
    let server_pid = server_pid(&user.told("SOCKET "));
    let server = watch(server_pid);
    kill_process(pid(parent_of(server_pid)), Signal::KILL).unwrap();
    assert!(ends_within(&server, LONG));
    user.finish();
}

#[tokio::test]
async fn it_is_made_for_tests() {
    let server = rowlock_testkit::shared().unwrap();
    if server.socket_dir().is_none() {
        return; // ROWLOCK_TEST_DATABASE_URL is set: that server is as it is
    }
    let client = connect(&server.url("postgres")).await;
    assert!(
        value(&client, "current_setting('max_connections')")
            .await
            .parse::<u32>()
            .unwrap()
            >= 300
    );
    assert_eq!(
        value(&client, "current_setting('wal_level')").await,
        "logical"
    );
    assert_eq!(
        value(&client, "current_setting('max_prepared_transactions')").await,
        "10"
    );
    assert!(server.log_path().unwrap().exists());
    assert!(std::ptr::eq(server, rowlock_testkit::shared().unwrap()));
}

#[tokio::test]
async fn an_existing_server_can_be_named() {
    let postgres = PrivatePostgres::builder().tcp(true).start().unwrap();
    let mut command = Helper::command("database");
    command.env(
        "ROWLOCK_TEST_DATABASE_URL",
        postgres.tcp_url("postgres").unwrap(),
    );
    let mut helper = Helper::spawn(command);
    let url = helper.told("URL ");
    assert!(
        url.contains(&format!("127.0.0.1:{}/rowlock_test_", postgres.port())),
        "{url}"
    );
    connect(&url).await;
    helper.finish();
    let left = "select count(*) from pg_database where datname like 'rowlock%'";
    assert_eq!(
        value(&connect(&postgres.url("postgres")).await, left).await,
        "0"
    );
}

#[test]
fn a_url_that_cannot_be_used_is_told_without_its_password() {
    let mut command = Helper::command("shared");
    command.env(
        "ROWLOCK_TEST_DATABASE_URL",
        "mysql://me:secret@localhost/db",
    );
    let error = Helper::spawn(command).told("ERROR ");
    assert!(
        error.contains("ROWLOCK_TEST_DATABASE_URL") && !error.contains("secret"),
        "{error}"
    );
}
