//! Indexes: missing, invalid, or there although they must not be.

use serde::Deserialize;

use super::exam::Exam;
use super::finding::{Finding, Severity};

/// What each migration makes, and how to make it again.
const WANTED: [(&str, &str); 9] = [
    ("job_pkey", "alter table {s}.job add primary key (id)"),
    (
        "job_claim",
        "create index concurrently job_claim on {s}.job (((hashtextextended(queue, 0) >> 5 << 4) - priority), run_at, id) with (deduplicate_items = off)",
    ),
    (
        "job_unique",
        "create unique index concurrently job_unique on {s}.job (queue, unique_key) where unique_key is not null",
    ),
    (
        "finished_id",
        "create index finished_id on {s}.finished (id)",
    ),
    (
        "finished_at",
        "create index finished_at on {s}.finished using brin (finished_at) with (pages_per_range = 32, autosummarize = on)",
    ),
    ("dead_pkey", "alter table {s}.dead add primary key (id)"),
    (
        "dead_queue",
        "create index concurrently dead_queue on {s}.dead (queue, died_at, id)",
    ),
    (
        "once_done_at",
        "create index concurrently once_done_at on {s}.once (done_at)",
    ),
    (
        "table_failure_alone",
        "create index concurrently table_failure_alone on {s}.table_failure (source, retry_at) where crashes > 0",
    ),
];

/// What is in the definition of the claim index since it goes by lines.
const LINE: &str = "hashtextextended";

/// Each claim rewrites these: an index that mentions one makes every claim write to all indexes.
const REWRITTEN: [&str; 8] = [
    "lease_until",
    "claimed_at",
    "token",
    "lease_by",
    "attempt",
    "failures",
    "crashes",
    "progress",
];

#[derive(Deserialize)]
struct Index {
    name: String,
    table: String,
    valid: bool,
    definition: String,
    columns: Vec<String>,
}

/// `columns` are those of the key, of expressions and of the predicate.
const INDEXES: &str = "
select c.relname as name, t.relname as table, i.indisvalid and i.indisready as valid,
       pg_get_indexdef(i.indexrelid) as definition,
       array(select distinct a.attname::text
               from pg_attribute a
              where a.attrelid = i.indrelid and a.attnum > 0
                and (a.attnum = any (i.indkey::int2[])
                     or exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = i.indexrelid
                                   and d.refclassid = 'pg_class'::regclass and d.refobjid = i.indrelid and d.refobjsubid = a.attnum))) as columns
  from pg_index i join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
 where t.relnamespace = '@schema'::regnamespace
 order by 1 limit 20000";

pub(super) async fn check(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let indexes: Vec<Index> = exam.look(INDEXES).await?;
    let schema = exam.schema();
    let mut findings = Vec::new();
    for (name, make) in WANTED {
        if !indexes.iter().any(|i| i.name == name) {
            let severity = if name.starts_with("job_") {
                Severity::Critical
            } else {
                Severity::Warning
            };
            let finding = Finding::new(
                "indexes",
                "index_missing",
                severity,
                format!("index {schema}.{name} is missing"),
            );
            findings.push(
                finding
                    .evidence("index", format!("{schema}.{name}"))
                    .advice(make.replace("{s}", schema)),
            );
        }
    }
    findings.extend(indexes.iter().filter_map(|i| other(schema, i)));
    for index in indexes.iter().filter(|i| !i.valid) {
        findings.push(invalid(schema, index));
    }
    for index in indexes.iter().filter(|i| i.table == "job") {
        findings.extend(harmful(schema, index));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("indexes", "all are there and valid"));
    }
    Ok(findings)
}

/// A claim index that claims cannot use: what an earlier version had, made by hand since.
fn other(schema: &str, index: &Index) -> Option<Finding> {
    if index.name != "job_claim" || index.definition.contains(LINE) {
        return None;
    }
    let (_, make) = WANTED.iter().find(|(name, _)| *name == index.name)?;
    let sentence = format!(
        "index {schema}.{} is not the one that this version claims by: every claim reads the whole table",
        index.name
    );
    let finding = Finding::new("indexes", "index_other", Severity::Critical, sentence)
        .evidence("index", format!("{schema}.{}", index.name))
        .evidence("definition", index.definition.clone())
        .advice(format!(
            "drop index concurrently {schema}.{}, and then: {}",
            index.name,
            make.replace("{s}", schema)
        ));
    Some(finding)
}

fn invalid(schema: &str, index: &Index) -> Finding {
    let ours = WANTED.iter().find(|(name, _)| *name == index.name);
    let severity = if index.name == "job_claim" {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let sentence = format!(
        "index {schema}.{} on table {} is invalid: it costs writes and serves no query",
        index.name, index.table
    );
    let advice = match ours {
        Some(_) => format!("reindex index concurrently {schema}.{}", index.name),
        None => format!(
            "drop index concurrently {schema}.{}, left by a CREATE INDEX CONCURRENTLY that failed",
            index.name
        ),
    };
    Finding::new("indexes", "index_invalid", severity, sentence)
        .evidence("index", format!("{schema}.{}", index.name))
        .evidence("table", index.table.clone())
        .advice(advice)
}

fn harmful(schema: &str, index: &Index) -> Option<Finding> {
    let columns: Vec<&str> = REWRITTEN
        .into_iter()
        .filter(|r| index.columns.iter().any(|c| c == r))
        .collect();
    if columns.is_empty() {
        return None;
    }
    let sentence = format!(
        "index {schema}.{} mentions {}, which every claim rewrites: no claim is a cheap (HOT) update any more",
        index.name,
        columns.join(", ")
    );
    let finding = Finding::new("indexes", "index_harmful", Severity::Warning, sentence)
        .evidence("index", format!("{schema}.{}", index.name))
        .evidence("columns", columns)
        .advice(format!("drop index concurrently {schema}.{}", index.name));
    Some(finding)
}
