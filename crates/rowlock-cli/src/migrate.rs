//! `rowlock migrate`: bring the schema to the version of this program.

use clap::Args;

use serde::Serialize;

use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};

/// Install the queue in a database, or bring it up to date.
///
/// Runs in one transaction, waits for its turn when others migrate at the same time, and does nothing when there is nothing to do.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock migrate -d postgres://localhost/app\n  \
    rowlock migrate --status\n  \
    rowlock migrate --sql > rowlock.sql      # for somebody else to run")]
pub(crate) struct Migrate {
    /// Only say what would be done.
    #[arg(long, conflicts_with = "sql")]
    dry_run: bool,

    /// Only say how the database stands. Exits with 1 when there is something to do.
    #[arg(long, conflicts_with_all = ["dry_run", "sql"])]
    status: bool,

    /// Print the script instead of running it. Needs no database.
    #[arg(long)]
    sql: bool,
}

/// What `rowlock migrate` answers with `--json`.
#[derive(Serialize)]
struct Answer {
    schema: String,
    /// The version before.
    version: i32,
    latest: i32,
    pending: Vec<String>,
    functions_current: bool,
    /// Whether anything was changed.
    applied: bool,
}

impl Migrate {
    /// Whether it prints the script and nothing else.
    pub(crate) fn is_script(&self) -> bool {
        self.sql
    }

    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        if self.sql {
            // Any connection settings will do: nothing is connected.
            let client = global.database.client_of("host=localhost".parse()?)?;
            output::text(&client.migration_script());
            return Ok(Exit::Success);
        }
        let client = global.database.client()?;
        let look_only = self.dry_run || self.status;
        let before = if look_only {
            client.migration_status().await?
        } else {
            client.migrate().await?
        };
        let current = before.is_current();
        let answer = Answer {
            schema: client.schema().to_string(),
            version: before.current,
            latest: before.latest,
            pending: before.pending,
            functions_current: before.functions_current,
            applied: !look_only && !current,
        };
        match global.format() {
            Format::Json => output::json(&answer)?,
            Format::Table => output::text(&answer.say(current, look_only)),
        }
        Ok(if self.status && !current {
            Exit::Failure
        } else {
            Exit::Success
        })
    }
}

impl Answer {
    fn say(&self, current: bool, look_only: bool) -> String {
        let schema = &self.schema;
        if current {
            return format!("schema {schema} is up to date (version {})\n", self.version);
        }
        let verb = if look_only { "would be" } else { "was" };
        let mut text = String::new();
        for step in &self.pending {
            text += &format!("step {step} {verb} applied\n");
        }
        if self.pending.is_empty() {
            text += &format!("functions and views {verb} replaced by those of this version\n");
        }
        text += &if look_only {
            format!(
                "schema {schema} is at version {}, this program brings {}: run `rowlock migrate`\n",
                self.version, self.latest
            )
        } else {
            format!("schema {schema} is at version {} now\n", self.latest)
        };
        text
    }
}
