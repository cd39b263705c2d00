//! `rowlock config diff`: what two configurations do differently. The order of keys, the formatting, and defaults that are written out make
//! no difference.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::settings::{Entry, Loaded, Overrides, Refused, plain};

/// Compare two configurations by what they mean. Exits with 1 if they differ.
///
/// Order, formatting, and defaults that are written out make no difference. The environment is left out of it. Secrets are compared, but
/// not shown.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock config diff staging.toml production.toml\n  \
    rowlock config diff --json old.toml new.toml")]
pub(crate) struct Diff {
    /// The one.
    #[arg(value_name = "A")]
    a: PathBuf,

    /// The other.
    #[arg(value_name = "B")]
    b: PathBuf,
}

/// One line of what `rowlock config diff` answers with `--json`; null: it is not set there.
#[derive(Serialize)]
struct Difference {
    setting: String,
    a: Option<Value>,
    b: Option<Value>,
}

impl Diff {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let differences = compare(&read(&self.a)?, &read(&self.b)?);
        match global.format() {
            Format::Json => output::json(&differences)?,
            Format::Table => print(&differences, &self.a, &self.b),
        }
        Ok(if differences.is_empty() {
            Exit::Success
        } else {
            Exit::Failure
        })
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let loaded = Loaded::read(path, &Overrides::default())?;
    if loaded.is_wrong() {
        return Err(
            Refused(loaded.rendered(|level| level == crate::settings::Level::Error)).into(),
        );
    }
    Ok(loaded.entries)
}

fn compare(a: &[Entry], b: &[Entry]) -> Vec<Difference> {
    let mut both: BTreeMap<&str, (Option<&Entry>, Option<&Entry>)> = BTreeMap::new();
    for entry in a {
        both.entry(&entry.path).or_default().0 = Some(entry);
    }
    for entry in b {
        both.entry(&entry.path).or_default().1 = Some(entry);
    }
    let meaning = |entry: Option<&Entry>| entry.map(|e| e.meaning.clone());
    both.into_iter()
        .filter(|(_, (a, b))| meaning(*a) != meaning(*b))
        .map(|(path, (a, b))| Difference {
            setting: path.to_owned(),
            a: a.map(|e| e.shown.clone()),
            b: b.map(|e| e.shown.clone()),
        })
        .collect()
}

fn print(differences: &[Difference], a: &Path, b: &Path) {
    let (a, b) = (a.display().to_string(), b.display().to_string());
    let mut table = output::table(&["SETTING", &a, &b]);
    let cell = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), plain);
    for difference in differences {
        let (one, mut other) = (cell(&difference.a), cell(&difference.b));
        if one == other {
            // Secrets that differ look the same.
            other.push_str(" (differs)");
        }
        table.add_row([difference.setting.clone(), one, other]);
    }
    output::print_table(&table, "they mean the same");
}
