//! Days of history: missing ahead, left over from long ago, or bypassed.

use serde::Deserialize;

use super::exam::Exam;
use super::finding::{Finding, Severity};
use crate::say;

/// Maintenance makes a week ahead; when less than this is left, it has not run for days.
const DAYS_AHEAD: i32 = 3;
/// Rows of the default partition that are counted.
const COUNT_MAX: u64 = 10_000;

#[derive(Deserialize)]
struct Days {
    /// Today and the days to come that have no partition.
    missing: Vec<String>,
    /// Partitions past the longest retention, with two days for maintenance to come round.
    old: Vec<String>,
    retention: String,
    in_default: u64,
}

#[derive(Deserialize)]
struct May {
    read: bool,
}

pub(super) async fn check(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let may: May = exam
        .look_one("select has_table_privilege('rowlock.finished_default', 'select') as read")
        .await?;
    // A role that may not read it can still see the statistics, which are nearly as good.
    let in_default = if may.read {
        format!("select count(*) from (select from rowlock.finished_default limit {COUNT_MAX}) f")
    } else {
        "select coalesce(max(t.n_live_tup), 0) from pg_stat_user_tables t where t.relid = 'rowlock.finished_default'::regclass".to_owned()
    };
    let sql = format!(
        "with day as (
           select to_date(substr(c.relname, 10), 'YYYYMMDD') as day, c.relname::text as name
             from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'rowlock.finished'::regclass and c.relname ~ '^finished_[0-9]{{8}}$'
         ), kept as (
           select coalesce(max(q.retention), interval '7 days') as longest from rowlock.queue q
         ), now as (
           select (rowlock.clock() at time zone 'UTC')::date as today
         )
         select array(select (n.today + d)::text from now n, generate_series(0, {DAYS_AHEAD}) d
                       where n.today + d not in (select day from day) order by d) as missing,
                array(select d.name from day d, kept k, now n where d.day + 1 < n.today - k.longest - interval '2 days' order by 1) as old,
                (select k.longest::text from kept k) as retention,
                ({in_default}) as in_default"
    );
    let days: Days = exam.look_one(&sql).await?;
    let schema = exam.schema();
    let maintain =
        format!("keep a worker running, which sees to it, or: select * from {schema}.maintain()");
    let mut findings = Vec::new();
    if let Some(first) = days.missing.first() {
        let sentence = format!(
            "{} of history from {first} on has no partition: maintenance does not run",
            say::count(days.missing.len() as u64, "day")
        );
        let finding = Finding::new("history", "partitions_missing", Severity::Warning, sentence);
        findings.push(
            finding
                .evidence("days", days.missing.clone())
                .advice(maintain.clone()),
        );
    }
    if !days.old.is_empty() {
        let sentence = format!(
            "{} of history past the longest retention ({}) {} still there",
            say::count(days.old.len() as u64, "day"),
            days.retention,
            if days.old.len() == 1 { "is" } else { "are" }
        );
        let finding = Finding::new("history", "partitions_old", Severity::Warning, sentence);
        findings.push(
            finding
                .evidence("partitions", days.old.clone())
                .evidence("retention", days.retention.clone())
                .advice(format!(
                    "{maintain}; it says what keeps it from dropping them"
                )),
        );
    }
    if days.in_default > 0 {
        let rows = say::count(days.in_default, "row");
        let more = if days.in_default >= COUNT_MAX {
            "at least "
        } else {
            ""
        };
        let finding = Finding::new(
            "history",
            "rows_in_default",
            Severity::Warning,
            format!(
                "{more}{rows} of history lie in {schema}.finished_default, where no day's partition took them"
            ),
        );
        findings.push(finding.evidence("rows", days.in_default).advice(format!(
            "{maintain}; if there are too many to move: select * from {schema}.make_partitions(move_limit => 1000000), in a quiet minute"
        )));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            "history",
            "partitions are there for the days to come, and none is left over",
        ));
    }
    Ok(findings)
}
