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
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        if self.sql {
            // Any connection settings will do: nothing is connected.
            let client = global.database.client_of("host=localhost".parse()?)?;
            print!("{}", client.migration_script());
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
            Format::Table => answer.print(current, look_only),
        }
        Ok(if self.status && !current {
            Exit::Failure
        } else {
            Exit::Success
        })
    }
}

impl Answer {
    fn print(&self, current: bool, look_only: bool) {
        let schema = &self.schema;
        if current {
            println!("schema {schema} is up to date (version {})", self.version);
            return;
        }
        let verb = if look_only { "would be" } else { "was" };
        for step in &self.pending {
            println!("step {step} {verb} applied");
        }
        if self.pending.is_empty() {
            println!("functions and views {verb} replaced by those of this version");
        }
        if look_only {
            println!(
                "schema {schema} is at version {}, this program brings {}: run `rowlock migrate`",
                self.version, self.latest
            );
        } else {
            println!("schema {schema} is at version {} now", self.latest);
        }
    }
}
