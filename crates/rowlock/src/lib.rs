//! Rowlock: the job queue for people who already run Postgres.

pub mod db;
