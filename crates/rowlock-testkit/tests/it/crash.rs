//! A private Postgres, or its process, that ends badly.

use std::fs;

use rowlock_testkit::PrivatePostgres;
use rustix::process::{Signal, kill_process_group};

use crate::helper::{Helper, LONG, connect, ends_within, open_dir, pid, value, watch};

/// The processes whose parent is this one.
fn children_of(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| {
            line.strip_prefix("PPid:")
                .is_some_and(|ppid| ppid.trim() == parent.to_string())
        })
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_child)
        .collect()
}

#[tokio::test]
async fn a_killed_server_recovers_what_was_committed() {
    let mut postgres = PrivatePostgres::builder().start().unwrap();
    let url = postgres.url("postgres");
    let client = connect(&url).await;
    client
        .batch_execute("create table t as select 7 as n")
        .await
        .unwrap();
    client
        .batch_execute("begin; insert into t values (8)")
        .await
        .unwrap();
    let all: Vec<_> = children_of(postgres.pid().unwrap())
        .into_iter()
        .chain(postgres.pid())
        .map(watch)
        .collect();
    assert!(
        all.len() > 3,
        "a server is several processes: {}",
        all.len()
    );

    postgres.kill9().unwrap();
    assert_eq!(postgres.pid(), None);
    for process in &all {
        assert!(
            ends_within(process, std::time::Duration::ZERO),
            "all are gone when the call returns"
        );
    }
    assert!(client.query_one("select 1", &[]).await.is_err());
    postgres.kill9().unwrap(); // again: nothing to do

    postgres.restart().unwrap();
    assert_eq!(
        value(&connect(&url).await, "select array_agg(n) from t").await,
        "{7}"
    );
    let log = fs::read_to_string(postgres.log_path()).unwrap();
    assert!(
        log.contains("was not properly shut down; automatic recovery in progress"),
        "{log}"
    );
}

#[test]
fn a_killed_server_leaves_no_shared_memory_behind() {
    let mut postgres = PrivatePostgres::builder().start().unwrap();
    let lock_file = fs::read_to_string(postgres.data_dir().join("cluster/postmaster.pid")).unwrap();
    let id = lock_file
        .lines()
        .nth(6)
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .to_owned();
    let is_there = || {
        let segments = fs::read_to_string("/proc/sysvipc/shm").unwrap();
        segments
            .lines()
            .any(|line| line.split_whitespace().nth(1) == Some(&id))
    };
    postgres.kill9().unwrap();
    assert!(is_there());
    drop(postgres);
    assert!(!is_there());
}

#[test]
fn a_server_dies_with_its_process_however_that_dies() {
    let mut helper = Helper::spawn(Helper::command("private"));
    let server = watch(helper.told("PID ").parse().unwrap());
    let left_behind = helper.told("DIR ");
    assert!(!ends_within(&server, std::time::Duration::ZERO));
    helper.kill();
    assert!(ends_within(&server, LONG));
    let _ = fs::remove_dir_all(left_behind); // a later start would, but not before a minute has passed
}

#[tokio::test]
async fn kept_data_are_good_after_their_process_was_killed() {
    let dir = open_dir();
    let mut helper = Helper::spawn(Helper::with_data_dir("private", dir.path()));
    helper.told("PID ");
    helper.kill();
    // At once: the server may still be on its way out.
    let postgres = PrivatePostgres::builder()
        .data_dir(dir.path())
        .start()
        .unwrap();
    assert_eq!(
        value(&connect(&postgres.url("postgres")).await, "1 + 1").await,
        "2"
    );
}

#[test]
fn an_interrupt_at_the_terminal_does_not_reach_the_server() {
    use std::os::unix::process::CommandExt;
    let mut command = Helper::command("interrupted");
    command.process_group(0); // as a shell does for a program in the foreground
    let mut helper = Helper::spawn(command);
    helper.told("WAITING");
    kill_process_group(pid(helper.pid()), Signal::INT).unwrap();
    assert_eq!(helper.told("ANSWER "), "42");
    helper.finish();
}
