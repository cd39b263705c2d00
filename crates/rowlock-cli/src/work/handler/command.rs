//! A command as a handler: the payload on its standard input, the job or row in its environment; its exit code or the last line of its output
//! decides.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rowlock::{CancelReason, Outcome};
use tokio::process::Command;

use super::process::{self, Ended, Processes};
use super::task::Task;
use super::verdict::{by_code, explicit};
use crate::settings::CommandSettings;
use crate::traces::AttemptSpan;
use crate::units::duration_text;

/// How much of the standard error becomes the error of the job.
const ERROR_BYTES_MAX: usize = 4 * 1024;
/// When the worker shuts down, the library gives handlers one second after it has told them.
const SHUTDOWN_GRACE_MAX: Duration = Duration::from_millis(800);
/// What belongs to the worker and not to its handlers.
const NOT_FOR_HANDLERS: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Why a process was told to stop.
enum Why {
    Timeout(Duration),
    Told(CancelReason),
}

/// Runs the command for one job or row. When this is dropped, the command is told to stop.
pub(super) async fn run(
    settings: &CommandSettings,
    timeout: Option<Duration>,
    processes: &Processes,
    task: &impl Task,
    span: &AttemptSpan,
) -> Outcome {
    let trace = span.traceparent();
    let command = command(settings, task, trace.as_deref().or(task.trace()));
    let started = process::start(
        processes,
        command,
        task.payload().into(),
        settings.output_max,
        settings.kill_grace,
    );
    let mut running = match started {
        Ok(running) => running,
        Err(e) => {
            let error = format!("cannot start {:?}: {e}", settings.command[0]);
            return Outcome::Retry { error, after: None };
        }
    };
    let why = tokio::select! {
        ended = running.ended() => return judge_end(settings, ended),
        why = told_to_stop(task, timeout) => why,
    };
    running.stop(match why {
        Why::Told(CancelReason::Shutdown) => settings.kill_grace.min(SHUTDOWN_GRACE_MAX),
        _ => settings.kill_grace,
    });
    judge_stopped(running.ended().await, &why)
}

async fn told_to_stop(task: &impl Task, timeout: Option<Duration>) -> Why {
    let limit = async {
        match timeout {
            Some(limit) => {
                tokio::time::sleep(limit).await;
                limit
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        limit = limit => Why::Timeout(limit),
        reason = task.told_to_stop() => Why::Told(reason),
    }
}

fn command(settings: &CommandSettings, task: &impl Task, trace: Option<&str>) -> Command {
    let mut command = Command::new(&settings.command[0]);
    command.args(&settings.command[1..]);
    if settings.env_clear {
        command.env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
    }
    for name in NOT_FOR_HANDLERS {
        command.env_remove(name);
    }
    command.envs(
        settings
            .env
            .iter()
            .map(|(name, value)| (name, value.reveal())),
    );
    command.envs(task.environment());
    if let Some(trace) = trace {
        // The second is what tracing libraries look for by themselves.
        command.env("ROWLOCK_TRACEPARENT", trace);
        command.env("TRACEPARENT", trace);
    }
    if let Some(dir) = &settings.dir {
        command.current_dir(dir);
    }
    command
}

/// A process that ended by itself.
fn judge_end(settings: &CommandSettings, ended: std::io::Result<Ended>) -> Outcome {
    let ended = match ended {
        Ok(ended) => ended,
        Err(e) => return lost(&e),
    };
    if let Some(outcome) = ended.stdout.last_line().and_then(explicit) {
        return outcome;
    }
    let error = with_stderr(exit_text(ended.status), &ended);
    match ended
        .status
        .code()
        .and_then(|code| u16::try_from(code).ok())
    {
        Some(code) => by_code(settings.exit.reaction(code), error, None),
        None => Outcome::Retry { error, after: None },
    }
}

/// A process that was told to stop. Many programs exit with 0 when they are told to, so that does not mean that the work is done; only an
/// explicit outcome counts.
fn judge_stopped(ended: std::io::Result<Ended>, why: &Why) -> Outcome {
    let ended = match ended {
        Ok(ended) => ended,
        Err(e) => return lost(&e),
    };
    if let Some(outcome) = ended.stdout.last_line().and_then(explicit) {
        return outcome;
    }
    let why = match why {
        Why::Timeout(limit) => format!("timed out after {}", duration_text(*limit)),
        Why::Told(CancelReason::Cancelled) => "cancelled while it ran".to_owned(),
        Why::Told(CancelReason::Shutdown) => "stopped because the worker shuts down".to_owned(),
        Why::Told(CancelReason::Timeout) => "timed out".to_owned(),
        Why::Told(_) => "stopped because its lease was lost".to_owned(),
    };
    let error = with_stderr(
        format!("{why}; the command {}", exit_text(ended.status)),
        &ended,
    );
    Outcome::Retry { error, after: None }
}

fn lost(e: &std::io::Error) -> Outcome {
    Outcome::Retry {
        error: format!("cannot tell how the command ended: {e}"),
        after: None,
    }
}

fn exit_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => format!("ended with {status}"),
    }
}

fn with_stderr(text: String, ended: &Ended) -> String {
    let stderr = ended.stderr.text(ERROR_BYTES_MAX);
    if stderr.is_empty() {
        text
    } else {
        format!("{text}: {stderr}")
    }
}
