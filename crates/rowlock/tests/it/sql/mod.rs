//! The SQL contract, called straight.

mod acks;
mod bundle;
mod claim;
mod commit;
mod crash;
mod cursor;
mod dump;
mod enqueue;
mod errors;
mod follow;
mod fresh;
mod held;
mod history;
mod kit;
mod migrate;
mod places;
mod plans;
mod retry;
mod roles;
mod slices;
mod storage;
mod sweep;
mod unique;
mod untouched;
mod wake;
