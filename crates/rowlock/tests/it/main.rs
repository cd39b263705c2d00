//! The library against real servers.

mod table_queue;
