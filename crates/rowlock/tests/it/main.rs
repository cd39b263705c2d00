//! Tests of the library against real PostgreSQL servers.

mod derive;
mod drivers;
