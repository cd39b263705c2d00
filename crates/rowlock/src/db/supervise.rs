//! A connection that comes back.
//!
//! Promises: as long as it is not stopped, a [`Link`] has a connection or is trying to get one, waiting longer from try to
//! try; each new connection is set up by the same hook before anyone sees it, and has a higher generation.
//! Must not: hide that a connection was lost. Statements under way fail, and their callers decide what that means.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connect::{ConnectError, ConnectOptions, Connection, connect, describe, is_transient};
use super::conninfo::ConnInfo;

const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_LONGEST: Duration = Duration::from_secs(5);

/// A connection that lasted this long was a good one: the next try starts over with short waits.
const STEADY: Duration = BACKOFF_LONGEST;

/// How long the hook may take if the settings put no limit on connecting.
const HOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Sets a new connection up: `LISTEN`, prepared statements, taking the notifications out.
pub(crate) type OnConnect = Arc<dyn for<'a> Fn(&'a mut Connection) -> HookFuture<'a> + Send + Sync>;
pub(crate) type HookFuture<'a> =
    Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send + 'a>>;

/// The wish for one connection.
#[derive(Clone)]
pub(crate) struct LinkSpec {
    /// What it is for, in logs.
    pub(crate) name: &'static str,
    pub(crate) info: ConnInfo,
    pub(crate) options: ConnectOptions,
    pub(crate) on_connect: Option<OnConnect>,
}

impl fmt::Debug for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkSpec")
            .field("name", &self.name)
            .field("info", &self.info)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A supervised connection. Dropping it stops the supervision; connections handed out live on until they are dropped.
#[derive(Debug)]
pub(crate) struct Link {
    state: watch::Receiver<State>,
    _stop_on_drop: DropGuard,
}

#[derive(Debug, Clone)]
enum State {
    /// Trying to connect.
    Down,
    Up(Live),
    /// Gave up before ever being connected: trying again would not help.
    Failed(Arc<ConnectError>),
    Stopped,
}

/// A connection and which one of the link's it is.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    generation: u64,
    connection: Arc<Connection>,
}

impl Live {
    /// Counts the link's connections from one.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
}

impl Deref for Live {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

/// Why a link has no connection to give, now or later.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the connection was stopped")]
    Stopped,
    #[error(transparent)]
    Failed(Arc<ConnectError>),
}

impl Link {
    /// Starts connecting, in the background, until `stop` is cancelled.
    ///
    /// An error that trying again cannot cure ends the link only if it never had a connection. After that it may be a
    /// password in the middle of its rotation or a database being restored, and what once worked may work again.
    pub(crate) fn start(spec: LinkSpec, stop: &CancellationToken) -> Self {
        let stop = stop.child_token();
        let (sender, state) = watch::channel(State::Down);
        let supervisor = Supervisor {
            spec,
            state: sender,
            stop: stop.clone(),
            generation: 0,
        };
        tokio::spawn(supervisor.run());
        Self {
            state,
            _stop_on_drop: stop.drop_guard(),
        }
    }

    /// The connection; waits while there is none. May be dropped at any time.
    pub(crate) async fn get(&self) -> Result<Live, LinkError> {
        let mut state = self.state.clone();
        loop {
            match &*state.borrow_and_update() {
                // One that has ended is about to be replaced.
                State::Up(live) if !live.is_closed() => return Ok(live.clone()),
                State::Up(_) | State::Down => {}
                State::Failed(error) => return Err(LinkError::Failed(Arc::clone(error))),
                State::Stopped => return Err(LinkError::Stopped),
            }
            state.changed().await.map_err(|_| LinkError::Stopped)?;
        }
    }

    /// Whether there is a connection now.
    pub(crate) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(live) if !live.is_closed())
    }

    /// Ends the connection of that generation, if it is still the current one, so that a new one is made.
    pub(crate) fn report_broken(&self, generation: u64) {
        if let State::Up(live) = &*self.state.borrow() {
            if live.generation == generation {
                live.abort();
            }
        }
    }
}

struct Supervisor {
    spec: LinkSpec,
    state: watch::Sender<State>,
    stop: CancellationToken,
    generation: u64,
}

impl Supervisor {
    async fn run(mut self) {
        let stop = self.stop.clone();
        let end = stop.run_until_cancelled(self.keep_connected()).await;
        self.state.send_replace(match end {
            Some(error) => State::Failed(Arc::new(error)),
            None => State::Stopped,
        });
    }

    /// Returns only if there is no use in going on.
    async fn keep_connected(&mut self) -> ConnectError {
        let mut tries = 0;
        loop {
            match self.open().await {
                Ok(connection) => {
                    let since = Instant::now();
                    self.serve(connection).await;
                    if since.elapsed() >= STEADY {
                        tries = 0;
                    }
                }
                Err(error) if self.generation == 0 && !error.is_retryable() => {
                    tracing::error!(link = self.spec.name, %error, "cannot connect");
                    return error;
                }
                Err(error) => {
                    tracing::warn!(link = self.spec.name, tries, %error, "cannot connect, will try again");
                }
            }
            tokio::time::sleep(backoff(tries, rand::random())).await;
            tries = tries.saturating_add(1);
        }
    }

    async fn open(&self) -> Result<Connection, ConnectError> {
        let mut connection = connect(&self.spec.info, &self.spec.options).await?;
        let Some(on_connect) = &self.spec.on_connect else {
            return Ok(connection);
        };
        let limit = self.spec.info.connect_timeout.unwrap_or(HOOK_TIMEOUT);
        let (reason, transient) =
            match tokio::time::timeout(limit, on_connect(&mut connection)).await {
                Ok(Ok(())) => return Ok(connection),
                Ok(Err(error)) => (describe(&error), is_transient(&error)),
                Err(_) => (format!("no answer within {limit:?}"), true),
            };
        connection.abort();
        Err(ConnectError::SetUp {
            server: connection.server.clone(),
            reason,
            transient,
        })
    }

    /// Shows the connection to everyone until it ends.
    async fn serve(&mut self, connection: Connection) {
        self.generation += 1;
        let live = Live {
            generation: self.generation,
            connection: Arc::new(connection),
        };
        tracing::info!(
            link = self.spec.name,
            server = live.server,
            direct = live.direct,
            server_version_num = live.server_version_num,
            generation = live.generation,
            "connected"
        );
        self.state.send_replace(State::Up(live.clone()));
        let reason = live.closed().await;
        self.state.send_replace(State::Down);
        tracing::warn!(link = self.spec.name, server = live.server, %reason, "connection lost, will connect again");
    }
}

/// How long to wait after so many tries in vain: anything between nothing and a limit that doubles from try to try, so
/// that workers which lost their connections together do not come back together.
///
/// `random` is from zero to one.
fn backoff(tries: u32, random: f64) -> Duration {
    let doubled = BACKOFF_FIRST.saturating_mul(2_u32.saturating_pow(tries));
    doubled.min(BACKOFF_LONGEST).mul_f64(random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn backoff_stays_within_its_limits(tries in any::<u32>(), random in 0.0..1.0) {
            prop_assert!(backoff(tries, random) <= BACKOFF_LONGEST);
        }

        #[test]
        fn backoff_never_shrinks_with_more_tries(tries in 0..u32::MAX, random in 0.0..1.0) {
            prop_assert!(backoff(tries, random) <= backoff(tries + 1, random));
        }

        #[test]
        fn backoff_is_spread_over_the_whole_range(tries in any::<u32>(), random in 0.0..1.0) {
            let half = backoff(tries, random / 2.0) * 2;
            let whole = backoff(tries, random);
            prop_assert!(half.abs_diff(whole) < Duration::from_micros(1));
        }
    }

    #[test]
    fn backoff_starts_short_and_ends_long() {
        assert_eq!(backoff(0, 1.0), BACKOFF_FIRST);
        assert_eq!(backoff(1, 1.0), BACKOFF_FIRST * 2);
        assert_eq!(backoff(7, 1.0), BACKOFF_LONGEST);
        assert_eq!(backoff(u32::MAX, 0.0), Duration::ZERO);
    }
}
