//! What every adapter in Rust shares: the protocol with the harness, the scenarios, and the ledger that sees to it that each job
//! ran exactly once. A peer implements [`Peer`] and calls [`run`].

mod config;
mod ledger;
mod payload;
mod protocol;
mod scenarios;

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

pub use anyhow::Result;
pub use config::Config;
pub use ledger::Ledger;
pub use payload::{Payload, payload};

/// How many jobs a producer hands over at once in the steady scenario.
pub const BATCH: u64 = 100;

/// One system under measurement. All numbers are of jobs: a job's payload is `{"n": NUMBER}`, or larger ([`Payload`]), and its handler awaits
/// [`Ledger::run`] with it.
///
/// With [`Config::handler_ms`] the peer is to have [`Config::workers`] handlers at work at once.
pub trait Peer: Send + Sync + Sized + 'static {
    type Worker: Send;

    /// The fastest size of one call of [`Peer::bulk`]; 0: each of the loaders makes one call.
    const BULK_CHUNK: u64 = 1000;

    /// Tables, and a connection for each of [`Config::enqueuers`]: everything that is not measured. The database is new and empty. Not
    /// sent anywhere: the futures of some migrators cannot be.
    fn set_up(config: &Config) -> impl Future<Output = Result<Self>>;

    /// The settings that differ from the defaults, in a few words.
    fn settings(&self) -> String;

    /// Durable when it returns.
    fn bulk(&self, jobs: Range<u64>) -> impl Future<Output = Result<()>> + Send;

    fn batch(&self, jobs: Range<u64>) -> impl Future<Output = Result<()>> + Send {
        self.bulk(jobs)
    }

    fn single(&self, job: u64) -> impl Future<Output = Result<()>> + Send {
        self.batch(job..job + 1)
    }

    /// As [`Peer::single`], for those to whom it makes a difference which of the producers asks.
    fn single_of(&self, producer: u64, job: u64) -> impl Future<Output = Result<()>> + Send {
        let _ = producer;
        self.single(job)
    }

    /// What is to be known before a drain and not measured in it.
    fn before_drain(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    fn start(&self, ledger: Arc<Ledger>) -> impl Future<Output = Result<Self::Worker>> + Send;

    fn stop(&self, worker: Self::Worker) -> impl Future<Output = Result<()>> + Send;

    /// SQL that counts the jobs whose completion is not stored yet.
    fn unfinished(&self) -> &'static str;

    /// That count, for peers who know a better way than plain SQL.
    fn count(&self, sql: &tokio_postgres::Client) -> impl Future<Output = Result<u64>> + Send {
        async {
            let row = sql.query_one(self.unfinished(), &[]).await?;
            Ok(u64::try_from(row.get::<_, i64>(0))?)
        }
    }

    /// Whether what is kept of so many finished jobs is complete. Asked after the last of them, when the worker has stopped.
    fn verify(
        &self,
        sql: &tokio_postgres::Client,
        jobs: u64,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (sql, jobs);
        async { Ok(()) }
    }
}

/// The `main` of an adapter.
pub fn run<P: Peer>() -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(scenarios::run::<P>())
}

/// Holds so many connections of a pool at once, so that they are open before anything is measured.
pub async fn open<C, E>(connections: u32, acquire: impl AsyncFn() -> Result<C, E>) -> Result<()>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let mut held = Vec::new();
    for _ in 0..connections {
        held.push(acquire().await?);
    }
    Ok(())
}

/// A plain connection, for those who bring no pool of their own.
pub async fn connect(url: &str) -> Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
