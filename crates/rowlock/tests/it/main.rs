//! Tests of the library against a real PostgreSQL.

mod support;
mod worker;
