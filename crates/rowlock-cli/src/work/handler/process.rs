//! A process and all that it starts: fed, listened to, and ended as a group.
//!
//! Promises: nothing that a command does to its pipes stops the worker; once a process is asked to stop, nothing of its group is left when
//! this is through. A task of its own sees to that, also when the handler that waits for it is dropped.

use std::io;
use std::process::ExitStatus;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::capture::Tail;
use super::lines::Lines;

/// After a process has ended, those that it left behind may hold its pipes open for so long.
const PIPES_WITHIN: Duration = Duration::from_secs(1);

/// The processes of this program, to be waited for when it ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Processes {
    tasks: TaskTracker,
    /// Nobody waits any longer.
    leave: CancellationToken,
}

impl Processes {
    /// Gives those that were told to stop a little longer, then ends them.
    pub(crate) async fn end(&self) {
        self.tasks.close();
        if tokio::time::timeout(Duration::from_secs(1), self.tasks.wait())
            .await
            .is_err()
        {
            self.leave.cancel();
            self.tasks.wait().await;
        }
    }
}

/// What a process left.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: Tail,
    pub(super) stderr: Tail,
}

/// A process that runs. Dropping this asks it to stop.
pub(super) struct Running {
    /// Takes how long the process may take to stop.
    stop: Option<oneshot::Sender<Duration>>,
    ended: oneshot::Receiver<io::Result<Ended>>,
}

impl Running {
    /// Waits for its end. Safe to drop and call again.
    pub(super) async fn ended(&mut self) -> io::Result<Ended> {
        match (&mut self.ended).await {
            Ok(ended) => ended,
            Err(_) => Err(io::Error::other("nobody watches the process any more")),
        }
    }

    /// Asks it to stop: TERM to the whole group now, KILL after the grace.
    pub(super) fn stop(&mut self, grace: Duration) {
        if let Some(stop) = self.stop.take() {
            // Nobody listens when it has just ended.
            let _ = stop.send(grace);
        }
    }
}

/// Starts a command in a group of its own and gives it the input.
pub(super) fn start(
    processes: &Processes,
    mut command: Command,
    input: Box<str>,
    output_max: usize,
    kill_grace: Duration,
) -> io::Result<Running> {
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let (stop, stopping) = oneshot::channel();
    let (tell, ended) = oneshot::channel();
    let leave = processes.leave.clone();
    let watched = async move {
        let stopping = async {
            tokio::select! {
                // The sender is dropped when nobody waits for the process any more: its time is up.
                grace = stopping => grace.unwrap_or(kill_grace),
                () = leave.cancelled() => Duration::ZERO,
            }
        };
        let result = watch(child, input, output_max, stopping, &leave).await;
        // Whoever waited may be gone.
        let _ = tell.send(result);
    };
    // What the command says is said within the span of its job.
    let watched = watched.instrument(tracing::Span::current());
    processes.tasks.spawn(watched);
    Ok(Running {
        stop: Some(stop),
        ended,
    })
}

async fn watch(
    mut child: Child,
    input: Box<str>,
    output_max: usize,
    stopping: impl Future<Output = Duration>,
    leave: &CancellationToken,
) -> io::Result<Ended> {
    let group = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input is free not to: it ends with a broken pipe that nobody minds.
        tokio::spawn(async move { stdin.write_all(input.as_bytes()).await });
    }
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (mut stdout, mut stderr) = (Tail::new(output_max), Tail::new(output_max));
    let status = {
        let pipes = async {
            tokio::join!(
                drain(out, &mut stdout, false),
                drain(err, &mut stderr, true)
            )
        };
        tokio::pin!(pipes, stopping);
        let mut open = true;
        let (status, stopped) = loop {
            tokio::select! {
                status = child.wait() => break (status?, false),
                _ = &mut pipes, if open => open = false,
                grace = &mut stopping => break (stop(&mut child, group, grace, leave, pipes.as_mut(), &mut open).await?, true),
            }
        };
        if stopped {
            signal(group, Signal::KILL);
        }
        if open
            && tokio::time::timeout(PIPES_WITHIN, pipes.as_mut())
                .await
                .is_err()
        {
            signal(group, Signal::KILL);
        }
        status
    };
    Ok(Ended {
        status,
        stdout,
        stderr,
    })
}

/// TERM, then KILL after the grace; goes on reading meanwhile, or a process that prints while it stops would hang.
async fn stop(
    child: &mut Child,
    group: Option<Pid>,
    grace: Duration,
    leave: &CancellationToken,
    mut pipes: std::pin::Pin<&mut impl Future>,
    open: &mut bool,
) -> io::Result<ExitStatus> {
    signal(group, Signal::TERM);
    let kill = tokio::time::sleep(grace);
    tokio::pin!(kill);
    let mut killed = false;
    loop {
        tokio::select! {
            status = child.wait() => return status,
            _ = &mut pipes, if *open => *open = false,
            () = async { tokio::select! { () = &mut kill => {}, () = leave.cancelled() => {} } }, if !killed => {
                killed = true;
                signal(group, Signal::KILL);
            }
        }
    }
}

/// To the whole group. That it is gone already is the usual case.
fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _ = kill_process_group(group, signal);
    }
}

/// Reads to the end and keeps the last of it: a command must not hang because nobody reads what it prints.
/// Told: what comes is also logged, line by line, by those who want to know (`rowlock::handler=debug`).
async fn drain(pipe: Option<impl AsyncRead + Unpin>, tail: &mut Tail, told: bool) {
    let Some(mut pipe) = pipe else { return };
    let told = told && tracing::enabled!(target: "rowlock::handler", tracing::Level::DEBUG);
    let tell = |line: &str| tracing::debug!(target: "rowlock::handler", "{line}");
    let mut lines = Lines::default();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n) = pipe.read(&mut buffer).await {
        if n == 0 {
            break;
        }
        tail.push(&buffer[..n]);
        if told {
            lines.push(&buffer[..n], tell);
        }
    }
    lines.end(tell);
}
