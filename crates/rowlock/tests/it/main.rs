//! Tests of the library against a real PostgreSQL.

mod derive;
mod drivers;
mod manage;
mod sql;
mod support;
mod table_queue;
mod worker;
