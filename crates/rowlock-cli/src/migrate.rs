//! `rowlock migrate`: bring the schema to the version of this program.

use clap::Args;

use crate::connect::Database;

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

impl Migrate {
    pub(crate) async fn run(self, database: &Database) -> anyhow::Result<()> {
        if self.sql {
            // Any connection settings will do: nothing is connected.
            let client = database.client_of("host=localhost".parse()?)?;
            print!("{}", client.migration_script());
            return Ok(());
        }
        let client = database.client()?;
        let status = if self.dry_run || self.status {
            client.migration_status().await?
        } else {
            client.migrate().await?
        };
        let schema = client.schema();
        if status.is_current() {
            println!("schema {schema} is up to date (version {})", status.current);
            return Ok(());
        }
        let verb = if self.dry_run || self.status {
            "would be"
        } else {
            "is"
        };
        for step in &status.pending {
            println!("step {step} {verb} applied");
        }
        if status.pending.is_empty() {
            println!("functions and views {verb} replaced by those of this version");
        }
        if self.status {
            anyhow::bail!(
                "schema {schema} is at version {}, this program brings {}: run `rowlock migrate`",
                status.current,
                status.latest
            );
        }
        if !self.dry_run {
            println!("schema {schema} is at version {} now", status.latest);
        }
        Ok(())
    }
}
