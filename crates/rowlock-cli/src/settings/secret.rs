//! Texts that may be secret: written out, taken from the environment, or read from a file. They are never shown.

use std::fmt;
use std::path::Path;

use serde_json::json;
use toml::Spanned;
use toml::de::DeValue;

use super::section::{Section, type_text};
use super::source::{Level, Problem};

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// The text itself, for where it is needed and nowhere else.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The mask in place of a secret.
pub(crate) const MASK: &str = "***";

/// Whether something of this name is shown when it is written out: an `Accept` header, but not an `Authorization`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    Never,
    /// Unless its name sounds secret.
    ByName,
}

impl Section<'_, '_> {
    /// A text that may be given as `{ env = "NAME" }` or `{ file = "PATH" }`.
    pub(crate) fn secret(&self, key: &'static str) -> Option<Secret> {
        if let Some((origin, text)) = self.over(key) {
            let _ = self.raw(key);
            self.reader.note(
                self.path_of(key),
                json!(MASK),
                format!("literal {text}"),
                origin,
            );
            return Some(Secret::new(text));
        }
        let value = self.raw(key)?;
        self.secret_at(key, value, Show::Never)
    }

    /// As [`secret`](Self::secret), of a value that was found already.
    pub(crate) fn secret_at(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        show: Show,
    ) -> Option<Secret> {
        let path = self.path_of(key);
        let origin = self.origin(value);
        let note = |shown, meaning| self.reader.note(path.clone(), shown, meaning, origin);
        match value.get_ref() {
            DeValue::String(text) => {
                let shown = show == Show::ByName && !sounds_secret(key);
                note(
                    json!(if shown { text } else { MASK }),
                    format!("literal {text}"),
                );
                Some(Secret::new(text.as_ref()))
            }
            DeValue::Table(table) if table.len() == 1 => {
                let (from, name) = table.iter().next()?;
                let text = name.get_ref().as_str();
                match (from.get_ref().as_ref(), text) {
                    ("env", Some(name)) => {
                        note(json!({ "env": name }), format!("env {name}"));
                        self.resolve(value, self.from_environment(name))
                    }
                    ("file", Some(name)) => {
                        note(json!({ "file": name }), format!("file {name}"));
                        self.resolve(value, from_file(Path::new(name)))
                    }
                    _ => self.refuse_secret(&path, value),
                }
            }
            _ => self.refuse_secret(&path, value),
        }
    }

    fn from_environment(&self, name: &str) -> Result<String, String> {
        match self.reader.overrides.environment.get(name) {
            Some(text) if text.is_empty() => Err(format!("the variable {name} is empty")),
            Some(text) => Ok(text.clone()),
            None => Err(format!("the variable {name} is not set")),
        }
    }

    /// What is missing here may be there where the file is used: that is for whoever loads it to judge.
    fn resolve(
        &self,
        value: &Spanned<DeValue<'_>>,
        found: Result<String, String>,
    ) -> Option<Secret> {
        match found {
            Ok(text) => Some(Secret(text)),
            Err(why) => {
                self.reader.problem(Problem {
                    level: Level::Missing,
                    ..Problem::error(Some(value.span()), why)
                });
                None
            }
        }
    }

    fn refuse_secret(&self, path: &str, value: &Spanned<DeValue<'_>>) -> Option<Secret> {
        let found = type_text(value.get_ref());
        self.reader.problem(Problem::error(
            Some(value.span()),
            format!(
                "{path} must be a text, {{ env = \"NAME\" }} or {{ file = \"PATH\" }}, not {found}"
            ),
        ));
        None
    }
}

/// The text of a file, without the line break at its end that editors leave.
fn from_file(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("cannot read the secret in {}: {e}", path.display()))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(format!("the secret in {} is empty", path.display()));
    }
    Ok(text.to_owned())
}

/// Whether the name of a header or variable sounds as if its value were secret.
fn sounds_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    [
        "auth",
        "cookie",
        "key",
        "pass",
        "secret",
        "token",
        "credential",
        "url",
        "dsn",
    ]
    .iter()
    .any(|word| name.contains(word))
}
