//! A few connections for many callers, opened as they are needed and replaced when they break.

use std::time::Duration;

use deadpool::managed::{
    self, Metrics, Object, PoolError, QueueMode, RecycleError, RecycleResult, Timeouts,
};

use super::{ConnInfo, ConnectError, ConnectOptions, Connection, connect};
use crate::error::{Error, Result};

#[derive(Clone)]
pub(crate) struct Pool {
    pool: managed::Pool<Opener>,
    /// How long a caller waits for a connection to become free.
    wait: Duration,
}

/// A connection on loan; it goes back when dropped.
pub(crate) type Pooled = Object<Opener>;

pub(crate) struct Opener {
    info: ConnInfo,
}

impl managed::Manager for Opener {
    type Type = Connection;
    type Error = ConnectError;

    async fn create(&self) -> Result<Connection, ConnectError> {
        // Boxed: opening a connection is a deep future, and it is inside of most of ours.
        Box::pin(connect(&self.info, &ConnectOptions::default())).await
    }

    async fn recycle(
        &self,
        connection: &mut Connection,
        _: &Metrics,
    ) -> RecycleResult<ConnectError> {
        // A caller that was dropped in the middle may have left a transaction open, or a statement that waits for a lock or for a network that is
        // gone; closing the connection is the one sure way out.
        if connection.is_closed() || connection.is_abandoned() {
            return Err(RecycleError::message("closed"));
        }
        Ok(())
    }
}

impl Pool {
    pub(crate) fn new(info: ConnInfo, connections_max: usize, wait: Duration) -> Self {
        let timeouts = Timeouts {
            wait: Some(wait),
            create: None,
            recycle: None,
        };
        let pool = managed::Pool::builder(Opener { info })
            .max_size(connections_max)
            // The one that was used last is still warm.
            .queue_mode(QueueMode::Lifo)
            .timeouts(timeouts)
            .runtime(deadpool::Runtime::Tokio1)
            .build();
        // Building fails only for timeouts without a runtime.
        Self {
            pool: pool.unwrap_or_else(|e| unreachable!("{e}")),
            wait,
        }
    }

    pub(crate) fn connections_max(&self) -> usize {
        self.pool.status().max_size
    }

    pub(crate) async fn get(&self) -> Result<Pooled> {
        Box::pin(self.pool.get()).await.map_err(|e| match e {
            PoolError::Backend(e) => Error::Connect(e),
            PoolError::Timeout(_) => Error::NoFreeConnection { waited: self.wait },
            other => Error::Setup(other.to_string()),
        })
    }
}
