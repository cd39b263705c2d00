//! Reading a table of the file by name and type. Everything that is read is noted down with its origin; everything wrong is gathered, so
//! that a file with three mistakes needs one look and not three.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::entry::{Entry, Origin, key_text};
use super::source::{Problem, Source};
use super::value::Setting;
use crate::nearest::did_you_mean;

/// What wins over the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    /// By path: the flag, and the text that it was given.
    pub(crate) flags: BTreeMap<String, (String, String)>,
    /// The environment, as it was at the start.
    pub(crate) environment: BTreeMap<String, String>,
}

impl Overrides {
    pub(crate) fn from_environment() -> Self {
        Self {
            flags: BTreeMap::new(),
            // A variable that is no text cannot be a setting.
            environment: std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
        }
    }

    /// Notes that a flag was given.
    pub(crate) fn flag(&mut self, path: &str, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.flags
                .insert(path.into(), (name.into(), value.to_string()));
        }
    }
}

/// Reads one file.
pub(crate) struct Reader<'t> {
    pub(crate) source: &'t Source,
    pub(crate) overrides: &'t Overrides,
    pub(crate) problems: RefCell<Vec<Problem>>,
    pub(crate) entries: RefCell<Vec<Entry>>,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(source: &'t Source, overrides: &'t Overrides) -> Self {
        Self {
            source,
            overrides,
            problems: RefCell::default(),
            entries: RefCell::default(),
        }
    }

    pub(crate) fn problem(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    pub(crate) fn note(&self, path: String, shown: Value, meaning: String, origin: Origin) {
        self.entries.borrow_mut().push(Entry {
            path,
            shown,
            meaning,
            origin,
        });
    }
}

/// A table of the file, or the place of one that is not there.
pub(crate) struct Section<'r, 't> {
    pub(crate) reader: &'r Reader<'t>,
    pub(crate) path: String,
    table: Option<&'r DeTable<'t>>,
    /// Where the table is.
    pub(crate) span: Option<Range<usize>>,
    known: RefCell<Vec<&'static str>>,
    /// Whether its settings can be given in the environment: `ROWLOCK_WORKER_POLL`.
    in_environment: bool,
}

impl<'r, 't> Section<'r, 't> {
    pub(crate) fn root(reader: &'r Reader<'t>, table: &'r DeTable<'t>) -> Self {
        Self {
            reader,
            path: String::new(),
            table: Some(table),
            span: None,
            known: RefCell::default(),
            in_environment: false,
        }
    }

    /// The table under this key, or the place of one.
    pub(crate) fn section(&self, key: &'static str) -> Section<'r, 't> {
        self.known.borrow_mut().push(key);
        let found = self.table.and_then(|t| t.get_key_value(key));
        let (table, span) = match found {
            Some((name, value)) => (self.as_table(key, value), Some(name.span())),
            None => (None, None),
        };
        Section {
            reader: self.reader,
            path: self.path_of(key),
            table,
            span,
            known: RefCell::default(),
            in_environment: false,
        }
    }

    /// As [`section`](Self::section), for one whose settings may come from the environment.
    pub(crate) fn section_in_environment(&self, key: &'static str) -> Section<'r, 't> {
        Section {
            in_environment: true,
            ..self.section(key)
        }
    }

    /// The tables under this key, each with its name: `[queue.NAME]`.
    pub(crate) fn named_sections(&self, key: &'static str) -> Vec<(String, Section<'r, 't>)> {
        let outer = self.section(key);
        let Some(table) = outer.table else {
            return Vec::new();
        };
        table
            .iter()
            .map(|(name, value)| {
                let section = Section {
                    reader: self.reader,
                    path: outer.path_of(name.get_ref()),
                    table: outer.as_table(name.get_ref(), value),
                    span: Some(name.span()),
                    known: RefCell::default(),
                    in_environment: false,
                };
                (name.get_ref().to_string(), section)
            })
            .collect()
    }

    /// All keys with their values, for a table whose keys are free: headers, exit codes.
    pub(crate) fn items(&self) -> Vec<(String, Range<usize>, &'r Spanned<DeValue<'t>>)> {
        let items = self.table.into_iter().flatten();
        items
            .map(|(key, value)| (key.get_ref().to_string(), key.span(), value))
            .collect()
    }

    /// The value under a key as it stands in the file.
    pub(crate) fn raw(&self, key: &'static str) -> Option<&'r Spanned<DeValue<'t>>> {
        self.known.borrow_mut().push(key);
        self.table?.get(key)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|t| t.contains_key(key))
    }

    /// Whether there are tables under this key: `[queue.NAME]`.
    pub(crate) fn has_sections(&self, key: &str) -> bool {
        let value = self.table.and_then(|t| t.get(key));
        value
            .and_then(|v| v.get_ref().as_table())
            .is_some_and(|t| !t.is_empty())
    }

    /// A setting with a default.
    pub(crate) fn value<T: Setting>(&self, key: &'static str, default: T) -> T {
        match self.find(key) {
            Some((value, origin)) => {
                self.note(key, &value, origin);
                value
            }
            None => {
                self.note(key, &default, Origin::Default);
                default
            }
        }
    }

    /// A setting that may be missing.
    pub(crate) fn optional<T: Setting>(&self, key: &'static str) -> Option<T> {
        let Some((value, origin)) = self.find(key) else {
            // Where there are few of them, what is not set is worth showing too.
            if self.in_environment {
                self.note_unset(key);
            }
            return None;
        };
        self.note(key, &value, origin);
        Some(value)
    }

    /// Notes that nothing was said.
    pub(super) fn note_unset(&self, key: &str) {
        self.reader.note(
            self.path_of(key),
            Value::Null,
            "not set".into(),
            Origin::Default,
        );
    }

    /// A setting with a default that must lie within bounds.
    pub(crate) fn within<T: Setting + PartialOrd + Clone>(
        &self,
        key: &'static str,
        default: T,
        range: &RangeInclusive<T>,
    ) -> T {
        let value = self.value(key, default);
        self.check_within(key, &value, range);
        value
    }

    /// An optional setting that must lie within bounds.
    pub(crate) fn optional_within<T: Setting + PartialOrd>(
        &self,
        key: &'static str,
        range: &RangeInclusive<T>,
    ) -> Option<T> {
        let value = self.optional(key)?;
        self.check_within(key, &value, range);
        Some(value)
    }

    fn check_within<T: Setting + PartialOrd>(
        &self,
        key: &str,
        value: &T,
        range: &RangeInclusive<T>,
    ) {
        if !range.contains(value) {
            let message = format!(
                "{} must be from {} to {}, not {}",
                self.path_of(key),
                plain(&range.start().shown()),
                plain(&range.end().shown()),
                plain(&value.shown()),
            );
            self.complain(key, message);
        }
    }

    /// Says that something is wrong with the value of a key, wherever it came from.
    pub(crate) fn complain(&self, key: &str, message: impl Into<String>) {
        self.reader
            .problem(Problem::error(self.span_of(key), message));
    }

    /// Where the value of a key stands in the file, unless something else won over it.
    pub(crate) fn span_of(&self, key: &str) -> Option<Range<usize>> {
        if self.over(key).is_some() {
            return None;
        }
        let value = self.table.and_then(|t| t.get(key));
        value.map(Spanned::span).or_else(|| self.span.clone())
    }

    /// The origin and text of what wins over the file, if something does.
    pub(crate) fn over(&self, key: &str) -> Option<(Origin, &'r str)> {
        let overrides = self.reader.overrides;
        let path = self.path_of(key);
        if let Some((flag, text)) = overrides.flags.get(&path) {
            return Some((Origin::Flag(flag.clone()), text));
        }
        if !self.in_environment {
            return None;
        }
        self.variables(key).into_iter().find_map(|name| {
            let text = overrides.environment.get(&name)?;
            // In the standard's variables, empty means not set.
            if text.is_empty() && name.starts_with("OTEL_") {
                return None;
            }
            Some((Origin::Environment(name), text.as_str()))
        })
    }

    /// The variables that a setting can be given by.
    fn variables(&self, key: &str) -> Vec<String> {
        let mut names = vec![format!("ROWLOCK_{}_{key}", self.path).to_uppercase()];
        match (self.path.as_str(), key) {
            ("database", "url") => names.push("DATABASE_URL".into()),
            ("database", "schema") => names.push("ROWLOCK_SCHEMA".into()),
            ("log", "level") => names.push("RUST_LOG".into()),
            ("traces", "endpoint") => names.push("OTEL_EXPORTER_OTLP_ENDPOINT".into()),
            ("traces", "service_name") => names.push("OTEL_SERVICE_NAME".into()),
            _ => {}
        }
        names
    }

    fn find<T: Setting>(&self, key: &'static str) -> Option<(T, Origin)> {
        self.known.borrow_mut().push(key);
        if let Some((origin, text)) = self.over(key) {
            return match T::from_text(text) {
                Ok(value) => Some((value, origin)),
                Err(e) => {
                    self.reader.problem(Problem::error(
                        None,
                        format!("{} ({origin}): {e}", self.path_of(key)),
                    ));
                    None
                }
            };
        }
        let value = self.table?.get(key)?;
        match T::from_toml(value.get_ref()) {
            Ok(read) => Some((read, self.origin(value))),
            Err(why) => {
                let message = why.unwrap_or_else(|| {
                    format!(
                        "{} must be {}, not {}",
                        self.path_of(key),
                        T::WANTED,
                        type_text(value.get_ref())
                    )
                });
                self.reader
                    .problem(Problem::error(Some(value.span()), message));
                None
            }
        }
    }

    /// Where in the file a value stands.
    pub(crate) fn origin(&self, value: &Spanned<DeValue<'_>>) -> Origin {
        Origin::File(self.reader.source.place(value.span().start).0)
    }

    fn note<T: Setting>(&self, key: &str, value: &T, origin: Origin) {
        let shown = value.shown();
        let meaning = shown.to_string();
        self.reader.note(self.path_of(key), shown, meaning, origin);
    }

    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key_text(key)
        } else {
            format!("{}.{}", self.path, key_text(key))
        }
    }

    fn as_table(&self, key: &str, value: &'r Spanned<DeValue<'t>>) -> Option<&'r DeTable<'t>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            let found = type_text(value.get_ref());
            self.reader.problem(Problem::error(
                Some(value.span()),
                format!("{} must be a table, not {found}", self.path_of(key)),
            ));
        }
        table
    }

    /// Complains about keys that nobody asked for.
    pub(crate) fn finish(self) {
        self.complain_of_unknown();
    }

    /// As [`finish`](Self::finish), for a section that is still needed.
    pub(crate) fn complain_of_unknown(&self) {
        let mut known = self.known.borrow().clone();
        // What can be of two types was asked for twice.
        let mut seen = std::collections::BTreeSet::new();
        known.retain(|key| seen.insert(*key));
        for (key, span, _) in self.items() {
            if !known.contains(&key.as_str()) {
                let place = if self.path.is_empty() {
                    String::new()
                } else {
                    format!(" in [{}]", self.path)
                };
                let message = format!("unknown key {key:?}{place}");
                let help = did_you_mean(&key, known.iter().copied());
                self.reader
                    .problem(Problem::error(Some(span), message).help(help));
            }
        }
        if self.in_environment {
            self.check_environment(&known);
        }
    }

    /// A mistyped variable would be ignored in silence; but others have variables with our prefix too (an orchestrator makes
    /// `ROWLOCK_WORKER_SERVICE_HOST` for a service of that name), so only what is near to a setting is complained about.
    fn check_environment(&self, known: &[&str]) {
        let prefix = format!("ROWLOCK_{}_", self.path).to_uppercase();
        for name in self.reader.overrides.environment.keys() {
            let Some(key) = name.strip_prefix(&prefix).map(str::to_lowercase) else {
                continue;
            };
            if known.contains(&key.as_str()) {
                continue;
            }
            if let Some(meant) = crate::nearest::nearest(&key, known.iter().copied()) {
                let message = format!("the variable {name} is no setting");
                let help = format!("did you mean {prefix}{}?", meant.to_uppercase());
                self.reader
                    .problem(Problem::warning(None, message).help(help));
            }
        }
    }
}

/// The type of a value in words.
pub(crate) fn type_text(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// As people read it: texts without quotes, `-` for nothing.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
