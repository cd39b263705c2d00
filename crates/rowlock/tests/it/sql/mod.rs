//! The SQL contract, called straight.

mod kit;
mod plans;
