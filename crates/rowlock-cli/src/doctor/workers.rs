//! Workers that are gone without a word.

use super::exam::Exam;
use super::finding::{Finding, Severity};
use crate::say;

/// Lost workers that are named one by one.
const NAMED_MAX: usize = 10;

pub(super) async fn check(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let workers = exam.client.workers().await?;
    let now = exam.client.clock().await?;
    let alive = workers.iter().filter(|w| w.alive).count() as u64;
    let lost: Vec<_> = workers
        .iter()
        .filter(|w| !w.alive && w.state != "stopped")
        .collect();
    let mut findings = Vec::new();
    for w in lost.iter().take(NAMED_MAX) {
        let sentence = format!(
            "worker {} on {} is still marked as {}, but was last seen {}",
            w.name,
            w.host,
            w.state,
            say::when(w.seen_at, now)
        );
        let finding = Finding::new("workers", "worker_lost", Severity::Warning, sentence)
            .evidence("id", w.id)
            .evidence("name", w.name.clone())
            .evidence("host", w.host.clone())
            .evidence("pid", w.pid)
            .evidence("seen_at", w.seen_at.to_string())
            .evidence("running_then", w.running)
            .evidence("queues", w.queues.clone());
        findings.push(finding.advice(
            "it died, or cannot reach the database: look at its host. Others take its jobs over when their leases end; its entry is forgotten after a day",
        ));
    }
    if lost.len() > NAMED_MAX {
        let sentence = format!(
            "and {} more",
            say::count((lost.len() - NAMED_MAX) as u64, "lost worker")
        );
        findings.push(Finding::new(
            "workers",
            "worker_lost",
            Severity::Warning,
            sentence,
        ));
    }
    if findings.is_empty() {
        let sentence = if alive == 0 {
            "none is lost, and none is at work".to_owned()
        } else {
            format!("{} at work, none lost", say::count(alive, "worker"))
        };
        findings.push(Finding::ok("workers", sentence).evidence("alive", alive));
    }
    Ok(findings)
}
