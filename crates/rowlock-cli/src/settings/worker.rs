//! `[worker]`: how much at once, in which order, how patient.

use std::time::Duration;

use rowlock::Order;

use super::section::Section;

/// How the worker works. The queues it serves are in [`QueueSettings`](super::QueueSettings).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WorkerSettings {
    /// `None`: host and process id.
    pub(crate) name: Option<String>,
    pub(crate) concurrency: usize,
    pub(crate) order: Order,
    /// `None`: the queue's.
    pub(crate) lease: Option<Duration>,
    pub(crate) poll: Duration,
    pub(crate) poll_only: bool,
    pub(crate) ahead: usize,
    pub(crate) grace: Duration,
    pub(crate) statement_timeout: Duration,
    pub(crate) maintain: bool,
    /// The queues in their order; `None`: those that have sections, or all.
    pub(crate) queues: Option<Vec<String>>,
}

impl WorkerSettings {
    pub(super) fn read(section: Section<'_, '_>) -> Self {
        let secs = Duration::from_secs;
        let hour = secs(3600);
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let settings = Self {
            name: section.optional("name"),
            concurrency: count(section.within("concurrency", 10, &(1..=100_000))),
            order: section.value("order", Order::default()),
            lease: section.optional_within("lease", &(secs(1)..=secs(86_400))),
            poll: section.within("poll", secs(1), &(Duration::from_millis(10)..=hour)),
            poll_only: section.value("poll_only", false),
            ahead: count(section.within("ahead", 1000, &(0..=100_000))),
            grace: section.within("grace", secs(30), &(secs(0)..=secs(86_400))),
            statement_timeout: section.within("statement_timeout", secs(30), &(secs(1)..=hour)),
            maintain: section.value("maintain", true),
            queues: section.optional("queues"),
        };
        if let Some(name) = &settings.name {
            super::check_name(&section, "name", name);
        }
        for queue in settings.queues.iter().flatten() {
            super::check_name(&section, "queues", queue);
        }
        if settings.queues.as_ref().is_some_and(Vec::is_empty) {
            section.complain(
                "queues",
                "worker.queues is empty: the worker would have nothing to do",
            );
        }
        section.finish();
        settings
    }
}
