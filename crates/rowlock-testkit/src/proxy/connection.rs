//! One connection through the proxy.
//!
//! Promises: bytes keep their order; an end on one side becomes the same kind of end on the other. Must not decide about faults: it
//! asks the state for each piece of data.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;

use super::Upstream;
use super::state::{Cut, Direction, Flow, State};

const BUFFER_BYTES: usize = 16 * 1024;

enum Server {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Carries one connection to its end.
pub(super) async fn run(client: TcpStream, upstream: Upstream, state: Arc<State>) {
    let mut membership = state.join();
    let mut flow = state.flow();
    let server = tokio::select! {
        cut = membership.told_to_end() => return end(client, None, cut),
        server = connect(&upstream, &mut flow) => server,
    };
    // A connection is closed before it leaves its group: whoever waits for the group relies on it.
    match server {
        Ok(server) => carry(client, server, &state, membership.told_to_end()).await,
        Err(_) => drop(client),
    }
}

async fn connect(upstream: &Upstream, flow: &mut watch::Receiver<Flow>) -> io::Result<Server> {
    passing(flow).await;
    match upstream {
        Upstream::Tcp(address) => {
            let server = TcpStream::connect(address).await?;
            server.set_nodelay(true)?;
            Ok(Server::Tcp(server))
        }
        Upstream::Unix(path) => Ok(Server::Unix(UnixStream::connect(path).await?)),
    }
}

/// Forwards both ways until both have ended, one failed or was cut, or the connection is told to end.
async fn carry(
    mut client: TcpStream,
    mut server: Server,
    state: &State,
    told_to_end: impl Future<Output = Cut>,
) {
    let _ = client.set_nodelay(true); // a delay that nobody asked for would be one more fault
    let cut = {
        let (from_client, to_client) = client.split();
        let both = async {
            match &mut server {
                Server::Tcp(server) => {
                    let (from_server, to_server) = server.split();
                    forward_both(from_client, to_client, from_server, to_server, state).await
                }
                Server::Unix(server) => {
                    let (from_server, to_server) = server.split();
                    forward_both(from_client, to_client, from_server, to_server, state).await
                }
            }
        };
        tokio::select! {
            cut = told_to_end => cut,
            cut = both => cut,
        }
    };
    end(client, Some(server), cut);
}

async fn forward_both(
    from_client: impl AsyncRead + Unpin,
    to_client: impl AsyncWrite + Unpin,
    from_server: impl AsyncRead + Unpin,
    to_server: impl AsyncWrite + Unpin,
    state: &State,
) -> Cut {
    let to_server = forward(from_client, to_server, Direction::ToServer, state);
    let to_client = forward(from_server, to_client, Direction::ToClient, state);
    match tokio::try_join!(to_server, to_client) {
        Ok(((), ())) => Cut::Close,
        Err(cut) => cut,
    }
}

/// Forwards one way until its end (`Ok`), or until the connection must end as a whole (`Err`).
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    direction: Direction,
    state: &State,
) -> Result<(), Cut> {
    let mut flow = state.flow();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        passing(&mut flow).await;
        let arrived = tokio::select! {
            biased;
            _ = flow.changed() => continue, // it may have stalled: then nothing is read either
            arrived = from.read(&mut buffer) => arrived.map_err(|error| how_it_broke(&error))?,
        };
        held_back(&mut flow).await;
        if arrived == 0 {
            return to.shutdown().await.map_err(|error| how_it_broke(&error));
        }
        let permit = state.permit(direction, arrived);
        to.write_all(&buffer[..permit.n_bytes])
            .await
            .map_err(|error| how_it_broke(&error))?;
        state.forwarded(direction, permit.n_bytes);
        if let Some(cut) = permit.then {
            state.was_cut();
            return Err(cut);
        }
    }
}

/// Waits until bytes may pass.
async fn passing(flow: &mut watch::Receiver<Flow>) {
    // The sender outlives every connection.
    let _ = flow.wait_for(|flow| *flow != Flow::Stalled).await;
}

/// Waits for as long as bytes that have arrived are to be held back; a change counts from its own time on.
async fn held_back(flow: &mut watch::Receiver<Flow>) {
    loop {
        let now = *flow.borrow_and_update();
        let Flow::Delayed(delay) = now else {
            return passing(flow).await;
        };
        tokio::select! {
            () = tokio::time::sleep(delay) => return,
            _ = flow.changed() => {}
        }
    }
}

/// A reset is passed on as one; whatever else broke becomes a plain end.
fn how_it_broke(error: &io::Error) -> Cut {
    match error.kind() {
        io::ErrorKind::ConnectionReset => Cut::Reset,
        _ => Cut::Close,
    }
}

/// Closes both sides.
fn end(client: TcpStream, server: Option<Server>, cut: Cut) {
    if cut == Cut::Reset {
        // Closing a socket that does not linger sends RST. A Unix socket has no such thing.
        let _ = client.set_zero_linger();
        if let Some(Server::Tcp(server)) = &server {
            let _ = server.set_zero_linger();
        }
    }
    drop((client, server));
}
