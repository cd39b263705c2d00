//! The port that clients connect to.
//!
//! Promises: while it refuses, nobody else gets the port. Must not know what connections carry.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use super::Upstream;
use super::connection;
use super::state::{Doorway, State};

/// How many connections the system keeps for us before we accept them.
const BACKLOG: u32 = 1024;

/// The pause after a failure to listen or to accept, which a lack of file descriptors causes and time may cure.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// A port of 127.0.0.1.
pub(super) struct Door {
    address: SocketAddr,
    /// Bound to the port and never listening: it keeps the port ours while nothing listens.
    _placeholder: TcpSocket,
}

impl Door {
    pub(super) fn new() -> io::Result<Door> {
        let placeholder = bound_socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(Door {
            address: placeholder.local_addr()?,
            _placeholder: placeholder,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts, refuses or hangs up, as the state wants it, until the task is aborted; all connections end with it.
    pub(super) async fn serve(self, upstream: Upstream, state: Arc<State>) {
        let mut connections = JoinSet::new();
        let mut wanted = state.doorway_wanted();
        let mut listener = None;
        loop {
            let doorway = *wanted.borrow_and_update();
            if doorway == Doorway::Refusing {
                listener = None;
            } else if listener.is_none() {
                listener = Some(self.listen().await);
            }
            state.doorway_is(doorway);
            tokio::select! {
                biased;
                changed = wanted.changed() => if changed.is_err() { return },
                Some(_ended) = connections.join_next() => {}
                client = accept(listener.as_ref()) => {
                    state.was_accepted();
                    if doorway == Doorway::Open {
                        connections.spawn(connection::run(client, upstream.clone(), Arc::clone(&state)));
                    }
                }
            }
        }
    }

    async fn listen(&self) -> TcpListener {
        loop {
            match bound_socket(self.address).and_then(|socket| socket.listen(BACKLOG)) {
                Ok(listener) => return listener,
                Err(_) => tokio::time::sleep(RETRY_AFTER).await,
            }
        }
    }
}

/// The next client; never, if nothing listens.
async fn accept(listener: Option<&TcpListener>) -> tokio::net::TcpStream {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            Err(_) => tokio::time::sleep(RETRY_AFTER).await,
        }
    }
}

/// A socket that shares its port with the other sockets of this process.
fn bound_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}
