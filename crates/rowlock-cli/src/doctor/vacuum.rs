//! Autovacuum: whether it runs, whether the tables still have the settings that they were made with, and whether it keeps up with freezing.

use serde::Deserialize;

use super::exam::Exam;
use super::finding::{Finding, Severity};
use super::frozen;

/// The settings of `rowlock.job`, as its migration makes them.
const JOB: &[(&str, &str)] = &[
    ("fillfactor", "45"),
    ("autovacuum_vacuum_scale_factor", "0"),
    ("autovacuum_vacuum_threshold", "20000"),
    ("autovacuum_vacuum_insert_scale_factor", "0"),
    ("autovacuum_vacuum_insert_threshold", "500000"),
    ("autovacuum_analyze_scale_factor", "0"),
    ("autovacuum_analyze_threshold", "100000"),
    ("autovacuum_vacuum_cost_delay", "0"),
];
const WORKER: &[(&str, &str)] = &[
    ("fillfactor", "50"),
    ("autovacuum_vacuum_scale_factor", "0"),
    ("autovacuum_vacuum_threshold", "500"),
];
const TABLE_BATCH: &[(&str, &str)] = &[
    ("autovacuum_vacuum_scale_factor", "0"),
    ("autovacuum_vacuum_threshold", "1000"),
];

#[derive(Deserialize)]
struct Server {
    autovacuum: bool,
    track_counts: bool,
}

#[derive(Deserialize)]
struct Table {
    name: String,
    options: Vec<String>,
}

pub(super) async fn check(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let server: Server = exam
        .look_one("select current_setting('autovacuum')::boolean as autovacuum, current_setting('track_counts')::boolean as track_counts")
        .await?;
    let mut findings = Vec::new();
    if !server.autovacuum || !server.track_counts {
        let finding = Finding::new(
            "vacuum",
            "autovacuum_off",
            Severity::Critical,
            "autovacuum is off for the whole server: dead row versions pile up, and each claim gets slower",
        );
        findings.push(
            finding
                .evidence("autovacuum", server.autovacuum)
                .evidence("track_counts", server.track_counts)
                .advice("alter system set autovacuum = on; alter system set track_counts = on; select pg_reload_conf()"),
        );
    }
    let tables: Vec<Table> = exam
        .look(
            "select c.relname as name, coalesce(c.reloptions, '{}') as options
               from pg_class c where c.relnamespace = '@schema'::regnamespace and c.relkind = 'r' order by 1 limit 5000",
        )
        .await?;
    for table in &tables {
        if table.is_off() {
            findings.push(off(exam, table));
        }
    }
    let settings = [
        ("job", JOB),
        ("worker", WORKER),
        ("table_batch", TABLE_BATCH),
    ];
    for (name, wanted) in settings {
        if let Some(table) = tables.iter().find(|t| t.name == name) {
            findings.extend(lost(exam, table, wanted));
        }
    }
    findings.extend(frozen::check(exam).await?);
    if findings.is_empty() {
        findings.push(Finding::ok(
            "vacuum",
            "autovacuum is on, and the tables have their settings",
        ));
    }
    Ok(findings)
}

impl Table {
    fn option(&self, name: &str) -> Option<&str> {
        let options = self.options.iter().filter_map(|o| o.split_once('='));
        options
            .into_iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| value)
    }

    fn is_off(&self) -> bool {
        // As written by whoever set it: false, off, no, 0, f …
        let value = self
            .option("autovacuum_enabled")
            .map(str::to_ascii_lowercase);
        value.is_some_and(|v| {
            v == "0"
                || v == "of"
                || v == "off"
                || !v.is_empty() && ("false".starts_with(&v) || "no".starts_with(&v))
        })
    }
}

fn off(exam: &Exam, table: &Table) -> Finding {
    let (schema, name) = (exam.schema(), &table.name);
    let severity = if name == "job" {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let sentence = format!("autovacuum is off for table {schema}.{name}");
    Finding::new("vacuum", "autovacuum_off_table", severity, sentence)
        .evidence("table", format!("{schema}.{name}"))
        .evidence("options", table.options.clone())
        .advice(format!(
            "alter table {schema}.{name} reset (autovacuum_enabled)"
        ))
}

/// Settings that are gone altogether. Other values were chosen by somebody, and are his business.
fn lost(exam: &Exam, table: &Table, wanted: &[(&str, &str)]) -> Option<Finding> {
    let lost: Vec<String> = wanted
        .iter()
        .filter(|(name, _)| table.option(name).is_none())
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    if lost.is_empty() {
        return None;
    }
    let (schema, name) = (exam.schema(), &table.name);
    let sentence = format!("table {schema}.{name} has lost settings that it was made with");
    let finding = Finding::new("vacuum", "settings_lost", Severity::Warning, sentence)
        .evidence("table", format!("{schema}.{name}"))
        .evidence("lost", lost.clone())
        .advice(format!(
            "alter table {schema}.{name} set ({})",
            lost.join(", ")
        ));
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_say_off_is_understood() {
        let table = |option: &str| Table {
            name: "job".into(),
            options: vec!["fillfactor=45".into(), option.to_owned()],
        };
        for off in ["false", "off", "FALSE", "no", "0", "f"] {
            assert!(
                table(&format!("autovacuum_enabled={off}")).is_off(),
                "{off}"
            );
        }
        for on in ["true", "on", "1", "yes"] {
            assert!(!table(&format!("autovacuum_enabled={on}")).is_off(), "{on}");
        }
    }
}
