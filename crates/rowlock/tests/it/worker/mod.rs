//! The worker against a real PostgreSQL, one file for each promise.

mod basics;
mod batches;
mod bundle;
mod cancel;
mod enqueue;
mod faults;
mod flood;
mod fresh;
mod in_tx;
mod kit;
mod lease;
mod limits;
mod outcomes;
mod pooler;
mod processes;
mod recovery;
mod restarts;
mod shutdown;
mod telemetry;
mod trace;
mod wake;
