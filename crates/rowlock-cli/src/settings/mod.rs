//! The configuration of `rowlock work`: a TOML file, over which flags and the environment win.
//!
//! Promises: every key is known or refused; every problem points at its line; no secret is shown. One file for each section.
//! Must not: connect, or start anything.

mod codes;
mod database;
mod entry;
mod executable;
mod handler;
mod queue;
mod reaction;
mod secret;
mod section;
mod server;
mod source;
mod table;
mod traces;
mod value;
mod worker;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use toml::de::DeTable;

pub(crate) use codes::Codes;
pub(crate) use database::DatabaseSettings;
pub(crate) use entry::{Entry, Origin, key_text};
pub(crate) use handler::{Action, CommandSettings, HandlerSettings, HttpSettings};
pub(crate) use queue::QueueSettings;
pub(crate) use reaction::Reaction;
pub(crate) use section::{Overrides, plain};
pub(crate) use server::{LogFormat, LogSettings, ServerSettings};
pub(crate) use source::{Level, Problem, Refused, Source};
pub(crate) use table::TableSettings;
pub(crate) use traces::TraceSettings;
pub(crate) use worker::WorkerSettings;

use section::{Reader, Section};

/// Where the configuration is looked for when nothing says.
pub(crate) const DEFAULT_FILE: &str = "rowlock.toml";

/// All settings of a worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) database: DatabaseSettings,
    pub(crate) worker: WorkerSettings,
    /// In the order in which they are served.
    pub(crate) queues: Vec<QueueSettings>,
    pub(crate) handlers: Vec<HandlerSettings>,
    /// Tables that are queues, beside the queue.
    pub(crate) tables: Vec<TableSettings>,
    pub(crate) http: ServerSettings,
    pub(crate) log: LogSettings,
    /// `None`: there are no traces.
    pub(crate) traces: Option<TraceSettings>,
}

/// A file as it was read, with all its mistakes.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) source: Source,
    /// Every setting with its origin, sorted by path.
    pub(crate) entries: Vec<Entry>,
    pub(crate) problems: Vec<Problem>,
    settings: Option<Settings>,
}

impl Loaded {
    /// Reads a file. Fails if there is no text to read; what is wrong with the text is in `problems`.
    pub(crate) fn read(path: &Path, overrides: &Overrides) -> anyhow::Result<Self> {
        Ok(Self::of(Source::read(path)?, overrides))
    }

    pub(crate) fn of(source: Source, overrides: &Overrides) -> Self {
        let reader = Reader::new(&source, overrides);
        let settings = match DeTable::parse(&source.text) {
            Ok(table) => read_root(&Section::root(&reader, table.get_ref())),
            Err(e) => {
                // The parser's message may have several lines; they are one sentence.
                reader.problem(Problem::error(e.span(), e.message().replace('\n', "; ")));
                None
            }
        };
        let (mut problems, mut entries) = (reader.problems.take(), reader.entries.take());
        problems.sort_by_key(|p| p.span.as_ref().map(|s| s.start));
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Self {
            source,
            entries,
            problems,
            settings,
        }
    }

    /// The settings, if nothing stands against using them here.
    pub(crate) fn usable(self) -> Result<Settings, Refused> {
        let errors = self.rendered(|level| level != Level::Warning);
        match self.settings {
            Some(settings) if errors.is_empty() => Ok(settings),
            _ => Err(Refused(errors)),
        }
    }

    /// The problems of some levels, as text.
    pub(crate) fn rendered(&self, of: impl Fn(Level) -> bool) -> Vec<String> {
        let problems = self.problems.iter().filter(|p| of(p.level));
        problems.map(|p| self.source.render(p)).collect()
    }

    /// Whether it is wrong wherever it is used.
    pub(crate) fn is_wrong(&self) -> bool {
        self.problems.iter().any(|p| p.level == Level::Error)
    }
}

fn read_root(root: &Section<'_, '_>) -> Option<Settings> {
    let database = DatabaseSettings::read(root.section_in_environment("database"));
    let worker = WorkerSettings::read(root.section_in_environment("worker"));
    let queues = queue::read_queues(root, &worker);
    let handlers = handler::read_handlers(root);
    let tables = table::read_tables(root);
    let http = ServerSettings::read(root.section_in_environment("http"));
    let log = LogSettings::read(root.section_in_environment("log"));
    let traces = TraceSettings::read(root.section_in_environment("traces"));
    complain_of_nothing_to_do(root, &worker);
    root.complain_of_unknown();
    Some(Settings {
        database: database?,
        worker,
        queues,
        handlers,
        tables,
        http,
        log,
        traces,
    })
}

/// Without handlers there are no jobs to work on; tables that are queues are then all there is.
fn complain_of_nothing_to_do(root: &Section<'_, '_>, worker: &WorkerSettings) {
    if root.has_sections("handler") {
        return;
    }
    let queues = root.has_sections("queue") || worker.queues.is_some();
    let message = match (root.has_sections("table"), queues) {
        (true, false) => return,
        (true, true) => {
            "there is no [handler.KIND] section, so nothing would be done for the queues that are named"
        }
        (false, _) => "there is no [handler.KIND] section, so the worker would have nothing to run",
    };
    root.reader.problem(
        Problem::error(None, message)
            .help("add one, such as [handler.email] with command = [\"./send-email\"]"),
    );
}

/// The rule for names of kinds, queues and workers, as the library has it.
fn name_rule(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
        return Err(format!(
            "{name:?} is no name: it needs 1 to 200 bytes of printable text"
        ));
    }
    Ok(())
}

fn check_name(section: &Section<'_, '_>, key: &str, name: &str) {
    if let Err(e) = name_rule(name) {
        section.complain(key, e);
    }
}

/// The file to read: what was given, or `rowlock.toml` if that is here.
pub(crate) fn file(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    match given {
        Some(path) => Ok(path.to_owned()),
        None if Path::new(DEFAULT_FILE).exists() => Ok(DEFAULT_FILE.into()),
        None => anyhow::bail!(
            "there is no {DEFAULT_FILE} here: say which configuration with -c FILE or ROWLOCK_CONFIG"
        ),
    }
}
