//! The SQL contract, called straight.

mod acks;
mod claim;
mod commit;
mod kit;
mod plans;
mod retry;
mod storage;
