//! `sql/schema.sql`: what the migrations add up to, reviewed as a diff.
//!
//! `ROWLOCK_UPDATE_SCHEMA=1 cargo test -p rowlock --test it sql::dump` writes it anew.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::kit::{installed, one};

const UPDATE: &str = "ROWLOCK_UPDATE_SCHEMA";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sql/schema.sql")
}

/// The first line says which pg_dump wrote the file: others write the same schema in other words.
fn header(major: &str) -> String {
    format!(
        "-- The schema after all migrations, as pg_dump of PostgreSQL {major} writes it, without the partitions of days and the\n\
         -- bodies of functions. Nobody runs it: it shows in a diff what a migration does to tables and signatures.\n\
         -- Written by {UPDATE}=1 cargo test -p rowlock --test it sql::dump\n"
    )
}

/// Takes out what differs from run to run or says nothing, and the bodies of functions, which are in files of their own.
fn normalised(dump: &str) -> String {
    let mut out = String::new();
    let mut lines = dump.lines();
    while let Some(line) = lines.next() {
        if let Some(quote) = body(line) {
            // A body of one line ends where it began.
            if !line[line.find(quote).unwrap_or(0) + quote.len()..].contains(quote) {
                lines.find(|line| line.contains(quote));
            }
            out.push_str("    AS …;\n");
            continue;
        }
        let noise = line.starts_with("--")
            || line.starts_with("\\restrict")
            || line.starts_with("\\unrestrict")
            || line.starts_with("SET ")
            || line.starts_with("SELECT pg_catalog.set_config(");
        if noise || (line.is_empty() && (out.is_empty() || out.ends_with("\n\n"))) {
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out.trim_end().to_owned() + "\n"
}

/// The quote with which a function's body begins in this line.
fn body(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("    AS ")?;
    let end = rest.strip_prefix('$')?.find('$')? + 2;
    Some(&rest[..end])
}

#[tokio::test]
async fn the_dumped_schema_is_what_the_migrations_make() {
    let own = installed().await;
    let major = one(
        &own.pg,
        "select current_setting('server_version_num')::int / 10000",
    )
    .await;
    let bin = one(
        &own.pg,
        "select setting from pg_config where name = 'BINDIR'",
    )
    .await;
    let program = Path::new(&bin).join("pg_dump");
    if !program.exists() {
        eprintln!(
            "skipped: there is no pg_dump beside the server, at {}",
            program.display()
        );
        return;
    }
    let updating = std::env::var_os(UPDATE).is_some_and(|v| v == "1");
    let written = std::fs::read_to_string(file()).unwrap_or_default();
    if !updating && !written.starts_with(&header(&major)) {
        let first = written.lines().next().unwrap_or("(nothing)");
        assert!(
            first.contains("as pg_dump of PostgreSQL "),
            "sql/schema.sql is not there or not ours; write it with {UPDATE}=1: {first}"
        );
        eprintln!("skipped: this is pg_dump {major}, and the file says: {first}");
        return;
    }

    let url = own.db.url().to_owned();
    let dump = tokio::task::spawn_blocking(move || {
        Command::new(program)
            .args([
                "--schema-only",
                "--no-owner",
                "--no-privileges",
                "--schema=rowlock",
                "--exclude-table=rowlock.finished_2*",
                "--dbname",
            ])
            .arg(url)
            .output()
    })
    .await
    .expect("no panic")
    .expect("pg_dump can be started");
    assert!(
        dump.status.success(),
        "pg_dump: {}",
        String::from_utf8_lossy(&dump.stderr)
    );
    let now = header(&major) + "\n" + &normalised(&String::from_utf8(dump.stdout).expect("UTF-8"));
    if updating {
        std::fs::write(file(), now).expect("sql/schema.sql can be written");
        return;
    }
    if let Some((n, (now, then))) = now
        .lines()
        .zip(written.lines())
        .enumerate()
        .find(|(_, (now, then))| now != then)
    {
        panic!(
            "sql/schema.sql is out of date at line {}:\n  file: {then}\n  now:  {now}\nwrite it with {UPDATE}=1",
            n + 1
        );
    }
    assert_eq!(
        now.lines().count(),
        written.lines().count(),
        "sql/schema.sql is out of date at its end; write it with {UPDATE}=1"
    );
}
