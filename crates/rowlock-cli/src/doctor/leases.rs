//! Stuck leases: they expired, workers live, and yet nobody takes the jobs over.

use rowlock::JobId;
use serde::Deserialize;

use super::exam::Exam;
use super::finding::{Finding, Severity};
use crate::say;

/// Workers look for expired leases about once a second; after this long something is in the way.
const STUCK_MS: i64 = 60_000;
const STUCK_CRITICAL_MS: i64 = 600_000;

#[derive(Deserialize)]
struct Stuck {
    queue: String,
    jobs: u64,
    oldest_ms: i64,
    ids: Vec<i64>,
    workers: u64,
}

/// Claimed jobs are at the front of their queue, so the first of each priority are enough, and the claim index finds them.
const STUCK: &str = "
with stuck as (
  select q.name as queue, j.id, (extract(epoch from c.now - j.lease_until) * 1000)::bigint as ms
    from rowlock.queue q
   cross join (select rowlock.clock() as now offset 0) c
   cross join unnest('{4,3,2,1,0,-1,-2,-3,-4}'::smallint[]) as p (priority)
   cross join lateral (select j.id, j.lease_until from rowlock.job j
                        where rowlock.line(j.queue, j.priority) = rowlock.line(q.name, p.priority) and j.queue = q.name and j.priority = p.priority and j.run_at <= c.now
                        order by j.run_at, j.id limit 1000) j
   where not q.paused and j.lease_until > '-infinity' and j.lease_until <= c.now
)
select s.queue, count(*) as jobs, max(s.ms) as oldest_ms, (array_agg(s.id order by s.ms desc))[:10] as ids,
       (select count(*) from rowlock.workers w
         where w.alive and w.state = 'running'
           and exists (select from unnest(w.queues) n
                        where n = s.queue or position('*' in n) > 0 and s.queue like replace(replace(replace(replace(n, '\\', '\\\\'), '%', '\\%'), '_', '\\_'), '*', '%'))) as workers
  from stuck s group by s.queue order by 3 desc limit 20";

pub(super) async fn check(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let queues: Vec<Stuck> = exam.look(STUCK).await?;
    let mut findings = Vec::new();
    // Without a worker it is the worker that is missing; `backlog` says so.
    for s in queues
        .iter()
        .filter(|s| s.oldest_ms >= STUCK_MS && s.workers > 0)
    {
        let severity = if s.oldest_ms >= STUCK_CRITICAL_MS {
            Severity::Critical
        } else {
            Severity::Warning
        };
        let sentence = format!(
            "{} of queue {}: the lease expired up to {} ago, and none of the {} takes over",
            say::count(s.jobs, "job"),
            s.queue,
            say::ms(s.oldest_ms),
            say::count(s.workers, "live worker")
        );
        let mut finding = Finding::new("leases", "leases_stuck", severity, sentence)
            .evidence("queue", s.queue.clone())
            .evidence("jobs", s.jobs)
            .evidence("ids", s.ids.clone())
            .evidence("oldest_ms", s.oldest_ms)
            .evidence("workers", s.workers);
        let first = s.ids.first().copied().unwrap_or_default();
        // Most often an open transaction holds the rows.
        let why = exam.client.why(JobId(first)).await.ok();
        let reason = why
            .as_ref()
            .and_then(|why| why.reason("locked").or_else(|| why.reasons.first()));
        if let Some(reason) = reason {
            finding = finding.evidence("why", reason.sentence.clone());
        }
        findings.push(finding.advice(format!(
            "rowlock why {first}; if no transaction holds them, look at the log of the workers: do they reach the database?"
        )));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("leases", "no lease is stuck"));
    }
    Ok(findings)
}
