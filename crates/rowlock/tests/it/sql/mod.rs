//! The SQL contract, called straight.

mod acks;
mod claim;
mod commit;
mod enqueue;
mod kit;
mod plans;
mod retry;
mod storage;
mod unique;
