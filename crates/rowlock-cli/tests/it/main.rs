//! The program, driven as people drive it: real processes, a real PostgreSQL, a real HTTP server.

mod bench;
mod command;
mod config;
mod contrib;
mod demo;
mod enqueue;
mod examples;
mod help;
mod http;
mod ops;
mod serve;
mod signals;
mod support;
mod tables;
mod terminal;
mod traces;
