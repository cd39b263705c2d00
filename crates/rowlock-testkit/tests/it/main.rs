//! Tests of the test kit against real PostgreSQL servers.
//!
//! They watch processes by means that only Linux has.

#![cfg(target_os = "linux")]

mod crash;
mod database;
mod errors;
mod helper;
mod postgres;
mod proxy;
mod queue;
mod shared;
