//! The derive macro of Rowlock.
