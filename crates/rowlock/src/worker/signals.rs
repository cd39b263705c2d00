//! The signals that ask a program to end.

/// SIGINT and SIGTERM, from the moment of [`listen`](Self::listen) on.
pub(super) struct Signals {
    #[cfg(unix)]
    streams: Vec<tokio::signal::unix::Signal>,
}

impl Signals {
    #[cfg(unix)]
    pub(super) fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let mut streams = Vec::new();
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            match signal(kind) {
                Ok(stream) => streams.push(stream),
                Err(error) => tracing::error!(%error, "cannot listen for signals"),
            }
        }
        Self { streams }
    }

    #[cfg(not(unix))]
    pub(super) fn listen() -> Self {
        Self {}
    }

    /// Waits for the next one.
    #[cfg(unix)]
    pub(super) async fn next(&mut self) {
        std::future::poll_fn(|cx| {
            // All are asked, so that each of them wakes us.
            let mut came = false;
            for stream in &mut self.streams {
                came |= stream.poll_recv(cx).is_ready();
            }
            if came {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }

    #[cfg(not(unix))]
    pub(super) async fn next(&mut self) {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::error!(%error, "cannot listen for signals");
            std::future::pending::<()>().await;
        }
    }
}
