//! `rowlock doctor`: what hurts, with evidence, and what to do about it.
//!
//! Promises: only reads; each query has a limit on its time; a check that fails does not stop the others, and says that it could not look.

mod backlog;
mod bloat;
mod exam;
mod finding;
mod frozen;
mod history;
mod horizon;
mod indexes;
mod kinds;
mod leases;
mod route;
mod schema;
mod vacuum;
mod workers;

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use futures_util::future::BoxFuture;
use serde::Serialize;

use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::times;
use exam::Exam;
use finding::{Finding, Severity};

/// Examine the database and the queues: what hurts, the evidence, and what to do about it.
///
/// Only looks, and changes nothing. Checks: schema (version), route (pooler, clock, standby), horizon (who holds vacuum back), vacuum
/// (autovacuum, its settings, wraparound), bloat (table and claim index), indexes (missing, invalid, harmful), history (partitions),
/// leases (expired and not taken over), workers (lost), backlog (unserved, paused or growing queues, unknown kinds).
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock doctor\n  \
    rowlock doctor --only horizon,bloat\n  \
    rowlock doctor --skip route --json | jq '.findings[] | select(.severity != \"ok\")'\n\n\
    Exits with 0 when all is well, 10 for warnings (also when a check could not look), 20 when something hurts now.\n\
    To see the sessions of others it needs a superuser or a member of pg_monitor.")]
pub(crate) struct Doctor {
    /// Only these checks, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "CHECK", value_parser = names())]
    only: Vec<String>,

    /// Not these checks.
    #[arg(long, value_delimiter = ',', value_name = "CHECK", value_parser = names())]
    skip: Vec<String>,

    /// How long one query may take.
    #[arg(long, default_value = "5s", value_parser = times::span, value_name = "TIME")]
    timeout: Duration,

    /// How long a transaction may be open before it is named; twelve times that is critical.
    #[arg(long, default_value = "5m", value_parser = times::span, value_name = "TIME")]
    pinned_after: Duration,

    /// How old the oldest transaction id may be, in transactions, before that is named; three times that is critical.
    #[arg(long, default_value_t = 500_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    frozen_after: u64,
}

type Check = for<'a> fn(&'a Exam) -> BoxFuture<'a, anyhow::Result<Vec<Finding>>>;

/// All checks, in the order in which one would look.
const CHECKS: [(&str, Check); 10] = [
    ("schema", |e| Box::pin(schema::check(e))),
    ("route", |e| Box::pin(route::check(e))),
    ("horizon", |e| Box::pin(horizon::check(e))),
    ("vacuum", |e| Box::pin(vacuum::check(e))),
    ("bloat", |e| Box::pin(bloat::check(e))),
    ("indexes", |e| Box::pin(indexes::check(e))),
    ("history", |e| Box::pin(history::check(e))),
    ("leases", |e| Box::pin(leases::check(e))),
    ("workers", |e| Box::pin(workers::check(e))),
    ("backlog", |e| Box::pin(backlog::check(e))),
];

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(CHECKS.map(|(name, _)| name))
}

/// What `rowlock doctor` answers with `--json`.
#[derive(Serialize)]
struct Report {
    /// The worst of all.
    severity: Severity,
    findings: Vec<Finding>,
}

impl Doctor {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        // Also finds out whether there is a database at all: without one, no check has anything to say.
        let status = client.migration_status().await?;
        let installed = status.current > 0;
        let exam = Exam::new(client, status, &self);
        let mut findings = Vec::new();
        for (name, check) in CHECKS {
            let wanted = self.only.is_empty() || self.only.iter().any(|n| n == name);
            // Without the schema there is only one thing to say.
            if !wanted || self.skip.iter().any(|n| n == name) || !installed && name != "schema" {
                continue;
            }
            match check(&exam).await {
                Ok(found) => findings.extend(found),
                Err(e) => findings.push(Finding::could_not_look(name, &e)),
            }
        }
        findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
        let severity = findings.iter().map(|f| f.severity).max();
        let report = Report {
            severity: severity.unwrap_or(Severity::Ok),
            findings,
        };
        match global.format() {
            Format::Json => output::json(&report)?,
            Format::Table => output::text(&finding::text(&report.findings)),
        }
        Ok(report.severity.exit())
    }
}
