//! Who holds vacuum back: open transactions, prepared ones, replication slots, standbys.
//!
//! As long as one of them is there, no row version that was deleted after it began can be removed, and every claim has to walk past the remains.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use super::exam::Exam;
use super::finding::{Finding, Severity};
use crate::say;

/// An inactive slot that keeps this much of the log is critical.
const SLOT_WAL_CRITICAL: i64 = 10 << 30;
/// A slot or standby that holds back so many transactions is named.
const XIDS_WARNING: i64 = 1_000_000;

pub(super) async fn check(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let mut findings = sessions(exam).await?;
    findings.extend(prepared(exam).await?);
    findings.extend(slots(exam).await?);
    findings.extend(standbys(exam).await?);
    if findings.is_empty() {
        findings.push(Finding::ok("horizon", "nothing holds vacuum back"));
    }
    Ok(findings)
}

#[derive(Deserialize)]
struct Session {
    pid: i64,
    user: Option<String>,
    application: Option<String>,
    client: Option<String>,
    state: Option<String>,
    since: Option<Timestamp>,
    age_ms: Option<i64>,
    xids: Option<i64>,
    query: Option<String>,
    hidden: bool,
}

/// Only what is open in this database: sessions in others do not hold back its tables. Autovacuum does not count itself.
const SESSIONS: &str = "
select a.pid, a.usename as user, nullif(a.application_name, '') as application, a.client_addr::text as client, a.state,
       a.xact_start as since, (extract(epoch from clock_timestamp() - a.xact_start) * 1000)::bigint as age_ms,
       greatest(age(a.backend_xmin), age(a.backend_xid)) as xids, left(regexp_replace(a.query, '\\s+', ' ', 'g'), 300) as query,
       a.query = '<insufficient privilege>' as hidden
  from pg_stat_activity a
 where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type is distinct from 'autovacuum worker'
   and (a.backend_xmin is not null or a.backend_xid is not null or a.query = '<insufficient privilege>')
 order by a.xact_start nulls last
 limit 100";

async fn sessions(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let sessions: Vec<Session> = exam.look(SESSIONS).await?;
    let hidden = sessions.iter().filter(|s| s.hidden).count();
    let mut findings: Vec<Finding> = sessions
        .iter()
        .filter(|s| !s.hidden)
        .filter_map(|s| Some((s, too_old(s.age_ms?, exam.pinned_after)?)))
        .take(10)
        .map(|(s, severity)| session(s, severity))
        .collect();
    if hidden > 0 {
        let sentence = format!(
            "could not look into {} of others",
            say::count(hidden as u64, "session")
        );
        let finding = Finding::new("horizon", "could_not_look", Severity::Unknown, sentence);
        findings.push(
            finding
                .evidence("sessions", hidden)
                .advice("run it as a member of pg_monitor: `grant pg_monitor to …`"),
        );
    }
    Ok(findings)
}

fn too_old(age_ms: i64, limit: Duration) -> Option<Severity> {
    let age = Duration::from_millis(u64::try_from(age_ms).unwrap_or(0));
    if age < limit {
        None
    } else if age >= limit.saturating_mul(12) && !limit.is_zero() {
        Some(Severity::Critical)
    } else {
        Some(Severity::Warning)
    }
}

fn session(s: &Session, severity: Severity) -> Finding {
    let age = say::ms(s.age_ms.unwrap_or(0));
    let who = [
        s.user.as_deref(),
        s.application.as_deref(),
        s.state.as_deref(),
    ];
    let who: Vec<&str> = who.into_iter().flatten().collect();
    let sentence = format!(
        "process {} ({}) has had a transaction open for {age} and holds vacuum back",
        s.pid,
        who.join(", ")
    );
    Finding::new("horizon", "open_transaction", severity, sentence)
        .evidence("pid", s.pid)
        .evidence("user", s.user.clone())
        .evidence("application", s.application.clone())
        .evidence("client", s.client.clone())
        .evidence("state", s.state.clone())
        .evidence("since", s.since.map(|t| t.to_string()))
        .evidence("age_ms", s.age_ms)
        .evidence("transactions_held_back", s.xids)
        .evidence("query", s.query.clone())
        .advice(format!(
            "find out who that is; to end it: select pg_terminate_backend({}); to prevent it: idle_in_transaction_session_timeout, and no \
             long reports on the server of the queue",
            s.pid
        ))
}

#[derive(Deserialize)]
struct Prepared {
    gid: String,
    owner: String,
    prepared: Timestamp,
    age_ms: i64,
    xids: i64,
}

async fn prepared(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let sql = "select p.gid, p.owner, p.prepared, (extract(epoch from clock_timestamp() - p.prepared) * 1000)::bigint as age_ms,
                      age(p.transaction) as xids
                 from pg_prepared_xacts p where p.database = current_database() order by p.prepared limit 10";
    let prepared: Vec<Prepared> = exam.look(sql).await?;
    let old = prepared
        .iter()
        .filter_map(|p| Some((p, too_old(p.age_ms, exam.pinned_after)?)));
    Ok(old
        .map(|(p, severity)| {
            let age = say::ms(p.age_ms);
            let sentence = format!("prepared transaction {:?} of {} has waited {age} for its end and holds vacuum back", p.gid, p.owner);
            Finding::new("horizon", "prepared_transaction", severity, sentence)
                .evidence("gid", p.gid.clone())
                .evidence("owner", p.owner.clone())
                .evidence("since", p.prepared.to_string())
                .evidence("age_ms", p.age_ms)
                .evidence("transactions_held_back", p.xids)
                .advice(format!(
                    "ask its transaction manager; if nobody knows it: rollback prepared '{}'",
                    p.gid.replace('\'', "''")
                ))
        })
        .collect())
}

#[derive(Deserialize)]
struct Slot {
    name: String,
    kind: String,
    active: bool,
    xids: Option<i64>,
    wal_bytes: Option<i64>,
}

/// A logical slot's own horizon covers the catalogs only, but it keeps the log; `xmin` covers all tables.
const SLOTS: &str = "
select s.slot_name as name, s.slot_type as kind, s.active, greatest(age(s.xmin), 0) as xids,
       case when pg_is_in_recovery() then null else pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint end as wal_bytes
  from pg_replication_slots s
 where (s.database is null or s.database = current_database()) and (not s.active or s.xmin is not null)
 order by 1 limit 100";

async fn slots(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let slots: Vec<Slot> = exam.look(SLOTS).await?;
    let bad = slots
        .iter()
        .filter(|s| !s.active || s.xids.is_some_and(|x| x > XIDS_WARNING));
    Ok(bad
        .map(|s| {
            let wal = s.wal_bytes.unwrap_or(0).max(0);
            let severity = if wal >= SLOT_WAL_CRITICAL { Severity::Critical } else { Severity::Warning };
            let what = if s.active { "is far behind" } else { "is not in use" };
            let sentence = format!(
                "{} replication slot {} {what}, holds back old row versions and keeps {} of log",
                s.kind,
                s.name,
                say::bytes(wal as u64)
            );
            Finding::new("horizon", "replication_slot", severity, sentence)
                .evidence("slot", s.name.clone())
                .evidence("kind", s.kind.clone())
                .evidence("active", s.active)
                .evidence("transactions_held_back", s.xids)
                .evidence("wal_bytes", s.wal_bytes)
                .advice(format!(
                    "start its consumer again; if there is none any more: select pg_drop_replication_slot('{}')",
                    s.name.replace('\'', "''")
                ))
        })
        .collect())
}

#[derive(Deserialize)]
struct Standby {
    name: String,
    address: Option<String>,
    xids: i64,
}

async fn standbys(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let sql = "select r.application_name as name, r.client_addr::text as address, age(r.backend_xmin) as xids
                 from pg_stat_replication r where r.backend_xmin is not null order by 3 desc limit 10";
    let standbys: Vec<Standby> = exam.look(sql).await?;
    let behind = standbys.iter().filter(|s| s.xids > XIDS_WARNING);
    Ok(behind
        .map(|s| {
            let sentence = format!("standby {} holds back vacuum here, by hot_standby_feedback", s.name);
            Finding::new("horizon", "standby", Severity::Warning, sentence)
                .evidence("name", s.name.clone())
                .evidence("address", s.address.clone())
                .evidence("transactions_held_back", s.xids)
                .advice("look for a long query on the standby, and end it; or turn hot_standby_feedback off there")
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_a_transaction_is_judged() {
        let limit = Duration::from_secs(300);
        assert_eq!(too_old(299_999, limit), None);
        assert_eq!(too_old(300_000, limit), Some(Severity::Warning));
        assert_eq!(too_old(3_600_000, limit), Some(Severity::Critical));
        assert_eq!(too_old(1, Duration::ZERO), Some(Severity::Warning));
    }
}
