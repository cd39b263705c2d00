//! The `rowlock` program.

fn main() {}
