//! The SQL contract, called straight.

mod claim;
mod commit;
mod kit;
mod plans;
mod storage;
