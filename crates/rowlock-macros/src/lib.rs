//! The derive macro of Rowlock.
//!
//! `attribute` reads `#[job(...)]`, with `duration` and `backoff` for the values that have a syntax of their own; `expand` writes
//! the impl. What is wrong is refused here, at the place where it is written, in the words that the library would use at run
//! time. It must not look at the fields: whether a payload is an object is known only when it is serialised.

mod attribute;
mod backoff;
mod duration;
mod expand;
mod nearest;
mod value;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a serde type a job.
///
/// ```ignore
/// use rowlock::Job;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(kind = "email.welcome", queue = "mail", max_attempts = 3, timeout = "1m30s")]
/// #[job(backoff(exponential = "10s", max = "1h"))]
/// struct WelcomeEmail {
///     user_id: i64,
/// }
/// ```
///
/// Only `kind` is required. All values are checked when the program is compiled.
///
/// | attribute | what it sets |
/// |---|---|
/// | `kind = "email.send"` | The name by which rows of this kind are known: 1 to 200 bytes, no control characters. Jobs outlive deployments, so it must never change with the code. |
/// | `alias = "mail"`, `aliases("a", "b")` | Former kinds: jobs enqueued under them are still run by this type's handler. May be repeated. |
/// | `queue = "mail"` | The queue, unless the enqueue names another. |
/// | `priority = 2` | From -4 to 4; higher runs first. |
/// | `max_attempts = 3` | After how many failures the job is dead: 1 to 1000. |
/// | `timeout = "30s"` | How long one attempt may run: 1 ms to 30 days. |
/// | `tags("a", "b")` | Labels to find the job by, at most 32. |
/// | `backoff(...)` | How long a failed attempt waits for the next; see below. |
/// | `crate = "path"` | Where the library is, if not at `::rowlock`. |
///
/// A duration is a number and a unit (`ms`, `s`, `m`, `h`, `d`), or several from the longest unit to the shortest: `"1m30s"`.
///
/// # Backoff
///
/// One shape, and what changes it. What is not said is as in `rowlock::Backoff`.
///
/// | shape | delays |
/// |---|---|
/// | `backoff(exponential = "1s", factor = 2.0)` | 1 s, 2 s, 4 s, ...; `factor` is 2 unless given, from 1 to 100 |
/// | `backoff(linear = "30s")` | 30 s, 60 s, 90 s, ... |
/// | `backoff(fixed = "5s")` | always 5 s |
/// | `backoff(list("1s", "5s", "1m"))` | one after the other, the last one repeats |
///
/// Each takes `max = "1h"`, the longest delay (a day unless given), and `jitter = 0.1`, by which share of itself a delay is spread
/// to either side, from 0 to 1.
///
/// # Which types
///
/// A job is stored as a JSON object and read back by another process, so the type must own its data (no lifetimes) and serialise
/// to an object: a struct with named fields does, a unit or tuple struct or an enum only if serde is told so
/// (`#[serde(tag = "...")]`, for instance). What does not is refused when it is enqueued.
///
/// Type parameters are allowed. All instances of such a type share one kind, so at most one of them can have a handler in a
/// worker; and the crate `serde` must be known by that name.
#[proc_macro_derive(Job, attributes(job))]
pub fn derive_job(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::expand(&input)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}
