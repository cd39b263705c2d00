//! `[table.NAME]`: a table of somebody's own as a queue, and what handles its rows. The handler is one as in `[handler.KIND]`.

use std::time::Duration;

use rowlock::{Backoff, Error, OnDone, OnFailed, TableQueue, TableQueueBuilder, TableRow};
use serde_json::value::RawValue;

use super::handler::{Action, Owner, has_one, read_action};
use super::section::{Section, type_text};
use super::source::Problem;
use super::value::{Setting, Size};

/// A table that is worked as a queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableSettings {
    /// What logs, metrics and remembered failures call it.
    pub(crate) name: String,
    /// `table` or `schema.table`, as SQL writes it.
    table: String,
    key: Option<Vec<String>>,
    columns: Option<Vec<String>>,
    pending: Option<String>,
    order_by: Option<String>,
    on_done: OnDone,
    park_after: u32,
    crashes: u32,
    backoff: Backoff,
    /// What is set on a row that is parked.
    park_set: Option<String>,
    batch: usize,
    concurrency: usize,
    at_once: usize,
    poll: Duration,
    listen: Option<String>,
    row_max: usize,
    /// How long one row may take.
    pub(crate) timeout: Duration,
    pub(crate) action: Action,
}

impl TableSettings {
    /// After how many failures a row is parked.
    pub(crate) fn park_after(&self) -> u32 {
        self.park_after
    }

    /// As the library takes it, without the handler. `beyond`: how much longer than its time limit a handler may take to end.
    pub(crate) fn builder(&self, beyond: Duration) -> TableQueueBuilder {
        let mut on_failed = OnFailed::park_after(self.park_after)
            .crashes(self.crashes)
            .backoff(self.backoff.clone());
        if let Some(set) = &self.park_set {
            on_failed = on_failed.set(set);
        }
        let mut builder = TableQueue::builder(&self.table)
            .name(&self.name)
            .on_done(self.on_done.clone())
            .on_failed(on_failed)
            .batch(self.batch)
            .concurrency(self.concurrency)
            .at_once(self.at_once)
            .poll(self.poll)
            .row_bytes_max(self.row_max)
            .timeout(self.timeout + beyond);
        if let Some(key) = &self.key {
            builder = builder.key(key);
        }
        if let Some(columns) = &self.columns {
            builder = builder.columns(columns);
        }
        if let Some(pending) = &self.pending {
            builder = builder.pending(pending);
        }
        if let Some(order) = &self.order_by {
            builder = builder.order_by(order);
        }
        if let Some(channel) = &self.listen {
            builder = builder.listen(channel);
        }
        builder
    }
}

pub(super) fn read_tables(root: &Section<'_, '_>) -> Vec<TableSettings> {
    root.named_sections("table")
        .into_iter()
        .filter_map(|(name, section)| read_table(name, &section))
        .collect()
}

fn read_table(name: String, section: &Section<'_, '_>) -> Option<TableSettings> {
    if let Err(e) = super::name_rule(&name) {
        let problem = Problem::error(section.span.clone(), e);
        section.reader.problem(problem);
    }
    let action = read_action(&Owner::table(&name), section);
    if !has_one(section) {
        return None;
    }
    let secs = Duration::from_secs;
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    // A batch is an open transaction: what needs a day to handle has no place in it.
    let limits = Duration::from_millis(1)..=secs(86_400);
    let poll = Duration::from_millis(10)..=secs(3600);
    let row_max = section.within("row_max", Size(1 << 20), &(Size(1)..=Size(256 << 20)));
    let failed = read_on_failed(section.section("on_failed"));
    let on_done = read_on_done(section);
    let table = section.value("table", name.clone());
    let (key, columns) = (section.optional("key"), section.optional("columns"));
    let (pending, order_by) = (section.optional("pending"), section.optional("order_by"));
    let batch = count(section.within("batch", 100, &(1..=10_000)));
    let concurrency = count(section.within("concurrency", 1, &(1..=100)));
    let at_once = count(section.within("at_once", 10, &(1..=10_000)));
    let poll = section.within("poll", secs(1), &poll);
    let listen = section.optional("listen");
    let usual = match &action {
        Some(Action::Http(_)) => secs(30),
        _ => secs(300),
    };
    let timeout = section.within("timeout", usual, &limits);
    section.complain_of_unknown();
    let settings = TableSettings {
        name,
        table,
        key,
        columns,
        pending,
        order_by,
        on_done: on_done?,
        park_after: failed.park_after,
        crashes: failed.crashes,
        backoff: failed.backoff,
        park_set: failed.set,
        batch,
        concurrency,
        at_once,
        poll,
        listen,
        row_max: count(row_max.0),
        timeout,
        action: action?,
    };
    check(&settings, section);
    Some(settings)
}

/// What happens to a row that is done: `"delete"`, or `{ set = "…" }`. There is no default, as neither can be undone.
fn read_on_done(section: &Section<'_, '_>) -> Option<OnDone> {
    let wanted = "\"delete\", or { set = \"status = 'done'\" }";
    let Some(value) = section.raw("on_done") else {
        let message = format!(
            "[{}] does not say what happens to a row that is done",
            section.path
        );
        let problem = Problem::error(section.span.clone(), message);
        section
            .reader
            .problem(problem.help(format!("add on_done = {wanted}")));
        return None;
    };
    if value.get_ref().is_table() {
        let inner = section.section("on_done");
        let set = inner.optional::<String>("set");
        if inner.items().is_empty() {
            inner.complain(
                "set",
                format!("{} sets nothing: it must be {wanted}", inner.path),
            );
        }
        inner.finish();
        return set.map(OnDone::Set);
    }
    if value.get_ref().as_str() != Some("delete") {
        let path = section.path_of("on_done");
        let found = match value.get_ref().as_str() {
            Some(text) => format!("{text:?}"),
            None => type_text(value.get_ref()).to_owned(),
        };
        section.complain("on_done", format!("{path} must be {wanted}, not {found}"));
        return None;
    }
    let shown = "delete".to_owned().shown();
    let meaning = shown.to_string();
    let path = section.path_of("on_done");
    section
        .reader
        .note(path, shown, meaning, section.origin(value));
    Some(OnDone::Delete)
}

struct Failed {
    park_after: u32,
    crashes: u32,
    backoff: Backoff,
    set: Option<String>,
}

fn read_on_failed(section: Section<'_, '_>) -> Failed {
    let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let park_after = section.within("park_after", 5, &(1..=1000));
    let failed = Failed {
        park_after: count(park_after),
        crashes: count(section.within("crashes", park_after.clamp(1, 1000), &(1..=1000))),
        backoff: section.value("backoff", Backoff::default()),
        set: section.optional("set"),
    };
    section.finish();
    failed
}

/// What the library says to it: names that are none, SQL that is empty, rows that would stay pending for ever.
fn check(settings: &TableSettings, section: &Section<'_, '_>) {
    let nobody = async |_: TableRow<Box<RawValue>>| {};
    let Err(error) = settings.builder(Duration::ZERO).handler(nobody).check() else {
        return;
    };
    let problem = match &error {
        Error::Invalid(invalid) => {
            let key = match invalid.what {
                "row_bytes_max" => "row_max",
                what => what.split(':').next().unwrap_or(what),
            };
            Problem::error(section.span_of(key), error.to_string())
        }
        // All other things that it asks for have been read.
        _ => Problem::error(
            section.span.clone(),
            format!("[{}] does not say which rows are pending: rows that are kept when done would be worked for ever", section.path),
        )
        .help("add pending = \"status = 'pending'\", or what it is in this table"),
    };
    section.reader.problem(problem);
}
