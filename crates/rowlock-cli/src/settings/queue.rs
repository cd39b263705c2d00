//! `[queue.NAME]`: what one queue (or a pattern of names) gets of this worker, and `[queue.NAME.stored]`: the settings of the queue itself,
//! which the worker writes to the database when it starts.
//!
//! `paused` is no stored setting on purpose: a restart must not resume what somebody paused.

use std::time::Duration;

use rowlock::{Backoff, Order, Queue};
use serde_json::{Map, Value, json};

use super::section::Section;
use super::source::Problem;
use super::value::Size;
use super::worker::WorkerSettings;
use crate::nearest::nearest;

/// A queue that the worker serves.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueueSettings {
    /// A name, or a pattern with `*`.
    pub(crate) name: String,
    concurrency: Option<usize>,
    weight: usize,
    /// As `rowlock.set_queue` takes it; empty: nothing to write.
    pub(crate) stored: Map<String, Value>,
}

impl QueueSettings {
    fn plain(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            concurrency: None,
            weight: 1,
            stored: Map::new(),
        }
    }

    /// As the library takes it.
    pub(crate) fn queue(&self) -> Queue {
        let queue = Queue::from(self.name.as_str()).weight(self.weight);
        match self.concurrency {
            Some(at_once) => queue.concurrency(at_once),
            None => queue,
        }
    }

    fn read(name: &str, section: Section<'_, '_>) -> Self {
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let concurrency = section
            .optional_within("concurrency", &(1..=100_000))
            .map(count);
        let weight = count(section.within("weight", 1, &(1..=1000)));
        let stored = read_stored(section.section("stored"), name);
        section.finish();
        Self {
            name: name.to_owned(),
            concurrency,
            weight,
            stored,
        }
    }
}

/// All queues of the worker in their order.
///
/// The order of tables in a file means nothing, so the order of queues is that of the list `worker.queues`. Without the list, the queues
/// are those that have sections; without sections, all queues there are.
pub(super) fn read_queues(root: &Section<'_, '_>, worker: &WorkerSettings) -> Vec<QueueSettings> {
    let mut sections = Vec::new();
    for (name, section) in root.named_sections("queue") {
        if let Err(e) = super::name_rule(&name) {
            root.reader.problem(Problem::error(section.span.clone(), e));
        }
        let span = section.span.clone();
        sections.push((QueueSettings::read(&name, section), span));
    }
    match &worker.queues {
        None if sections.is_empty() => vec![QueueSettings::plain("*")],
        None => {
            if worker.order == Order::Strict && sections.len() > 1 {
                let message = "worker.order is \"strict\", but nothing says in which order";
                let span = sections[0].1.clone();
                root.reader.problem(
                    Problem::error(span, message).help("list the queues in worker.queues"),
                );
            }
            sections.into_iter().map(|(queue, _)| queue).collect()
        }
        Some(list) => {
            for (queue, span) in &sections {
                if !list.contains(&queue.name) {
                    let message = format!(
                        "queue {:?} is not in worker.queues, so this section would do nothing",
                        queue.name
                    );
                    let near = nearest(&queue.name, list.iter().map(String::as_str));
                    let help = near.map_or("add it there".to_owned(), |n| {
                        format!("did you mean {n:?}?")
                    });
                    root.reader
                        .problem(Problem::error(span.clone(), message).help(help));
                }
            }
            let find = |name: &String| sections.iter().find(|(q, _)| q.name == *name);
            list.iter()
                .map(|name| {
                    find(name).map_or_else(|| QueueSettings::plain(name), |(q, _)| q.clone())
                })
                .collect()
        }
    }
}

fn read_stored(section: Section<'_, '_>, queue: &str) -> Map<String, Value> {
    let mut stored = Map::new();
    let lease = Duration::from_secs(1)..=Duration::from_secs(86_400);
    put(
        &mut stored,
        "lease_ms",
        section.optional_within("lease", &lease).map(ms),
    );
    put(
        &mut stored,
        "max_attempts",
        section.optional_within("max_attempts", &(1..=1000)),
    );
    put(
        &mut stored,
        "max_crashes",
        section.optional_within("max_crashes", &(1..=1000)),
    );
    let payload = Size(1024)..=Size(256 << 20);
    put(
        &mut stored,
        "max_payload_bytes",
        section
            .optional_within("max_payload", &payload)
            .map(|s| s.0),
    );
    put(
        &mut stored,
        "backoff",
        section.optional::<Backoff>("backoff"),
    );
    let retention = Duration::ZERO..=Duration::from_secs(3650 * 86_400);
    let interval = |d: Duration| format!("{} seconds", d.as_secs_f64());
    put(
        &mut stored,
        "retention",
        section
            .optional_within("retention", &retention)
            .map(interval),
    );
    let mut kinds = Map::new();
    for (kind, section) in section.named_sections("kind") {
        if let Err(e) = super::name_rule(&kind) {
            section
                .reader
                .problem(Problem::error(section.span.clone(), e));
        }
        kinds.insert(kind, Value::Object(read_kind(section)));
    }
    if !kinds.is_empty() {
        stored.insert("kinds".into(), Value::Object(kinds));
    }
    if !stored.is_empty() && queue.contains('*') {
        let message =
            format!("{queue:?} is a pattern: settings are stored for one queue, by its name");
        section
            .reader
            .problem(Problem::error(section.span.clone(), message));
    }
    section.finish();
    stored
}

fn read_kind(section: Section<'_, '_>) -> Map<String, Value> {
    let mut kind = Map::new();
    put(
        &mut kind,
        "max_attempts",
        section.optional_within("max_attempts", &(1..=1000)),
    );
    let timeout = Duration::from_millis(1)..=Duration::from_secs(30 * 86_400);
    put(
        &mut kind,
        "timeout_ms",
        section.optional_within("timeout", &timeout).map(ms),
    );
    put(&mut kind, "backoff", section.optional::<Backoff>("backoff"));
    section.finish();
    kind
}

fn put(map: &mut Map<String, Value>, key: &str, value: Option<impl serde::Serialize>) {
    if let Some(value) = value {
        map.insert(key.into(), json!(value));
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
