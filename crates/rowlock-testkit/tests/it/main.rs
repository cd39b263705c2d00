//! Tests of the test kit against real PostgreSQL servers.

mod crash;
mod database;
mod errors;
mod helper;
mod postgres;
mod proxy;
mod queue;
mod shared;
