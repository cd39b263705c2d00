//! Tests of the program, driven as people drive it, against real PostgreSQL servers.

mod ops;
