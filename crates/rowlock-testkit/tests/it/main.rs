//! Tests of the test kit against real PostgreSQL servers.

mod database;
mod helper;
