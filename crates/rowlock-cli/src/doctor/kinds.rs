//! Kinds of jobs that no worker of their queue knows: they wait for ever, while everything else goes on.

use rowlock::manage::WorkerInfo;
use serde::Deserialize;

use super::exam::Exam;
use super::finding::{Finding, Severity};
use crate::say;
use crate::workers::serves;

/// A kind that has waited this long for somebody who knows it is critical.
const CRITICAL_MS: i64 = 60_000;

/// What is due and not running, by kind. A job that nobody takes comes to the front of its queue in time, so the first of each priority are enough,
/// and the claim index finds them.
const WAITING: &str = "
select q.name as queue, j.kind, count(*) as jobs, max((extract(epoch from c.now - j.run_at) * 1000)::bigint) as oldest_ms, min(j.id) as first
  from rowlock.queue q
 cross join (select rowlock.clock() as now offset 0) c
 cross join unnest('{4,3,2,1,0,-1,-2,-3,-4}'::smallint[]) as p (priority)
 cross join lateral (select j.id, j.kind, j.run_at, j.lease_until from rowlock.job j
                      where rowlock.line(j.queue, j.priority) = rowlock.line(q.name, p.priority) and j.queue = q.name and j.priority = p.priority and j.run_at <= c.now
                      order by j.run_at, j.id limit 1000) j
 where not q.paused and j.lease_until <= c.now and (q.kinds -> j.kind -> 'paused') is distinct from 'true'
 group by q.name, j.kind order by 4 desc limit 1000";

#[derive(Deserialize)]
struct Waiting {
    queue: String,
    kind: String,
    jobs: u64,
    oldest_ms: i64,
    first: i64,
}

pub(super) async fn check(exam: &Exam, workers: &[WorkerInfo]) -> anyhow::Result<Vec<Finding>> {
    let waiting: Vec<Waiting> = exam.look(WAITING).await?;
    let unknown = |w: &Waiting| {
        let serving: Vec<&WorkerInfo> = workers
            .iter()
            .filter(|worker| worker.alive && worker.state == "running")
            .filter(|worker| serves(&worker.queues, &w.queue))
            .collect();
        // Without any worker it is the queue that nobody serves, which is said already.
        let knows =
            |worker: &&WorkerInfo| worker.kinds.is_empty() || worker.kinds.contains(&w.kind);
        (!serving.is_empty() && !serving.iter().any(knows)).then(|| finding(w, &serving))
    };
    Ok(waiting.iter().filter_map(unknown).take(20).collect())
}

fn finding(w: &Waiting, serving: &[&WorkerInfo]) -> Finding {
    let severity = if w.oldest_ms >= CRITICAL_MS {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let mut known: Vec<&str> = serving
        .iter()
        .flat_map(|worker| worker.kinds.iter().map(String::as_str))
        .collect();
    known.sort_unstable();
    known.dedup();
    let sentence = format!(
        "none of the {} of queue {} knows kind {}: {} of it, the oldest for {}",
        say::count(serving.len() as u64, "live worker"),
        w.queue,
        w.kind,
        if w.jobs == 1 {
            "1 job waits".to_owned()
        } else {
            format!("at least {} jobs wait", say::number(w.jobs))
        },
        say::ms(w.oldest_ms)
    );
    Finding::new("backlog", "kind_unknown", severity, sentence)
        .evidence("queue", w.queue.clone())
        .evidence("kind", w.kind.clone())
        .evidence("jobs", w.jobs)
        .evidence("oldest_wait_ms", w.oldest_ms)
        .evidence("first", w.first)
        .evidence("workers", serving.len())
        .evidence("kinds_known", known)
        .advice(format!(
            "deploy workers that handle {}; if it is misspelt or obsolete: rowlock jobs cancel --queue {} --kind {}",
            w.kind, w.queue, w.kind
        ))
}
