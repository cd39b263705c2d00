//! What several tests need.
