//! Logs: to standard error, as text or JSON.
//!
//! Promises: a log that cannot be written never stops or slows the worker. Lines go through a bounded queue to a thread of their own; a full
//! disk loses them, a reader that does not read loses those beyond the queue, and how many were lost is said when it can be.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use crate::settings::{LogFormat, LogSettings};

/// Lines that may wait to be written.
const LINES_MAX: usize = 8192;
/// How long the end of the program waits for the last lines.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// The log of a long-running command.
pub(crate) struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
    lines: SyncSender<Message>,
}

enum Message {
    Line(Vec<u8>),
    /// Answers when all before it is written.
    Flush(SyncSender<()>),
}

impl Log {
    /// Starts logging. Once for each process.
    pub(crate) fn start(settings: &LogSettings) -> anyhow::Result<Self> {
        let (filter, handle) = reload::Layer::new(EnvFilter::try_new(&settings.level)?);
        let (lines, waiting) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = lost.clone();
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || write_lines(&waiting, &counter))
            .context("cannot start logging")?;
        let sender = lines.clone();
        let writer = move || Line {
            lines: sender.clone(),
            lost: lost.clone(),
        };
        let colours =
            io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        // Its own complaints would go to standard error by a way that panics when that is full.
        let layer = fmt::layer()
            .with_writer(writer)
            .with_ansi(colours)
            .log_internal_errors(false);
        let layer = match settings.format {
            LogFormat::Text => layer.boxed(),
            LogFormat::Json => layer.json().flatten_event(true).boxed(),
        };
        tracing_subscriber::registry()
            .with(filter)
            .with(layer)
            .try_init()
            .context("cannot start logging")?;
        Ok(Self {
            filter: handle,
            lines,
        })
    }

    /// Logs at another level from now on.
    pub(crate) fn set_level(&self, level: &str) -> anyhow::Result<()> {
        self.filter.reload(EnvFilter::try_new(level)?)?;
        Ok(())
    }

    /// Waits a little for the last lines to be written.
    pub(crate) fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.lines.try_send(Message::Flush(done)).is_ok() {
            // Who does not read them in time does not get them.
            let _ = written.recv_timeout(FLUSH_WITHIN);
        }
    }
}

/// Logs of commands that end by themselves: errors only, unless `RUST_LOG` says otherwise.
pub(crate) fn errors_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .log_internal_errors(false)
        .init();
}

fn write_lines(waiting: &Receiver<Message>, lost: &AtomicU64) {
    let mut err = io::stderr();
    while let Ok(message) = waiting.recv() {
        match message {
            Message::Line(line) => {
                if err.write_all(&line).is_err() {
                    lost.fetch_add(1, Relaxed);
                    continue;
                }
            }
            Message::Flush(done) => {
                let _ = done.try_send(());
            }
        }
        let count = lost.swap(0, Relaxed);
        if count > 0 && writeln!(err, "{count} lines of the log were lost here").is_err() {
            lost.fetch_add(count, Relaxed);
        }
    }
}

/// Takes one line; the formatter writes each in one piece.
struct Line {
    lines: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(Message::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
