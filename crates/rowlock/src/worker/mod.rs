//! The worker.
pub(crate) fn current_trace() -> Option<String> {
    None
}
