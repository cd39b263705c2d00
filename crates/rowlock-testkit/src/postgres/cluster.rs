//! Makes a cluster with `initdb` and brings a server up on it.
//!
//! Promises: every step has a time limit and, when it fails, tells the end of the log; the environment's `PG…` variables do not leak
//! into the server. Must not decide where things are, or as whom they run.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::find::Installation;
use super::home::{Home, live_server};
use super::identity::Identity;
use super::lockfile::{LockFile, Status};
use super::process::Process;
use crate::error::{Error, Result};
use crate::url::SUPERUSER;

/// How often the server's file is looked at while it starts. Its end is noticed at once.
const READY_CHECK_EVERY: Duration = Duration::from_millis(5);

/// How long a server of a process that has just been killed gets to notice it.
const ORPHAN_GRACE: Duration = Duration::from_secs(2);

/// How much of a log an error shows.
const LOG_TAIL_BYTES: u64 = 4096;

/// Makes the cluster of `home`, unless it is there.
pub(crate) fn ensure_cluster(
    home: &Home,
    installation: &Installation,
    identity: &Identity,
    timeout: Duration,
) -> Result<()> {
    if home.cluster_dir().join("PG_VERSION").exists() {
        return Ok(());
    }
    let unfinished = home.unfinished_cluster_dir();
    match fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("removing", unfinished)(error));
        }
        _ => {}
    }
    identity.create_private_dir(&unfinished)?;
    run_initdb(home, installation, identity, timeout)?;
    let cluster_dir = home.cluster_dir();
    fs::rename(&unfinished, &cluster_dir)
        .map_err(Error::io("renaming the new cluster to", cluster_dir))
}

fn run_initdb(
    home: &Home,
    installation: &Installation,
    identity: &Identity,
    timeout: Duration,
) -> Result<()> {
    let program = installation.program("initdb");
    let path = home.unfinished_cluster_dir();
    let log_path = home.path().join("initdb.log");
    let mut command = clean_command(&program, identity, &open_log(&log_path)?)?;
    // The locale C exists everywhere and sorts the same everywhere.
    command.args([
        "--username",
        SUPERUSER,
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--no-instructions",
    ]);
    if home.is_throwaway() {
        command.arg("--no-sync"); // nobody will miss it after a power cut
    }
    command.arg("--pgdata").arg(&path);

    let process = Process::spawn(command, Some(Signal::KILL))
        .map_err(|source| Error::Spawn { program, source })?;
    match process.wait(timeout) {
        Some(status) if status.success() => {
            fs::remove_file(&log_path).map_err(Error::io("removing", log_path))
        }
        Some(status) => Err(Error::Initdb {
            path,
            status,
            output: tail(&log_path),
        }),
        None => {
            let _ = process.signal(Signal::KILL);
            process.wait(timeout);
            Err(Error::TimedOut {
                doing: "making a cluster in",
                path,
                waited: timeout,
                log: tail(&log_path),
            })
        }
    }
}

/// Waits for a server whose process was just killed to go, and fails if it stays.
pub(crate) fn check_unused(home: &Home, timeout: Duration) -> Result<()> {
    let begin = Instant::now();
    while let Some(pid) = live_server(home.path()) {
        let stopping =
            LockFile::read(&home.cluster_dir()).is_some_and(|file| file.status == Status::Stopping);
        let patience = if stopping { timeout } else { ORPHAN_GRACE };
        if begin.elapsed() >= patience {
            return Err(Error::InUse {
                path: home.path().to_owned(),
                pid: Some(pid),
            });
        }
        std::thread::sleep(READY_CHECK_EVERY);
    }
    Ok(())
}

/// The arguments of a server on the cluster, with `settings` in their order: a later one overrides an earlier one.
pub(crate) fn server_arguments(
    cluster_dir: &Path,
    socket_dir: &Path,
    port: u16,
    tcp: bool,
    settings: &[(String, String)],
) -> Vec<String> {
    let mut arguments = vec!["-D".to_owned(), cluster_dir.to_string_lossy().into_owned()];
    let mut set =
        |name: &str, value: &str| arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
    for (name, value) in settings {
        set(name, value);
    }
    // After the caller's, because everything else relies on them.
    set("listen_addresses", if tcp { "127.0.0.1" } else { "" });
    set("port", &port.to_string());
    set(
        "unix_socket_directories",
        &quoted_list_item(&socket_dir.to_string_lossy()),
    );
    set("unix_socket_permissions", "0700");
    set("logging_collector", "off");
    arguments
}

/// `unix_socket_directories` is a list: a name with a comma or a space in it needs quotes.
fn quoted_list_item(item: &str) -> String {
    format!("\"{}\"", item.replace('"', "\"\""))
}

/// Starts a server that is signalled with `death_signal` when this process ends. It is not ready yet.
pub(crate) fn spawn_server(
    home: &Home,
    installation: &Installation,
    identity: &Identity,
    arguments: &[String],
    death_signal: Signal,
) -> Result<Process> {
    let program = installation.program("postgres");
    let mut command = clean_command(&program, identity, &open_log(&home.log_path())?)?;
    command.args(arguments);
    Process::spawn(command, Some(death_signal)).map_err(|source| Error::Spawn { program, source })
}

/// Waits until the server takes connections. `process` is it, or its parent.
///
/// The file of a server that was killed still says "ready": `is_this_one` tells whether a file is this server's.
pub(crate) fn wait_until_ready(
    home: &Home,
    process: &Process,
    is_this_one: impl Fn(&LockFile) -> bool,
    timeout: Duration,
) -> Result<()> {
    let begin = Instant::now();
    let path = || home.path().to_owned();
    loop {
        if let Some(status) = process.wait(READY_CHECK_EVERY) {
            return Err(Error::StartFailed {
                path: path(),
                status,
                log: tail(&home.log_path()),
            });
        }
        let file = LockFile::read(&home.cluster_dir()).filter(&is_this_one);
        if file.is_some_and(|file| file.status == Status::Ready) {
            return Ok(());
        }
        if begin.elapsed() >= timeout {
            return Err(Error::TimedOut {
                doing: "starting Postgres on",
                path: path(),
                waited: timeout,
                log: tail(&home.log_path()),
            });
        }
    }
}

/// A command whose environment and working directory come from us alone, and that writes to `log`.
pub(crate) fn clean_command(program: &Path, identity: &Identity, log: &File) -> Result<Command> {
    let output = || {
        log.try_clone()
            .map_err(Error::io("opening the log of", program))
    };
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("PG") || name_text.starts_with("LC_") || name_text == "LANG" {
            command.env_remove(name);
        }
    }
    // The same messages and the same clock everywhere; and a directory that every user can be in.
    command.env("LC_ALL", "C").env("TZ", "UTC").current_dir("/");
    command
        .stdin(Stdio::null())
        .stdout(output()?)
        .stderr(output()?);
    identity.apply(&mut command);
    Ok(command)
}

pub(crate) fn open_log(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(Error::io("opening the log", path))
}

/// The end of a log, for an error.
pub(crate) fn tail(path: &Path) -> String {
    read_tail(path).unwrap_or_else(|error| format!("(cannot read {}: {error})", path.display()))
}

fn read_tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_rely_on_cannot_be_overridden_by_a_setting() {
        let settings = [
            ("port".to_owned(), "1".to_owned()),
            ("fsync".to_owned(), "off".to_owned()),
        ];
        let arguments =
            server_arguments(Path::new("/d"), Path::new("/s, t"), 5432, false, &settings);
        let position = |argument: &str| arguments.iter().position(|a| a == argument);
        assert!(position("port=1").unwrap() < position("port=5432").unwrap());
        assert!(position("fsync=off").is_some());
        assert!(position("listen_addresses=").is_some());
        assert!(position("unix_socket_directories=\"/s, t\"").is_some());
    }

    #[test]
    fn an_error_shows_the_end_of_a_long_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, format!("first\n{}\nlast\n", "x".repeat(10_000))).unwrap();
        let tail = tail(&path);
        assert!(tail.ends_with("\nlast") && !tail.contains("first"));
        assert!(tail.len() as u64 <= LOG_TAIL_BYTES);
    }
}
