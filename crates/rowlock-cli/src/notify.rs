//! What systemd wants to hear: ready, reloading, stopping, alive. Says nothing when nobody listens.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// The way to the service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Notify {
    socket: Option<UnixDatagram>,
    /// How often it wants a sign of life.
    pub(crate) watchdog: Option<Duration>,
}

impl Notify {
    /// As the environment says: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`.
    pub(crate) fn from_environment() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|address| {
            let opened = open(address.as_bytes());
            if let Err(error) = &opened {
                tracing::warn!(%error, "cannot reach the service manager at NOTIFY_SOCKET");
            }
            opened.ok()
        });
        let number = |name| {
            std::env::var(name)
                .ok()
                .and_then(|text| text.parse::<u64>().ok())
        };
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC")
            .filter(|us| ours && *us > 0)
            // Twice as often as asked for, as is the custom.
            .map(|us| Duration::from_micros(us / 2));
        Self {
            watchdog: watchdog.filter(|_| socket.is_some()),
            socket,
        }
    }

    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!(
            "READY=1\nSTATUS={status}\nMAINPID={}",
            std::process::id()
        ));
    }

    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!(
            "RELOADING=1\nMONOTONIC_USEC={us}\nSTATUS=reloading"
        ));
    }

    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing what runs");
    }

    pub(crate) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, text: &str) {
        if let Some(socket) = &self.socket {
            if let Err(error) = socket.send(text.as_bytes()) {
                tracing::debug!(%error, "the service manager does not listen");
            }
        }
    }
}

fn open(address: &[u8]) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A manager that is slow must not stop the worker.
    socket.set_nonblocking(true)?;
    match address.strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            socket.connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)?;
        }
        _ => socket.connect(std::ffi::OsStr::from_bytes(address))?,
    }
    Ok(socket)
}
