//! What a private Postgres says when it cannot be.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rowlock_testkit::{Error, PrivatePostgres};

use crate::helper::{Helper, connect, open_dir, set_mode, value, we_are_root, write_script};

/// What tells one cluster from another.
const SYSTEM: &str = "select system_identifier::text from pg_control_system()";

fn start_at(data_dir: &Path) -> Result<PrivatePostgres, Error> {
    PrivatePostgres::builder().data_dir(data_dir).start()
}

/// The directory of the real programs.
fn real_bin_dir() -> PathBuf {
    PrivatePostgres::builder()
        .start()
        .unwrap()
        .bin_dir()
        .to_owned()
}

/// A directory of programs in which `postgres` runs this script, unless it is asked for its version.
fn bin_dir_with(dir: &Path, initdb: &str, postgres: &str) -> PathBuf {
    let bin_dir = dir.join("bin");
    fs::create_dir(&bin_dir).unwrap();
    write_script(&bin_dir.join("initdb"), initdb);
    let version = r#"[ "$1" = --version ] && echo "postgres (PostgreSQL) $MAJOR.0" && exit 0"#;
    let major = PrivatePostgres::builder()
        .start()
        .unwrap()
        .version()
        .major();
    write_script(
        &bin_dir.join("postgres"),
        &format!("MAJOR={major}\n{version}\n{postgres}"),
    );
    bin_dir
}

#[tokio::test]
async fn data_are_forgotten_on_demand_but_not_those_in_use() {
    let dir = open_dir();
    let fresh = || {
        let builder = PrivatePostgres::builder().data_dir(dir.path());
        builder.fresh(true).start()
    };
    let first = fresh().unwrap();
    let identifier = async |server: &PrivatePostgres| {
        value(&connect(&server.url("postgres")).await, SYSTEM).await
    };
    let made = identifier(&first).await;
    let error = fresh().unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert_eq!(identifier(&first).await, made, "it still has its data");
    drop(first);
    let again = start_at(dir.path()).unwrap();
    assert_eq!(identifier(&again).await, made);
    drop(again);
    assert_ne!(identifier(&fresh().unwrap()).await, made);
}

#[test]
fn data_in_use_are_refused() {
    let dir = open_dir();
    let first = start_at(dir.path()).unwrap();
    let error = start_at(dir.path()).unwrap_err();
    assert!(
        matches!(&error, Error::InUse { pid: Some(pid), .. } if pid.unsigned_abs() == first.pid().unwrap()),
        "{error}"
    );
    assert!(error.is_retryable());
    drop(first);
    start_at(dir.path()).unwrap();
}

#[test]
fn data_in_use_by_another_process_are_refused() {
    let dir = open_dir();
    let mut helper = Helper::spawn(Helper::with_data_dir("private", dir.path()));
    let pid = helper.told("PID ");
    let error = start_at(dir.path()).unwrap_err().to_string();
    assert!(error.contains(&format!("process {pid}")), "{error}");
    helper.finish();
    start_at(dir.path()).unwrap();
}

#[test]
fn data_of_another_major_version_are_refused() {
    let dir = open_dir();
    let cluster = dir.path().join("cluster");
    fs::create_dir(&cluster).unwrap();
    fs::write(cluster.join("PG_VERSION"), "9\n").unwrap();
    if we_are_root() {
        std::os::unix::fs::chown(&cluster, Some(65534), Some(65534)).unwrap();
    }
    let error = start_at(dir.path()).unwrap_err();
    assert!(
        matches!(error, Error::OtherMajor { data_major: 9, .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("are of PostgreSQL 9, but only PostgreSQL"),
        "{error}"
    );
}

#[tokio::test]
async fn the_file_of_a_dead_server_does_not_stop_a_new_one() {
    let dir = open_dir();
    drop(start_at(dir.path()).unwrap());
    // The number of a process that is alive, but no server.
    let us = std::process::id();
    let data_dir = dir.path().join("cluster");
    let text = format!(
        "{us}\n{}\n1763000000\n5432\n/tmp\n\n 1 1\nready   \n",
        data_dir.display()
    );
    fs::write(data_dir.join("postmaster.pid"), text).unwrap();
    let postgres = start_at(dir.path()).unwrap();
    assert_eq!(
        value(&connect(&postgres.url("postgres")).await, "1 + 1").await,
        "2"
    );
}

#[test]
fn a_directory_with_other_things_in_it_is_refused_and_left_alone() {
    let dir = open_dir();
    fs::write(dir.path().join("thesis.tex"), "…").unwrap();
    let error = start_at(dir.path()).unwrap_err();
    assert!(matches!(error, Error::ForeignDirectory { .. }), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_directory_that_the_servers_user_cannot_enter_is_named() {
    if !we_are_root() {
        return; // then there is no other user
    }
    let dir = open_dir();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    set_mode(&closed, 0o700);
    let error = start_at(&closed.join("data")).unwrap_err();
    assert!(
        matches!(&error, Error::CannotEnter { blocked_at, .. } if *blocked_at == closed),
        "{error}"
    );
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    if !we_are_root() {
        return; // then there is nobody to take the right to write from
    }
    let dir = open_dir();
    let data_dir = dir.path().join("data"); // `dir` is root's
    let mut helper = Helper::spawn(Helper::as_nobody(
        &Helper::with_data_dir("private", &data_dir),
        dir.path(),
    ));
    let error = helper.told("ERROR ");
    assert!(
        error.contains(&format!(
            "creating {}: Permission denied",
            data_dir.display()
        )),
        "{error}"
    );
}

#[test]
fn data_of_another_user_are_refused() {
    if !we_are_root() {
        return; // then there is no second user
    }
    let dir = open_dir();
    drop(start_at(&dir.path().join("data")).unwrap());
    let command = Helper::with_data_dir("private", &dir.path().join("data"));
    let mut helper = Helper::spawn(Helper::as_nobody(&command, dir.path()));
    let error = helper.told("ERROR ");
    // Nobody can look into it, or can and is told whose it is.
    assert!(
        error.contains("belongs to user id") || error.contains("Permission denied"),
        "{error}"
    );
}

#[test]
fn what_initdb_says_is_told_and_nothing_is_left() {
    let dir = open_dir();
    let bin_dir = bin_dir_with(
        dir.path(),
        "echo 'initdb: no room on this disk' >&2; exit 3",
        "exit 1",
    );
    let data_dir = dir.path().join("data");
    let error = PrivatePostgres::builder()
        .bin_dir(&bin_dir)
        .data_dir(&data_dir)
        .start()
        .unwrap_err();
    assert!(matches!(error, Error::Initdb { .. }), "{error}");
    assert!(
        error.to_string().contains("no room on this disk"),
        "{error}"
    );
    assert!(!data_dir.join("cluster").exists());
    start_at(&data_dir).unwrap();
}

#[test]
fn an_initdb_that_was_killed_leaves_no_half_cluster() {
    let dir = open_dir();
    let half_done = r#"for d; do :; done; echo 15 >"$d/PG_VERSION"; kill -9 $$"#;
    let bin_dir = bin_dir_with(dir.path(), half_done, "exit 1");
    let data_dir = dir.path().join("data");
    let error = PrivatePostgres::builder()
        .bin_dir(&bin_dir)
        .data_dir(&data_dir)
        .start()
        .unwrap_err();
    assert!(matches!(error, Error::Initdb { .. }), "{error}");
    assert!(
        data_dir.join("cluster.unfinished/PG_VERSION").exists(),
        "the script does what the test is about"
    );
    start_at(&data_dir).unwrap();
    assert!(!data_dir.join("cluster.unfinished").exists());
}

#[test]
fn a_server_that_does_not_get_ready_is_given_up_and_killed() {
    let dir = open_dir();
    let data_dir = dir.path().join("data");
    drop(start_at(&data_dir).unwrap());
    let marker = dir.path().join("pid");
    fs::write(&marker, "").unwrap();
    set_mode(&marker, 0o666);
    let script = format!("echo $$ >{}; exec sleep 1000", marker.display());
    let bin_dir = bin_dir_with(dir.path(), "exit 1", &script);

    let impatient = Duration::from_secs(1);
    let builder = PrivatePostgres::builder()
        .bin_dir(&bin_dir)
        .data_dir(&data_dir)
        .timeout(impatient);
    let error = builder.start().unwrap_err();
    assert!(
        matches!(error, Error::TimedOut { waited, .. } if waited == impatient),
        "{error}"
    );
    let pid = fs::read_to_string(&marker).unwrap();
    assert!(
        !Path::new(&format!("/proc/{}", pid.trim())).exists(),
        "process {pid} is still there"
    );
    start_at(&data_dir).unwrap();
}

#[test]
fn a_setting_that_the_server_refuses_is_told_in_its_words() {
    let error = PrivatePostgres::builder()
        .setting("max_connections", "many")
        .start()
        .unwrap_err();
    assert!(matches!(error, Error::StartFailed { .. }), "{error}");
    assert!(error.to_string().contains("max_connections"), "{error}");
    let error = PrivatePostgres::builder()
        .setting("no such", "x")
        .start()
        .unwrap_err();
    assert!(matches!(error, Error::BadSetting { .. }), "{error}");
}

#[test]
fn a_directory_without_the_programs_is_refused() {
    let dir = open_dir();
    let error = PrivatePostgres::builder()
        .bin_dir(dir.path())
        .start()
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::NotABinDir {
                missing: "initdb",
                ..
            }
        ),
        "{error}"
    );

    let mut command = Helper::command("private");
    command.env("ROWLOCK_PG_BIN", dir.path());
    let error = Helper::spawn(command).told("ERROR ");
    assert!(error.contains("named by ROWLOCK_PG_BIN"), "{error}");
}

#[test]
fn a_version_that_is_too_old_is_refused() {
    let dir = open_dir();
    write_script(&dir.path().join("initdb"), "exit 1");
    write_script(
        &dir.path().join("postgres"),
        "echo 'postgres (PostgreSQL) 13.5'",
    );
    let error = PrivatePostgres::builder()
        .bin_dir(dir.path())
        .start()
        .unwrap_err();
    assert!(
        matches!(error, Error::UnsupportedVersion { major: 13, .. }),
        "{error}"
    );
}

#[test]
fn too_long_a_socket_directory_is_refused_and_a_long_data_directory_is_not() {
    let dir = open_dir();
    let long = dir.path().join("x".repeat(120));
    let error = PrivatePostgres::builder()
        .socket_dir(&long)
        .start()
        .unwrap_err();
    assert!(matches!(error, Error::SocketPathTooLong { .. }), "{error}");
    start_at(&dir.path().join("y".repeat(120))).unwrap();
}

#[tokio::test]
async fn a_socket_directory_can_be_chosen() {
    let dir = open_dir();
    let socket_dir = dir.path().join("sock, et");
    let builder = PrivatePostgres::builder()
        .bin_dir(real_bin_dir())
        .socket_dir(&socket_dir);
    let postgres = builder.start().unwrap();
    assert_eq!(postgres.socket_dir(), socket_dir.canonicalize().unwrap());
    assert_eq!(
        value(&connect(&postgres.url("postgres")).await, "1 + 1").await,
        "2"
    );
}
