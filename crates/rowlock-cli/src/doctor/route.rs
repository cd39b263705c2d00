//! The way to the database: a pooler in between, clocks that differ, a server that takes no writes.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::exam::Exam;
use super::finding::{Finding, Severity};
use crate::say;

const SKEW_WARNING: SignedDuration = SignedDuration::from_secs(2);
const SKEW_CRITICAL: SignedDuration = SignedDuration::from_secs(60);

pub(super) async fn check(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let mut findings = vec![pooler(exam).await?, writable(exam).await?];
    // The first call may have to connect; the second measures the way and nothing else.
    exam.client.clock().await?;
    let before = Timestamp::now();
    let server = exam.client.clock().await?;
    findings.push(clock(Clocks {
        before,
        server,
        after: Timestamp::now(),
    }));
    Ok(findings)
}

async fn pooler(exam: &Exam) -> anyhow::Result<Finding> {
    if !exam.client.is_pooled().await? {
        return Ok(Finding::ok(
            "route",
            "the connection goes straight to the server",
        ));
    }
    let finding = Finding::new(
        "route",
        "pooler",
        Severity::Warning,
        "a pooler is in the way (PgBouncer or the like): it swallows LISTEN, so workers that connect this way hear of new jobs only by polling",
    );
    Ok(finding
        .evidence("database", exam.client.conninfo().to_string())
        .advice("give workers a connection past the pooler; for clients that only enqueue it does no harm"))
}

#[derive(Deserialize)]
struct Server {
    recovery: bool,
    read_only: bool,
    version: String,
}

async fn writable(exam: &Exam) -> anyhow::Result<Finding> {
    // The transaction of this very query is read-only, so its own setting tells nothing.
    let sql = "select pg_is_in_recovery() as recovery, current_setting('default_transaction_read_only')::boolean as read_only,
                      current_setting('server_version') as version";
    let server: Server = exam.look_one(sql).await?;
    if !server.recovery && !server.read_only {
        return Ok(Finding::ok(
            "route",
            format!("PostgreSQL {} takes writes", server.version),
        ));
    }
    let finding = Finding::new(
        "route",
        "read_only",
        Severity::Critical,
        "the server takes no writes: nothing can be enqueued, claimed or finished here",
    );
    Ok(finding
        .evidence("standby", server.recovery)
        .evidence("default_transaction_read_only", server.read_only)
        .advice("connect to the primary: name all hosts and target_session_attrs=read-write"))
}

/// What the clocks said: the local one before and after, the server's in between.
#[derive(Clone, Copy)]
struct Clocks {
    before: Timestamp,
    server: Timestamp,
    after: Timestamp,
}

impl Clocks {
    /// How far the server is ahead, and by how much that may be wrong.
    fn skew(&self) -> (SignedDuration, SignedDuration) {
        let way = self.after.duration_since(self.before);
        let middle = self.before.duration_until(self.server) - way / 2;
        (middle, way / 2)
    }
}

fn clock(clocks: Clocks) -> Finding {
    let (skew, error) = clocks.skew();
    // Only what cannot be the way counts.
    let sure = skew.abs() - error;
    let severity = if sure >= SKEW_CRITICAL {
        Severity::Critical
    } else if sure >= SKEW_WARNING {
        Severity::Warning
    } else {
        let sentence = format!(
            "the clocks here and there agree within {}",
            say::span(skew.abs() + error)
        );
        return Finding::ok("route", sentence);
    };
    let side = if skew.is_negative() {
        "behind"
    } else {
        "ahead of"
    };
    let sentence = format!(
        "the server's clock is {} {side} the one of this machine",
        say::span(skew)
    );
    Finding::new("route", "clock_skew", severity, sentence)
        .evidence("skew_ms", i64::try_from(skew.as_millis()).ok())
        .evidence("uncertain_ms", i64::try_from(error.as_millis()).ok())
        .evidence("local", clocks.after.to_string())
        .evidence("server", clocks.server.to_string())
        .advice("set both by NTP; until then, give delays and not times, as times that are worked out here mean something else there")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(1_900_000_000_000 + ms).unwrap()
    }

    fn told(before: i64, server: i64, after: i64) -> Finding {
        clock(Clocks {
            before: at(before),
            server: at(server),
            after: at(after),
        })
    }

    #[test]
    fn a_skew_is_judged_by_its_size() {
        assert_eq!(told(0, 5, 10).severity, Severity::Ok);
        assert_eq!(told(0, 1900, 10).severity, Severity::Ok);
        assert_eq!(told(0, 5000, 10).severity, Severity::Warning);
        assert_eq!(told(0, -5000, 10).severity, Severity::Warning);
        assert_eq!(told(0, 3_600_000, 10).severity, Severity::Critical);
    }

    #[test]
    fn a_slow_way_is_no_skew() {
        assert_eq!(told(0, 4900, 5000).severity, Severity::Ok);
        assert_eq!(told(0, 100, 5000).severity, Severity::Ok);
    }
}
