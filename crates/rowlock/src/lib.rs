#![doc = include_str!("docs/crate.md")]

mod backoff;
mod batcher;
mod bulk;
mod client;
mod db;
mod enqueue;
mod error;
mod job;
pub mod manage;
mod migrate;
mod schema;
mod table_queue;
mod tx;
mod unreadable;
mod validate;
mod worker;

pub use backoff::Backoff;
pub use client::{Client, ClientBuilder};
pub use db::{
    Attempt as ConnectAttempt, ConnInfo, ConnInfoError, ConnectError, Nearest, SslMode,
    TargetSessionAttrs, TlsError,
};
pub use enqueue::{Enqueue, EnqueueInTx, EnqueueMany};
pub use error::{Error, Invalid, Result};
pub use job::{DEFAULT_QUEUE, Enqueued, Job, JobId, JobOptions, NewJob, OnConflict};
pub use migrate::MigrationStatus;
pub use rowlock_macros::Job;
pub use schema::Schema;
pub use table_queue::{
    OnDone, OnFailed, RowFailure, RowTx, TableQueue, TableQueueBuilder, TableRow, TableStats,
};
pub use tx::{BoxError, Transaction};
pub use worker::{
    BatchHandler, BlockingHandler, CancelReason, Ctx, Done, Fail, FromParts, Handler, IntoOutcome,
    IntoOutcomes, Item, Next, Order, Outcome, Parts, Queue, RawJob, State, States, Stopped, Worker,
    WorkerBuilder, WorkerHandle,
};
