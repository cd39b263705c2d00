//! A private Postgres in good times.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rowlock_testkit::PrivatePostgres;

use crate::helper::{
    Helper, LONG, connect, ends_within, open_dir, uid_of, value, watch, we_are_root,
};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_restart_keeps_the_data_and_the_url() {
    let mut postgres = PrivatePostgres::builder().fsync(false).start().unwrap();
    let url = postgres.url("postgres");
    let first_pid = postgres.pid().unwrap();
    connect(&url)
        .await
        .batch_execute("create table kept as select 7 as n")
        .await
        .unwrap();

    postgres.stop().unwrap();
    assert_eq!(postgres.pid(), None);
    assert!(crate::helper::try_connect(&url).await.is_err());
    postgres.stop().unwrap(); // again: nothing to do

    postgres.restart().unwrap();
    assert_ne!(postgres.pid().unwrap(), first_pid);
    assert_eq!(postgres.url("postgres"), url);
    assert_eq!(value(&connect(&url).await, "select n from kept").await, "7");

    postgres.restart().unwrap(); // of a running server
    assert_eq!(value(&connect(&url).await, "select n from kept").await, "7");
}

#[tokio::test]
async fn a_data_directory_is_kept_for_the_next_time() {
    let dir = open_dir();
    let data_dir = dir.path().join("deep/down");
    let postgres = PrivatePostgres::builder()
        .data_dir(&data_dir)
        .start()
        .unwrap();
    assert_eq!(postgres.data_dir(), data_dir.canonicalize().unwrap());
    connect(&postgres.url("postgres"))
        .await
        .batch_execute("create table kept as select 7 as n")
        .await
        .unwrap();
    let socket_dir = postgres.socket_dir().to_owned();
    drop(postgres);
    assert!(!socket_dir.exists(), "the socket's directory is temporary");

    let again = PrivatePostgres::builder()
        .data_dir(&data_dir)
        .start()
        .unwrap();
    assert_eq!(
        value(&connect(&again.url("postgres")).await, "select n from kept").await,
        "7"
    );
    let log = std::fs::read_to_string(again.log_path()).unwrap();
    assert!(
        !log.contains("automatic recovery"),
        "dropping it was an orderly stop: {log}"
    );
}

#[test]
fn a_temporary_server_leaves_nothing_behind() {
    let postgres = PrivatePostgres::builder().start().unwrap();
    let data_dir = postgres.data_dir().to_owned();
    let server = watch(postgres.pid().unwrap());
    assert!(data_dir.join("cluster").exists());
    drop(postgres);
    assert!(
        ends_within(&server, std::time::Duration::ZERO),
        "it is gone when the drop returns"
    );
    assert!(!data_dir.exists());
}

#[tokio::test]
async fn only_its_user_can_reach_it_and_only_by_its_socket() {
    let postgres = PrivatePostgres::builder().start().unwrap();
    assert_eq!(postgres.tcp_url("postgres"), None);
    assert_eq!(mode(postgres.socket_dir()), 0o700);
    assert_eq!(mode(&postgres.data_dir().join("cluster")), 0o700);
    let client = connect(&postgres.url("postgres")).await;
    assert_eq!(
        value(&client, "current_setting('listen_addresses')").await,
        ""
    );
    assert_eq!(value(&client, "current_user").await, "postgres");
    assert_eq!(value(&client, "current_setting('fsync')").await, "on");
}

#[tokio::test]
async fn settings_reach_the_server_and_the_later_one_counts() {
    let postgres = PrivatePostgres::builder()
        .setting("max_connections", "17")
        .setting("work_mem", "1MB")
        .setting("work_mem", "3MB")
        .setting("cluster_name", "it's a \"name\" = 'x'")
        .fsync(false)
        .start()
        .unwrap();
    let client = connect(&postgres.url("postgres")).await;
    assert_eq!(
        value(&client, "current_setting('max_connections')").await,
        "17"
    );
    assert_eq!(value(&client, "current_setting('work_mem')").await, "3MB");
    assert_eq!(
        value(&client, "current_setting('cluster_name')").await,
        "it's a \"name\" = 'x'"
    );
    assert_eq!(value(&client, "current_setting('fsync')").await, "off");
}

#[tokio::test]
async fn a_tcp_port_is_opened_when_asked_for_and_survives_a_restart() {
    let mut postgres = PrivatePostgres::builder().tcp(true).start().unwrap();
    let url = postgres.tcp_url("postgres").unwrap();
    let client = connect(&url).await;
    assert_eq!(
        value(&client, "host(inet_server_addr())").await,
        "127.0.0.1"
    );
    assert_eq!(
        value(&client, "inet_server_port()").await,
        postgres.port().to_string()
    );
    postgres.restart().unwrap();
    assert_eq!(postgres.tcp_url("postgres").unwrap(), url);
    connect(&url).await;
    connect(&postgres.url("postgres")).await;
}

#[tokio::test]
async fn two_servers_live_side_by_side() {
    let one = PrivatePostgres::builder().start().unwrap();
    let two = PrivatePostgres::builder().start().unwrap();
    connect(&one.url("postgres"))
        .await
        .batch_execute("create table only_here ()")
        .await
        .unwrap();
    let there = "select count(*) from pg_class where relname = 'only_here'";
    assert_eq!(
        value(&connect(&one.url("postgres")).await, there).await,
        "1"
    );
    assert_eq!(
        value(&connect(&two.url("postgres")).await, there).await,
        "0"
    );
    drop(one);
    connect(&two.url("postgres")).await;
}

#[tokio::test]
async fn the_version_is_the_servers_own() {
    let postgres = PrivatePostgres::builder().start().unwrap();
    let client = connect(&postgres.url("postgres")).await;
    let number: u32 = value(&client, "current_setting('server_version_num')")
        .await
        .parse()
        .unwrap();
    assert_eq!(postgres.version().major(), number / 10_000);
    let text = value(&client, "current_setting('server_version')").await;
    assert!(text.starts_with(&postgres.version().to_string()), "{text}");
}

#[test]
fn a_server_never_runs_as_root() {
    let postgres = PrivatePostgres::builder().start().unwrap();
    let uid = uid_of(postgres.pid().unwrap());
    assert_ne!(uid, 0);
    if !we_are_root() {
        assert_eq!(uid, rustix::process::geteuid().as_raw());
    }
}

#[test]
fn an_ordinary_user_runs_its_own_server() {
    if !we_are_root() {
        return; // then all other tests show it
    }
    let dir = open_dir();
    let mut helper = Helper::spawn(Helper::as_nobody(&Helper::command("private"), dir.path()));
    let server: u32 = helper.told("PID ").parse().unwrap();
    assert_eq!(uid_of(server), uid_of(helper.pid()));
    let server = watch(server);
    let data_dir = helper.told("DIR ");
    helper.finish();
    assert!(ends_within(&server, LONG));
    assert!(!Path::new(&data_dir).exists());
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let postgres = std::thread::spawn(|| PrivatePostgres::builder().start().unwrap())
        .join()
        .unwrap();
    let server = watch(postgres.pid().unwrap());
    assert!(!ends_within(&server, std::time::Duration::from_millis(100)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(connect(&postgres.url("postgres")));
}

#[test]
fn variables_meant_for_another_postgres_do_not_get_in_the_way() {
    let mut command = Helper::command("private");
    command
        .env("PGDATA", "/nowhere")
        .env("PGPORT", "1")
        .env("PGOPTIONS", "-c no_such=setting")
        .env("LC_ALL", "xx_YY");
    let mut helper = Helper::spawn(command);
    helper.told("PID ");
    helper.finish();
}
