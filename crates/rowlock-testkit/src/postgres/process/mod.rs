//! One child process that never outlives this one and is never confused with another.
//!
//! Promises: the child gets a signal when this process ends, however it ends; a Ctrl-C at the terminal does not reach it; a
//! signal is only ever sent to the process that was started, never to a stranger that got its number later. Must not know what
//! the child does.

#[cfg(any(test, not(target_os = "linux")))]
mod watcher;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

/// A running or ended child process. Dropping it changes nothing: end it first.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// How the child ended. While it is `None` and the lock is held, the child's number cannot be given to another process.
    ended: Mutex<Option<ExitStatus>>,
    /// Told when `ended` is set.
    changed: Condvar,
}

impl Process {
    /// Starts `command`; it gets `death_signal`, if there is one, when this process ends.
    ///
    /// Linux sends that signal when the *thread* that started the child ends, so the child is started by a thread of its own,
    /// which then waits for it.
    pub(crate) fn spawn(mut command: Command, death_signal: Option<Signal>) -> io::Result<Process> {
        command.process_group(0); // a Ctrl-C goes to the whole foreground process group: leave it
        let shared = Arc::new(Shared::default());
        let (started, start) = mpsc::sync_channel(1);
        let for_thread = Arc::clone(&shared);
        let start_and_wait = move || {
            let (child, guard) = match spawn_guarded(command, death_signal) {
                Ok(spawned) => spawned,
                Err(error) => return drop(started.send(Err(error))),
            };
            let pid = Pid::from_child(&child);
            drop(started.send(Ok(pid)));
            for_thread.record_end(pid, child, guard);
        };
        thread::Builder::new()
            .name("rowlock-child".to_owned())
            .spawn(start_and_wait)?;
        let pid = start.recv().map_err(io::Error::other)??;
        Ok(Process { pid, shared })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends `signal`, unless the child has ended.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let ended = self.shared.lock();
        if ended.is_some() {
            return Ok(());
        }
        Ok(rustix::process::kill_process(self.pid, signal)?)
    }

    /// How the child ended, if it has.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        *self.shared.lock()
    }

    /// Waits until the child ends, at most for `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + timeout;
        let mut ended = self.shared.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if ended.is_some() || left.is_zero() {
                return *ended;
            }
            ended = self
                .shared
                .changed
                .wait_timeout(ended, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<ExitStatus>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the child's end without taking its status, so that its number stays its own until `ended` says so.
    fn record_end(&self, pid: Pid, mut child: Child, guard: Guard) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = rustix::io::retry_on_intr(|| rustix::process::waitid(WaitId::Pid(pid), options));
        dismiss(guard);
        let mut ended = self.lock();
        if let Ok(status) = child.wait() {
            *ended = Some(status);
        }
        drop(ended);
        self.changed.notify_all();
    }
}

/// What sees to it that the child is signalled when this process ends. On Linux that is the kernel.
#[cfg(target_os = "linux")]
type Guard = ();
#[cfg(not(target_os = "linux"))]
type Guard = Option<watcher::Watcher>;

#[cfg(target_os = "linux")]
fn spawn_guarded(mut command: Command, signal: Option<Signal>) -> io::Result<(Child, Guard)> {
    if let Some(signal) = signal {
        signal_with_parent(&mut command, signal);
    }
    Ok((command.spawn()?, ()))
}

#[cfg(target_os = "linux")]
fn dismiss((): Guard) {}

/// Makes the kernel signal the child when the thread that starts it ends.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn signal_with_parent(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    let ask_kernel = move || {
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // The parent may have ended before the call above; then nobody is left to send the signal.
        match rustix::process::getppid() {
            Some(now) if now == parent => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
        }
    };
    // SAFETY: between fork and exec the closure makes two system calls (prctl, getppid); it allocates nothing, takes no lock
    // and touches no memory but its two captured integers. It runs after the change of user, which would clear the setting.
    unsafe { command.pre_exec(ask_kernel) };
}

#[cfg(not(target_os = "linux"))]
fn spawn_guarded(mut command: Command, signal: Option<Signal>) -> io::Result<(Child, Guard)> {
    let mut child = command.spawn()?;
    let Some(signal) = signal else {
        return Ok((child, None));
    };
    match watcher::Watcher::start(Pid::from_child(&child), signal) {
        Ok(watcher) => Ok((child, Some(watcher))),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn dismiss(guard: Guard) {
    if let Some(watcher) = guard {
        watcher.dismiss();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error =
            Process::spawn(Command::new("/nowhere/at/all"), Some(Signal::KILL)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_end_is_seen_and_later_signals_go_nowhere() {
        let mut command = Command::new("cat");
        command.stdin(Stdio::null());
        let process = Process::spawn(command, Some(Signal::KILL)).unwrap();
        assert!(process.wait(LONG).unwrap().success());
        assert!(process.ended().unwrap().success());
        process.signal(Signal::KILL).unwrap();
    }

    #[test]
    fn waiting_ends_at_its_deadline() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let process = Process::spawn(command, Some(Signal::KILL)).unwrap();
        assert_eq!(process.wait(Duration::from_millis(1)), None);
        process.signal(Signal::KILL).unwrap();
        assert_eq!(
            process.wait(LONG).unwrap().signal(),
            Some(Signal::KILL.as_raw())
        );
    }

    #[test]
    fn the_child_outlives_the_thread_that_asked_for_it() {
        let process = thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("1000");
            Process::spawn(command, Some(Signal::KILL)).unwrap()
        });
        let process = process.join().unwrap();
        assert_eq!(process.wait(Duration::from_millis(50)), None);
        process.signal(Signal::KILL).unwrap();
        assert!(process.wait(LONG).is_some());
    }
}
