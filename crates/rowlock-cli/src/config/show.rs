//! `rowlock config show`: every setting as it would be used, and where it comes from.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::settings::{self, Entry, Loaded, Refused, plain};
use crate::work::Over;

/// Show every setting as `rowlock work` would use it, and where it comes from.
///
/// Flags win over the environment, that over the file, that over the defaults. Secrets are masked.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock config show rowlock.toml\n  \
    ROWLOCK_WORKER_CONCURRENCY=50 rowlock config show --json")]
pub(crate) struct Show {
    /// The configuration; rowlock.toml if there is one here.
    #[arg(env = "ROWLOCK_CONFIG", value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    over: Over,
}

/// One line of what `rowlock config show` answers with `--json`.
#[derive(Serialize)]
struct Answer<'a> {
    setting: &'a str,
    value: &'a Value,
    origin: String,
}

impl Show {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let file = settings::file(self.file.as_deref())?;
        let loaded = Loaded::read(&file, &self.over.overrides(global))?;
        if loaded.is_wrong() {
            return Err(Refused(loaded.rendered(|level| level == settings::Level::Error)).into());
        }
        match global.format() {
            Format::Json => {
                let all: Vec<Answer<'_>> = loaded.entries.iter().map(answer).collect();
                output::json(&all)?;
            }
            Format::Table => {
                let mut table = output::table(&["SETTING", "VALUE", "FROM"]);
                for entry in &loaded.entries {
                    table.add_row([
                        entry.path.clone(),
                        plain(&entry.shown),
                        entry.origin.to_string(),
                    ]);
                }
                output::print_table(&table, "there are no settings");
            }
        }
        Ok(Exit::Success)
    }
}

fn answer(entry: &Entry) -> Answer<'_> {
    Answer {
        setting: &entry.path,
        value: &entry.shown,
        origin: entry.origin.to_string(),
    }
}
