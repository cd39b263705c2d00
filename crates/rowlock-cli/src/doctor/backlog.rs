//! Queues that nobody serves, that are paused over waiting jobs, or that grow; and kinds that nobody knows.

use std::collections::HashMap;

use rowlock::manage::{QueueInfo, WorkerInfo};
use serde::Deserialize;

use super::exam::Exam;
use super::finding::{Finding, Severity};
use super::kinds;
use crate::say;
use crate::workers::serves;

/// A job that has waited this long for a worker of a queue without one is critical.
const UNSERVED_CRITICAL_MS: u64 = 60_000;
/// A queue grows if it gained so many jobs in the last five minutes.
const GROWTH_JOBS: i64 = 1000;
/// Rows that each count of the query below looks at.
const COUNT_MAX: i64 = 100_000;

/// By how many jobs each queue grew in the last five minutes: what came in and is still there, less what was there before and went. Each count
/// looks at 100,000 rows at most, so it works the same on a table of any size; when there are more, the true growth is larger.
const GROWTH: &str = "
with since as (select rowlock.clock() as now, rowlock.clock() - interval '5 minutes' as at offset 0),
came as (
  select j.queue, count(*) as n
    from (select j.queue, j.created_at, j.run_at from rowlock.job j order by j.id desc limit 100000) j, since s
   where j.created_at > s.at and j.run_at <= s.now
   group by 1
), went as (
  select f.queue, count(*) filter (where f.created_at <= f.at) as n, count(*) as finished
    from (select f.queue, f.created_at, s.at from since s, rowlock.finished f
           where f.finished_at > s.at and f.finished_at <= s.now limit 100000) f
   group by 1
)
select coalesce(c.queue, w.queue) as queue, coalesce(c.n, 0) as came, coalesce(w.n, 0) as went, coalesce(w.finished, 0) as finished
  from came c full join went w on w.queue = c.queue";

#[derive(Deserialize)]
struct Growth {
    queue: String,
    came: i64,
    went: i64,
    finished: i64,
}

pub(super) async fn check(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let queues = exam.client.queues().await?;
    let workers = exam.client.workers().await?;
    let growth: Vec<Growth> = exam.look(GROWTH).await?;
    let capped = growth.iter().map(|g| g.came).sum::<i64>() >= COUNT_MAX;
    let growth: HashMap<&str, &Growth> = growth.iter().map(|g| (g.queue.as_str(), g)).collect();
    let mut findings = Vec::new();
    for queue in queues.iter().filter(|q| q.ready > 0) {
        findings.extend(paused(queue).or_else(|| unserved(queue, &workers)));
        findings.extend(
            growth
                .get(queue.name.as_str())
                .and_then(|g| grows(queue, g, capped)),
        );
    }
    findings.extend(kinds::check(exam, &workers).await?);
    if findings.is_empty() {
        let waiting = queues.iter().map(|q| q.ready).sum();
        let sentence = format!(
            "{} in {}, all served, none growing",
            say::count(waiting, "waiting job"),
            say::count(queues.len() as u64, "queue")
        );
        findings.push(Finding::ok("backlog", sentence));
    }
    Ok(findings)
}

fn waiting(q: &QueueInfo) -> String {
    let more = if q.capped { "at least " } else { "" };
    let oldest = q.oldest_wait_ms.map_or(String::new(), |ms| {
        format!(
            ", the oldest for {}",
            say::ms(i64::try_from(ms).unwrap_or(i64::MAX))
        )
    });
    let verb = if q.ready == 1 { "waits" } else { "wait" };
    format!("{more}{} {verb}{oldest}", say::count(q.ready, "job"))
}

fn paused(q: &QueueInfo) -> Option<Finding> {
    if !q.paused {
        return None;
    }
    let sentence = format!("queue {} is paused while {}", q.name, waiting(q));
    let finding = Finding::new("backlog", "queue_paused", Severity::Warning, sentence)
        .evidence("queue", q.name.clone())
        .evidence("ready", q.ready)
        .evidence("oldest_wait_ms", q.oldest_wait_ms)
        .advice(format!(
            "if that is not meant: rowlock queues resume {}",
            q.name
        ));
    Some(finding)
}

fn unserved(q: &QueueInfo, workers: &[WorkerInfo]) -> Option<Finding> {
    let serving = |w: &&WorkerInfo| serves(&w.queues, &q.name);
    if workers
        .iter()
        .filter(serving)
        .any(|w| w.alive && w.state == "running")
    {
        return None;
    }
    let long = q
        .oldest_wait_ms
        .is_some_and(|ms| ms >= UNSERVED_CRITICAL_MS);
    let severity = if long {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let last = workers.iter().filter(serving).max_by_key(|w| w.seen_at);
    let sentence = format!("no live worker serves queue {}: {}", q.name, waiting(q));
    let finding = Finding::new("backlog", "queue_unserved", severity, sentence)
        .evidence("queue", q.name.clone())
        .evidence("ready", q.ready)
        .evidence("oldest_wait_ms", q.oldest_wait_ms)
        .evidence(
            "last_worker",
            last.map(|w| format!("{} on {}", w.name, w.host)),
        )
        .evidence("last_seen_at", last.map(|w| w.seen_at.to_string()))
        .advice("start a worker for it; `rowlock workers` lists who serves what");
    Some(finding)
}

fn grows(q: &QueueInfo, g: &Growth, capped: bool) -> Option<Finding> {
    let more = g.came - g.went;
    if more < GROWTH_JOBS {
        return None;
    }
    let sentence = format!(
        "queue {} grew by {}{} in the last five minutes, while {} finished: {}",
        q.name,
        if capped { "at least " } else { "" },
        say::count(more.unsigned_abs(), "job"),
        say::number(g.finished.unsigned_abs()),
        waiting(q)
    );
    let finding = Finding::new("backlog", "queue_grows", Severity::Warning, sentence)
        .evidence("queue", q.name.clone())
        .evidence("grew_by", more)
        .evidence("finished", g.finished)
        .evidence("ready", q.ready)
        .evidence("oldest_wait_ms", q.oldest_wait_ms)
        .advice("more workers or more concurrency, if the jobs can take it; or find out what enqueues so much: rowlock jobs --queue, by kind");
    Some(finding)
}
