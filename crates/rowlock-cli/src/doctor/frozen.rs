//! How far the oldest transaction ids are behind: what vacuum does not freeze in time, the server stops for.

use serde::Deserialize;

use super::exam::Exam;
use super::finding::{Finding, Severity};
use crate::say;

/// Ids that there are ahead of the oldest: at this age the server takes no more writes.
const IDS: u64 = 1 << 31;

/// The oldest database of the server, by transaction and by multixact ids; and the oldest tables here, which is where to begin.
const OLDEST: &str = "
select d.datname::text as database, d.datname = current_database() as here,
       greatest(age(d.datfrozenxid), 0)::bigint as age, greatest(mxid_age(d.datminmxid), 0)::bigint as multixact_age,
       current_setting('autovacuum_freeze_max_age')::bigint as freeze_max_age,
       array(select c.oid::regclass::text from pg_class c
              where c.relkind in ('r', 'm', 't') order by greatest(age(c.relfrozenxid), mxid_age(c.relminmxid)) desc limit 3) as tables
  from pg_database d
 where d.datallowconn
 order by greatest(age(d.datfrozenxid), mxid_age(d.datminmxid)) desc limit 1";

#[derive(Deserialize)]
struct Oldest {
    database: String,
    here: bool,
    age: u64,
    multixact_age: u64,
    freeze_max_age: u64,
    tables: Vec<String>,
}

pub(super) async fn check(exam: &Exam) -> anyhow::Result<Option<Finding>> {
    let oldest: Oldest = exam.look_one(OLDEST).await?;
    let worst = oldest.age.max(oldest.multixact_age);
    Ok((worst >= exam.frozen_after).then(|| finding(&oldest, worst, exam.frozen_after)))
}

fn finding(oldest: &Oldest, worst: u64, limit: u64) -> Finding {
    let severity = if worst >= limit.saturating_mul(3) {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let what = if oldest.age >= oldest.multixact_age {
        "transaction"
    } else {
        "multixact"
    };
    let sentence = format!(
        "the oldest {what} id of database {} is {} old, {} % of the way to where the server stops taking writes",
        oldest.database,
        say::number(worst),
        worst * 100 / IDS
    );
    let advice = if oldest.here {
        format!(
            "first see what holds vacuum back (rowlock doctor --only horizon), then: vacuum (freeze, verbose); the oldest tables are {}",
            oldest.tables.join(", ")
        )
    } else {
        format!(
            "first see what holds vacuum back (rowlock doctor --only horizon), then, in database {}: vacuum (freeze, verbose)",
            oldest.database
        )
    };
    let mut finding = Finding::new("vacuum", "wraparound", severity, sentence)
        .evidence("database", oldest.database.clone())
        .evidence("age", oldest.age)
        .evidence("multixact_age", oldest.multixact_age)
        .evidence("autovacuum_freeze_max_age", oldest.freeze_max_age);
    if oldest.here {
        finding = finding.evidence("oldest_tables", oldest.tables.clone());
    }
    finding.advice(advice)
}
