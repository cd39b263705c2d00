//! What several tests need; above all, other processes to start, to watch and to kill.
//!
//! A helper process is this test binary again, made to run [`as_helper_process`] in a role. It tells what it has to tell in lines that begin
//! with a word in capitals, and lives until its standard input is closed or it is killed.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rowlock_testkit::{PrivatePostgres, TestDb, shared};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio_postgres::{Client, NoTls};

/// The longest that anything in these tests takes, on a very busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

const ROLE: &str = "ROWLOCK_TESTKIT_HELPER_ROLE";
const DATA_DIR: &str = "ROWLOCK_TESTKIT_HELPER_DATA_DIR";

pub(crate) async fn connect(url: &str) -> Client {
    try_connect(url).await.unwrap()
}

pub(crate) async fn try_connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

pub(crate) async fn value(client: &Client, query: &str) -> String {
    client
        .query_one(&format!("select ({query})::text"), &[])
        .await
        .unwrap()
        .get(0)
}

pub(crate) fn we_are_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn pid(raw: u32) -> Pid {
    Pid::from_raw(i32::try_from(raw).unwrap()).unwrap()
}

/// A handle to a process, opened while it is known to be alive, by which its end can be waited for.
pub(crate) fn watch(raw: u32) -> rustix::fd::OwnedFd {
    pidfd_open(pid(raw), PidfdFlags::empty()).unwrap()
}

/// Whether the process ends within the time.
pub(crate) fn ends_within(process: &rustix::fd::OwnedFd, time: Duration) -> bool {
    let time = Timespec::try_from(time).unwrap();
    let mut handles = [PollFd::new(process, PollFlags::IN)];
    poll(&mut handles, Some(&time)).unwrap() == 1
}

/// The user id that a process runs as.
pub(crate) fn uid_of(raw: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{raw}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A directory that every user can pass through.
pub(crate) fn open_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o755);
    dir
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Writes a program that a test puts in the place of a real one.
pub(crate) fn write_script(path: &Path, text: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    set_mode(path, 0o755);
}

/// Another process in one of the roles of [`as_helper_process`].
pub(crate) struct Helper {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Helper {
    pub(crate) fn command(role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "helper::as_helper_process",
            "--exact",
            "--ignored",
            "--nocapture",
        ]);
        command
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    pub(crate) fn with_data_dir(role: &str, data_dir: &Path) -> Command {
        let mut command = Helper::command(role);
        command.env(DATA_DIR, data_dir);
        command
    }

    /// As a user who is neither root nor the owner of anything. The program is copied to where that user can get to it.
    pub(crate) fn as_nobody(command: &Command, open_dir: &Path) -> Command {
        let program = open_dir.join("helper-program");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        set_mode(&program, 0o755);
        let mut as_nobody = Command::new(program);
        as_nobody
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .current_dir("/");
        for (name, value) in command.get_envs() {
            as_nobody.env(name, value.unwrap());
        }
        as_nobody.uid(65534).gid(65534);
        as_nobody
    }

    pub(crate) fn spawn(mut command: Command) -> Helper {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Helper { child, lines }
    }

    /// The rest of the next line that begins with `word`. Fails if the helper ends without one.
    pub(crate) fn told(&mut self, word: &str) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                panic!("the helper ended without saying {word}; it said:\n{seen}");
            }
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
            seen.push_str(&line);
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it end by itself, in good order.
    pub(crate) fn finish(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the body of the helper processes; tests start it"]
fn as_helper_process() {
    match std::env::var(ROLE).unwrap().as_str() {
        "private" => hold_private_postgres(),
        "interrupted" => survive_interrupt(),
        "shared" => hold_shared_server(),
        "database" => hold_database(),
        unknown => panic!("there is no role {unknown}"),
    }
}

fn tell(line: &str) {
    // The test harness may have begun a line of its own.
    println!("\n{line}");
}

fn wait_for_end_of_input() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn hold_private_postgres() {
    let mut builder = PrivatePostgres::builder();
    if let Some(data_dir) = std::env::var_os(DATA_DIR) {
        builder = builder.data_dir(data_dir);
    }
    match builder.start() {
        Err(error) => tell(&format!("ERROR {}", error.to_string().replace('\n', " "))),
        Ok(postgres) => {
            tell(&format!("PID {}", postgres.pid().unwrap()));
            tell(&format!("DIR {}", postgres.data_dir().display()));
            wait_for_end_of_input();
        }
    }
}

fn survive_interrupt() {
    let postgres = PrivatePostgres::builder().start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = connect(&postgres.url("postgres")).await;
        let mut interrupts =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).unwrap();
        tell("WAITING");
        interrupts.recv().await;
        let answer = client
            .query_one("select 40 + 2", &[])
            .await
            .map(|row| row.get::<_, i32>(0));
        tell(&format!(
            "ANSWER {}",
            answer.map_or_else(|error| error.to_string(), |answer| answer.to_string())
        ));
    });
}

fn hold_shared_server() {
    match shared() {
        Err(error) => tell(&format!("ERROR {}", error.to_string().replace('\n', " "))),
        Ok(server) => {
            tell(&format!("URL {}", server.url("postgres")));
            tell(&format!(
                "SOCKET {}",
                server
                    .socket_dir()
                    .map(Path::display)
                    .map_or("-".to_owned(), |path| path.to_string())
            ));
            wait_for_end_of_input();
        }
    }
}

fn hold_database() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let db = runtime.block_on(TestDb::new()).unwrap();
    tell(&format!("URL {}", db.url()));
    wait_for_end_of_input();
}
