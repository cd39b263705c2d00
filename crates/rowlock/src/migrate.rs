//! Migrations: numbered, forward only, embedded, in one transaction, done once however many instances start together.
//!
//! A migration is a step of tables (`sql/migrations`); the functions and views (`sql/functions`) are installed anew after each
//! step, and whenever a build brings others than those in the database. An older build that starts while a newer one is being
//! rolled out leaves the newer one's functions alone.

use std::fmt::Write as _;

use crate::db::{ConnInfo, ConnectOptions, Connection, connect};
use crate::error::{Error, Result};
use crate::schema::Schema;

/// One numbered step.
struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "tables",
        sql: include_str!("../sql/migrations/0001_tables.sql"),
    },
    Migration {
        version: 2,
        name: "claims follow each other",
        sql: include_str!("../sql/migrations/0002_claims_follow_each_other.sql"),
    },
    Migration {
        version: 3,
        name: "bells for scheduled jobs",
        sql: include_str!("../sql/migrations/0003_bells_for_scheduled_jobs.sql"),
    },
    Migration {
        version: 4,
        name: "claims say little",
        sql: include_str!("../sql/migrations/0004_claims_say_little.sql"),
    },
    Migration {
        version: 5,
        name: "checks at the door",
        sql: include_str!("../sql/migrations/0005_checks_at_the_door.sql"),
    },
    Migration {
        version: 6,
        name: "nothing twice in the index",
        sql: include_str!("../sql/migrations/0006_nothing_twice_in_the_index.sql"),
    },
    Migration {
        version: 7,
        name: "one lease for many",
        sql: include_str!("../sql/migrations/0007_one_lease_for_many.sql"),
    },
    Migration {
        version: 8,
        name: "lines",
        sql: include_str!("../sql/migrations/0008_lines.sql"),
    },
    Migration {
        version: 9,
        name: "slices",
        sql: include_str!("../sql/migrations/0009_slices.sql"),
    },
    Migration {
        version: 10,
        name: "times of their own",
        sql: include_str!("../sql/migrations/0010_times_of_their_own.sql"),
    },
];

/// In the order in which they must be created.
const FUNCTIONS: &[(&str, &str)] = &[
    ("common", include_str!("../sql/functions/01_common.sql")),
    ("queue", include_str!("../sql/functions/02_queue.sql")),
    ("enqueue", include_str!("../sql/functions/03_enqueue.sql")),
    ("claim", include_str!("../sql/functions/04_claim.sql")),
    ("bundle", include_str!("../sql/functions/04_bundle.sql")),
    ("ack", include_str!("../sql/functions/05_ack.sql")),
    ("wake", include_str!("../sql/functions/06_wake.sql")),
    ("sweep", include_str!("../sql/functions/07_sweep.sql")),
    ("manage", include_str!("../sql/functions/08_manage.sql")),
    ("delete", include_str!("../sql/functions/08_delete.sql")),
    ("redrive", include_str!("../sql/functions/08_redrive.sql")),
    ("replay", include_str!("../sql/functions/08_replay.sql")),
    ("worker", include_str!("../sql/functions/09_worker.sql")),
    ("once", include_str!("../sql/functions/10_once.sql")),
    ("history", include_str!("../sql/functions/11_history.sql")),
    ("views", include_str!("../sql/functions/12_views.sql")),
    ("roles", include_str!("../sql/functions/13_roles.sql")),
    ("search", include_str!("../sql/functions/14_search.sql")),
    ("why", include_str!("../sql/functions/15_why.sql")),
    ("archive", include_str!("../sql/functions/16_archive.sql")),
    ("install", include_str!("../sql/functions/99_install.sql")),
];

/// What the schema is called, made of, and where its steps are remembered.
const LEDGER: &str = "
create schema if not exists @;
create table if not exists rowlock.migration (
  version    integer     not null primary key,
  name       text        not null,
  functions  text        not null,
  applied_at timestamptz not null default clock_timestamp()
);";

/// Where a schema stands compared with this build.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigrationStatus {
    /// The version in the database; 0 when the schema is not there.
    pub current: i32,
    /// The version that this build brings.
    pub latest: i32,
    /// Whether the functions in the database are the ones of this build, or of a later release.
    pub functions_current: bool,
    /// The steps that are missing, oldest first.
    pub pending: Vec<String>,
}

impl MigrationStatus {
    /// Whether there is nothing to do.
    pub fn is_current(&self) -> bool {
        self.pending.is_empty() && self.functions_current
    }
}

/// Brings the schema to the version of this build. Returns the status before.
pub(crate) async fn migrate(info: &ConnInfo, schema: &Schema) -> Result<MigrationStatus> {
    let connection = connect(info, &ConnectOptions::default()).await?;
    let before = status_on(&connection, schema).await?;
    refuse_newer(&before, schema)?;
    if !before.is_current() {
        run(&connection, &script(schema), "migrate", schema).await?;
    }
    Ok(before)
}

/// Where the schema stands.
pub(crate) async fn status(info: &ConnInfo, schema: &Schema) -> Result<MigrationStatus> {
    status_on(&connect(info, &ConnectOptions::default()).await?, schema).await
}

/// Refuses to work on a schema that is missing, older or newer than this build.
pub(crate) async fn check(connection: &Connection, schema: &Schema) -> Result<()> {
    let status = status_on(connection, schema).await?;
    refuse_newer(&status, schema)?;
    if status.current < status.latest {
        return Err(Error::NotMigrated {
            schema: schema.to_string(),
        });
    }
    Ok(())
}

fn refuse_newer(status: &MigrationStatus, schema: &Schema) -> Result<()> {
    if status.current > status.latest {
        return Err(Error::SchemaTooNew {
            schema: schema.to_string(),
            found: status.current,
            known: status.latest,
        });
    }
    Ok(())
}

async fn status_on(connection: &Connection, schema: &Schema) -> Result<MigrationStatus> {
    let latest = MIGRATIONS[MIGRATIONS.len() - 1].version;
    let sql = schema
        .sql("select version, functions from rowlock.migration order by version desc limit 1");
    let (current, functions) = match connection.client.query_typed(&sql, &[]).await {
        Ok(rows) => rows
            .first()
            .map_or((0, String::new()), |r| (r.get(0), r.get(1))),
        Err(e) => match e.code().map(|c| c.code()) {
            // No such table, no such schema.
            Some("42P01" | "3F000") => (0, String::new()),
            _ => {
                return Err(Error::database(
                    "read the version of the schema",
                    schema.as_str(),
                    e,
                ));
            }
        },
    };
    let pending = MIGRATIONS
        .iter()
        .filter(|m| m.version > current)
        .map(|m| format!("{:04} {}", m.version, m.name))
        .collect();
    Ok(MigrationStatus {
        current,
        latest,
        functions_current: functions == fingerprint() || is_newer(&functions, &fingerprint()),
        pending,
    })
}

/// The whole migration as one script: what [`migrate`] runs, and what can be handed to a DBA. It looks up itself which steps are
/// there already.
pub(crate) fn script(schema: &Schema) -> String {
    let mut out = String::new();
    let s = schema.as_str();
    // The lock makes ten instances that start together take turns; the second finds nothing left to do.
    let _ = writeln!(
        out,
        "begin;\nset local lock_timeout = '60s';\nset local client_min_messages = warning;"
    );
    let _ = writeln!(
        out,
        "select pg_advisory_xact_lock(hashtextextended('{s} migrate', 0));"
    );
    out.push_str(&schema.sql(&LEDGER.replace('@', s)));
    out.push('\n');
    let latest = MIGRATIONS[MIGRATIONS.len() - 1].version;
    let print = fingerprint();
    for m in MIGRATIONS {
        let body = schema.sql(m.sql);
        // Quoted, so that a step which is there already is not even parsed.
        let _ = writeln!(
            out,
            "do $migration$ begin\n  if not exists (select from {s}.migration where version = {v}) then\n    execute $step$\n{body}\n$step$;\n    \
             insert into {s}.migration (version, name, functions) values ({v}, '{name}', '');\n  end if;\nend $migration$;",
            v = m.version,
            name = m.name,
        );
    }
    for (_, sql) in FUNCTIONS {
        out.push_str(&schema.sql(sql));
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "update {s}.migration set functions = '{print}' where version = {latest};\ncommit;"
    );
    out
}

async fn run(connection: &Connection, script: &str, doing: &str, schema: &Schema) -> Result<()> {
    if let Err(e) = connection.client.batch_execute(script).await {
        // The transaction of the script is still open and failed.
        let _ = connection.client.batch_execute("rollback").await;
        return Err(Error::database(
            format!("{doing} the schema {schema:?}"),
            schema.as_str(),
            e,
        ));
    }
    Ok(())
}

/// The release and the functions it brings, as `0.1.0 89abcdef01234567`: tells one set of functions from another, and which is newer.
/// The hash (FNV-1a) guards against forgetting, not against malice.
fn fingerprint() -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in FUNCTIONS.iter().flat_map(|(_, sql)| sql.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{} {hash:016x}", env!("CARGO_PKG_VERSION"))
}

/// Whether the functions with the fingerprint `there` come from a later release than `ours`.
fn is_newer(there: &str, ours: &str) -> bool {
    let release = |print: &str| -> Option<Vec<u64>> {
        print
            .split(' ')
            .next()?
            .split('.')
            .map(|n| n.parse().ok())
            .collect()
    };
    match (release(there), release(ours)) {
        (Some(there), Some(ours)) => there > ours,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbered_without_gaps() {
        for (n, m) in MIGRATIONS.iter().enumerate() {
            assert_eq!(m.version, n as i32 + 1, "{}", m.name);
        }
    }

    #[test]
    fn a_later_release_is_told_by_its_numbers() {
        assert!(is_newer("0.10.0 ff", "0.9.3 aa"));
        assert!(!is_newer("0.9.3 ff", "0.9.3 aa"));
        assert!(!is_newer("0.9.2 ff", "0.10.0 aa"));
        assert!(!is_newer("", "0.1.0 aa"));
    }

    #[test]
    fn a_script_for_another_schema_never_names_rowlock() {
        let script = script(&Schema::new("elsewhere").unwrap());
        for line in script.lines().filter(|l| !l.trim_start().starts_with("--")) {
            let code = line.split("--").next().unwrap_or_default();
            assert!(!code.contains("rowlock."), "{line}");
            assert!(!code.contains("'@schema'"), "{line}");
        }
    }
}
