//! What handlers handle, a job or a row of a table, as far as commands and endpoints have to know.

use rowlock::CancelReason;

use crate::traces::Facts;

/// A piece of work.
pub(super) trait Task: Sync {
    /// The same for all attempts at it, and different for every other.
    fn key(&self) -> String;

    /// What a command gets on its standard input: JSON.
    fn payload(&self) -> &str;

    /// The W3C traceparent that came with it.
    fn trace(&self) -> Option<&str>;

    /// What a trace says of an attempt at it.
    fn facts(&self) -> Facts;

    /// Whether it was told to stop because the worker stops, so that a failure is none.
    fn is_given_back(&self) -> bool;

    /// What an endpoint gets. Everything is in the body, so that the signature covers everything.
    fn body(&self) -> Result<String, serde_json::Error>;

    /// What a command is told in its environment, beside the trace.
    fn environment(&self) -> Vec<(&'static str, String)>;

    /// Waits until it has to be stopped.
    fn told_to_stop(&self) -> impl Future<Output = CancelReason> + Send;
}
