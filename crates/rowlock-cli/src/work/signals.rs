//! The signals that a worker obeys: TERM and INT to stop, HUP to read its configuration anew.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Stop,
    Reload,
}

pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Listens from now on; none is missed while something else is done.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hang_up.recv() => Asked::Reload,
        }
    }

    /// The next one that asks to stop.
    pub(super) async fn stop(&mut self) {
        while self.next().await != Asked::Stop {}
    }
}
