//! A bad network, on demand: a proxy between the code under test and its database.
//!
//! Promises: without a fault every byte passes unchanged and in order; a fault is in force when the call that asks for it returns; a test
//! can wait for what it needs to see instead of sleeping. Must not look into what passes: it knows bytes, not messages.

mod connection;
mod door;
mod state;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio_postgres::config::{Config, Host};

use crate::error::{Error, Result, with_causes};
use crate::url;
use door::Door;
use state::{Cut, Doorway, Flow, State, Statistics};

pub use state::Direction;

/// The port of a server whose URL names none.
const DEFAULT_PORT: u16 = 5432;

/// Where a [`FaultProxy`] leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Upstream {
    /// A TCP server, as `host:port`.
    Tcp(String),
    /// The socket of a server on this machine, such as `/tmp/.s.PGSQL.5432`.
    Unix(PathBuf),
}

/// A TCP proxy on a port of 127.0.0.1 whose faults a test switches on and off. Dropping it closes everything.
///
/// It runs in the runtime that it was started in, and the faults come in two kinds that combine. What happens to bytes: [`delay`] and
/// [`half_open`]; to new connections: [`refuse`] and [`hang_up`]. They last until [`pass`]. The others happen once:
/// [`drop_connections`], [`reset`], [`truncate_after`] and [`reset_after`].
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use rowlock_testkit::{FaultProxy, TestDb};
///
/// let db = TestDb::new().await?;
/// let proxy = FaultProxy::before(db.url()).await?;
/// // … let the code under test connect to proxy.url() …
/// proxy.wait_for_connections(1).await;
///
/// proxy.refuse().await; // the database goes down…
/// proxy.reset().await;
/// proxy.pass().await; // …and comes back
/// # Ok(())
/// # }
/// ```
///
/// [`delay`]: Self::delay
/// [`half_open`]: Self::half_open
/// [`refuse`]: Self::refuse
/// [`hang_up`]: Self::hang_up
/// [`pass`]: Self::pass
/// [`drop_connections`]: Self::drop_connections
/// [`reset`]: Self::reset
/// [`truncate_after`]: Self::truncate_after
/// [`reset_after`]: Self::reset_after
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    state: Arc<State>,
    /// Ends the task that accepts, and with it all connections.
    accepting: AbortHandle,
    /// The URL that leads through the proxy, if it was made from one.
    url: Option<String>,
}

impl FaultProxy {
    /// Starts a proxy that leads to `upstream`, with no fault.
    pub async fn start(upstream: Upstream) -> Result<FaultProxy> {
        let door = Door::new().map_err(|source| {
            let address = Ipv4Addr::LOCALHOST.to_string();
            Error::Socket {
                doing: "opening a port for a fault proxy on",
                address,
                source,
            }
        })?;
        let address = door.address();
        let state = Arc::new(State::default());
        let accepting = tokio::spawn(door.serve(upstream, Arc::clone(&state))).abort_handle();
        let proxy = FaultProxy {
            address,
            state,
            accepting,
            url: None,
        };
        proxy.state.door_is_settled().await;
        Ok(proxy)
    }

    /// Starts a proxy before the database at `url`; [`url`](Self::url) then leads through it.
    pub async fn before(url: &str) -> Result<FaultProxy> {
        let bad = |reason: String| Error::BadUrl {
            from: "FaultProxy::before",
            reason,
        };
        let config: Config = url
            .parse()
            .map_err(|error: tokio_postgres::Error| bad(with_causes(&error)))?;
        let upstream = upstream_of(&config).ok_or_else(|| bad("it names no host".to_owned()))?;
        let mut proxy = FaultProxy::start(upstream).await?;
        proxy.url = Some(url::through_port(&config, proxy.address.port()));
        Ok(proxy)
    }

    /// The address that clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the database, through this proxy.
    ///
    /// A proxy that was not made from a URL knows neither user nor database, and gives a URL without them.
    #[must_use]
    pub fn url(&self) -> String {
        self.url
            .clone()
            .unwrap_or_else(|| format!("postgresql://{}", self.address))
    }

    /// Ends all faults that last: bytes pass at once (those that were held back too), connections are accepted, and what was
    /// to be cut is not.
    pub async fn pass(&self) {
        self.state.disarm();
        self.state.set_flow(Flow::Pass);
        self.state.set_doorway(Doorway::Open).await;
    }

    /// Holds everything that arrives back for at least `delay`, in both directions.
    pub async fn delay(&self, delay: Duration) {
        self.state.set_flow(Flow::Delayed(delay));
    }

    /// Forwards nothing any more, in either direction, and closes nothing: the peer seems to be there and never answers. New
    /// connections are accepted, and hang in the same way.
    pub async fn half_open(&self) {
        self.state.set_flow(Flow::Stalled);
    }

    /// Refuses new connections, as a machine does on which the server is down. Those that are open stay.
    pub async fn refuse(&self) {
        self.state.set_doorway(Doorway::Refusing).await;
    }

    /// Accepts new connections and closes them at once, as a load balancer does with no server behind it. Those that are
    /// open stay.
    pub async fn hang_up(&self) {
        self.state.set_doorway(Doorway::HangingUp).await;
    }

    /// Closes all open connections in an orderly way; they are closed when this returns. New ones are accepted.
    pub async fn drop_connections(&self) {
        self.state.end_connections(Cut::Close).await;
    }

    /// Resets all open connections (RST), as a server does that went away and came back; they are closed when this returns. New
    /// ones are accepted. A server behind a Unix socket, which knows no reset, sees a plain end.
    pub async fn reset(&self) {
        self.state.end_connections(Cut::Reset).await;
    }

    /// Lets exactly `n_bytes` more pass in `direction`, then closes the connection that carried the last of them. Happens once;
    /// [`wait_for_cuts`](Self::wait_for_cuts) tells when.
    pub async fn truncate_after(&self, n_bytes: u64, direction: Direction) {
        self.state.arm(direction, n_bytes, Cut::Close);
    }

    /// Like [`truncate_after`](Self::truncate_after), but the connection is reset (RST): in the middle of a message, if the
    /// number says so.
    pub async fn reset_after(&self, n_bytes: u64, direction: Direction) {
        self.state.arm(direction, n_bytes, Cut::Reset);
    }

    /// How many connections are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.statistics().open
    }

    /// How many connections were accepted, since the start; those that were hung up on count, those that were refused do not.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.state.statistics().accepted
    }

    /// How many bytes were forwarded in `direction`, since the start.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.state.statistics().bytes(direction)
    }

    /// How many connections were cut by [`truncate_after`](Self::truncate_after) and [`reset_after`](Self::reset_after).
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.state.statistics().cuts
    }

    /// Waits until exactly `n` connections are open.
    pub async fn wait_for_connections(&self, n: usize) {
        self.wait_until(|now| now.open == n).await;
    }

    /// Waits until at least `n` connections were accepted, since the start.
    pub async fn wait_for_accepted(&self, n: u64) {
        self.wait_until(|now| now.accepted >= n).await;
    }

    /// Waits until at least `n` bytes were forwarded in `direction`, since the start.
    pub async fn wait_for_bytes(&self, n: u64, direction: Direction) {
        self.wait_until(|now| now.bytes(direction) >= n).await;
    }

    /// Waits until at least `n` connections were cut, since the start.
    pub async fn wait_for_cuts(&self, n: u64) {
        self.wait_until(|now| now.cuts >= n).await;
    }

    async fn wait_until(&self, reached: impl FnMut(&Statistics) -> bool) {
        self.state.wait_until(reached).await;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Where a connection with this configuration goes first.
fn upstream_of(config: &Config) -> Option<Upstream> {
    let port = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT);
    if let Some(address) = config.get_hostaddrs().first() {
        return Some(Upstream::Tcp(SocketAddr::new(*address, port).to_string()));
    }
    match config.get_hosts().first()? {
        Host::Tcp(host) => Some(Upstream::Tcp(format!("{host}:{port}"))),
        Host::Unix(dir) => Some(Upstream::Unix(dir.join(format!(".s.PGSQL.{port}")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upstream_is_read_from_a_url() {
        let upstream = |url: &str| upstream_of(&url.parse().unwrap());
        assert_eq!(
            upstream("postgresql://u@db.example/x"),
            Some(Upstream::Tcp("db.example:5432".to_owned()))
        );
        assert_eq!(
            upstream("postgresql://u@db:7/x?hostaddr=10.0.0.1"),
            Some(Upstream::Tcp("10.0.0.1:7".to_owned()))
        );
        assert_eq!(
            upstream("postgresql:///x?host=/run/pg&port=7"),
            Some(Upstream::Unix("/run/pg/.s.PGSQL.7".into()))
        );
        assert_eq!(upstream("postgresql:///x"), None);
    }
}
