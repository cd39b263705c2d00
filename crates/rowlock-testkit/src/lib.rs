//! Test kit of Rowlock: a private Postgres, fault injection, assertions.
