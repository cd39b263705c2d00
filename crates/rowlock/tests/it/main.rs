//! Tests of the library against a real PostgreSQL.

mod derive;
mod drivers;
mod manage;
mod support;
