//! Bloat: dead row versions, a table and a claim index that are large for what is in them.
//!
//! Judged by the statistics and sizes that every role may see; no extension is needed, and no table is read.

use jiff::Timestamp;
use serde::Deserialize;

use super::exam::Exam;
use super::finding::{Finding, Severity};
use crate::say;

/// Autovacuum begins at 20,000 dead rows; five times that means that it does not get through.
const DEAD_WARNING: u64 = 100_000;
const DEAD_CRITICAL: u64 = 1_000_000;
/// Below these sizes nothing is slow, whatever is in there.
const INDEX_SMALL: u64 = 8 << 20;
const TABLE_SMALL: u64 = 64 << 20;
/// An entry of the claim index takes 40 to 80 bytes.
const INDEX_BYTES_PER_JOB: u64 = 100;
const INDEX_TIMES: u64 = 8;
/// Jobs are rarely so large on average; a table that spends more on each is mostly empty.
const TABLE_BYTES_PER_JOB: u64 = 20_000;

#[derive(Deserialize)]
struct Sizes {
    live: u64,
    dead: u64,
    table_bytes: u64,
    index_bytes: u64,
    buffers_bytes: u64,
    vacuumed_at: Option<Timestamp>,
}

const SIZES: &str = "
select greatest(s.n_live_tup, 0) as live, greatest(s.n_dead_tup, 0) as dead, pg_relation_size(s.relid) as table_bytes,
       coalesce(pg_relation_size(to_regclass('rowlock.job_claim')), 0) as index_bytes,
       (select p.setting::bigint * 8192 from pg_settings p where p.name = 'shared_buffers') as buffers_bytes,
       greatest(s.last_vacuum, s.last_autovacuum) as vacuumed_at
  from pg_stat_user_tables s where s.relid = 'rowlock.job'::regclass";

pub(super) async fn check(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let sizes: Sizes = exam.look_one(SIZES).await?;
    let mut findings: Vec<Finding> = [
        dead_rows(exam, &sizes),
        table(exam, &sizes),
        index(exam, &sizes),
        memory(&sizes),
    ]
    .into_iter()
    .flatten()
    .collect();
    if findings.is_empty() {
        let sentence = format!(
            "the job table has {} and {}; it takes {}, its claim index {}",
            say::count(sizes.live, "live row"),
            say::count(sizes.dead, "dead one"),
            say::bytes(sizes.table_bytes),
            say::bytes(sizes.index_bytes)
        );
        findings.push(
            Finding::ok("bloat", sentence)
                .evidence("live_rows", sizes.live)
                .evidence("dead_rows", sizes.dead)
                .evidence("table_bytes", sizes.table_bytes)
                .evidence("index_bytes", sizes.index_bytes),
        );
    }
    Ok(findings)
}

fn dead_rows(exam: &Exam, s: &Sizes) -> Option<Finding> {
    let severity = match s.dead {
        DEAD_CRITICAL.. => Severity::Critical,
        DEAD_WARNING.. => Severity::Warning,
        _ => return None,
    };
    let vacuumed = s
        .vacuumed_at
        .map_or("never".to_owned(), |at| say::when(at, Timestamp::now()));
    let sentence = format!(
        "the job table has {} beside {}; it was last vacuumed {vacuumed}",
        say::count(s.dead, "dead row version"),
        say::count(s.live, "live row")
    );
    let finding = Finding::new("bloat", "dead_rows", severity, sentence)
        .evidence("dead_rows", s.dead)
        .evidence("live_rows", s.live)
        .evidence("vacuumed_at", s.vacuumed_at.map(|t| t.to_string()))
        .advice(format!(
            "see what `horizon` and `vacuum` say: something keeps autovacuum from cleaning. When that is gone: vacuum {}.job",
            exam.schema()
        ));
    Some(finding)
}

fn table(exam: &Exam, s: &Sizes) -> Option<Finding> {
    // It grows to the largest backlog and stays there; while memory would hold it twice, nobody need care.
    if s.table_bytes < TABLE_SMALL.max(s.buffers_bytes / 2)
        || s.table_bytes / s.live.max(1) < TABLE_BYTES_PER_JOB
    {
        return None;
    }
    let sentence = format!(
        "the job table takes {} for {}: most of it is empty or dead",
        say::bytes(s.table_bytes),
        say::count(s.live, "live row")
    );
    let schema = exam.schema();
    let finding = Finding::new("bloat", "table_bloat", Severity::Warning, sentence)
        .evidence("table_bytes", s.table_bytes)
        .evidence("live_rows", s.live)
        .advice(format!(
            "that costs only space, and a backlog as large as the last one would fill it again; to give back what is free at its end (the \
             queue stands still for a moment): vacuum (truncate on) {schema}.job"
        ));
    Some(finding)
}

fn index(exam: &Exam, s: &Sizes) -> Option<Finding> {
    let wanted = s.live * INDEX_BYTES_PER_JOB;
    if s.index_bytes < INDEX_SMALL || s.index_bytes < wanted * INDEX_TIMES {
        return None;
    }
    let sentence = format!(
        "the claim index takes {} for {}; {} would do",
        say::bytes(s.index_bytes),
        say::count(s.live, "live row"),
        say::bytes(wanted.max(16 << 10))
    );
    let finding = Finding::new("bloat", "index_bloat", Severity::Warning, sentence)
        .evidence("index", format!("{}.job_claim", exam.schema()))
        .evidence("index_bytes", s.index_bytes)
        .evidence("live_rows", s.live)
        .advice(format!(
            "reindex index concurrently {}.job_claim",
            exam.schema()
        ));
    Some(finding)
}

/// A claim index that does not fit in memory makes each claim wait for the disk.
fn memory(s: &Sizes) -> Option<Finding> {
    if s.index_bytes < s.buffers_bytes / 2 {
        return None;
    }
    let sentence = format!(
        "the claim index takes {}, more than half of shared_buffers ({})",
        say::bytes(s.index_bytes),
        say::bytes(s.buffers_bytes)
    );
    let finding = Finding::new("bloat", "index_large", Severity::Warning, sentence)
        .evidence("index_bytes", s.index_bytes)
        .evidence("shared_buffers_bytes", s.buffers_bytes)
        .evidence("live_rows", s.live)
        .advice("work the backlog off, or give the server more shared_buffers");
    Some(finding)
}
