//! Texts of `rowlock top`: the plain snapshot, what is shown of a job or queue, and what became of an action.

use std::fmt::Write as _;

use rowlock::Client;
use rowlock::manage::{JobInfo, QueueStats, RetryAnswer};

use super::News;
use super::app::Action;
use super::snapshot::{Snapshot, failed_at};
use crate::jobs::{list, show};
use crate::say;

/// Does what was asked for.
pub(super) async fn act(client: &Client, action: Action) -> rowlock::Result<News> {
    let did = |text: String| Ok(News::Did(Ok(text)));
    match action {
        Action::Pause(queue) => {
            client.pause(&queue).await?;
            did(format!("queue {queue} is paused"))
        }
        Action::Resume(queue) => {
            client.resume(&queue).await?;
            did(format!("queue {queue} goes on"))
        }
        Action::Retry(id) => {
            let answer = client.retry(&[id]).await?.first().map(|r| r.answer);
            Ok(News::Did(match answer {
                Some(RetryAnswer::Revived) => Ok(format!("job {id} is live again")),
                Some(RetryAnswer::Hastened) => Ok(format!("job {id} is due now")),
                Some(answer) => Err(format!("job {id}: {answer}")),
                None => Err(format!("job {id}: no answer")),
            }))
        }
        Action::Inspect(id) => Ok(match client.job(id).await? {
            Some(job) => News::Job(without_colours(&show::life(&job, client.clock().await?))),
            None => News::Did(Err(format!("job {id} is gone"))),
        }),
        Action::InspectQueue(queue) => Ok(match client.queue_stats(&queue).await? {
            Some(stats) => News::Job(about(&stats)),
            None => News::Did(Err(format!("queue {queue} is gone"))),
        }),
        Action::Quit => did(String::new()),
    }
}

/// Texts for standard output carry colours where that is a terminal, as it is here; this screen has its own.
fn without_colours(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

fn about(q: &QueueStats) -> String {
    let ms = |ms: Option<i64>| ms.map_or("-".to_owned(), say::ms);
    let mut text = format!(
        "queue {}{}\n\n",
        q.name,
        if q.paused { "  paused" } else { "" }
    );
    for (name, n) in [
        ("ready", q.ready),
        ("running", q.running),
        ("scheduled", q.scheduled),
        ("dead", q.dead),
    ] {
        let _ = writeln!(text, "{name:<10} {:>12}", depth(n, q.capped));
    }
    let _ = writeln!(text, "oldest     {:>12}", ms(q.oldest_wait_ms));
    let _ = writeln!(text, "per minute {:>12}", say::number(q.finished_minute));
    let _ = writeln!(text, "per hour   {:>12}", say::number(q.finished_hour));
    let _ = writeln!(text, "\n           {:>8} {:>8} {:>8}", "p50", "p95", "p99");
    for (name, [p50, p95, p99]) in [
        ("wait", [q.wait_p50_ms, q.wait_p95_ms, q.wait_p99_ms]),
        ("run", [q.run_p50_ms, q.run_p95_ms, q.run_p99_ms]),
    ] {
        let _ = writeln!(
            text,
            "{name:<10} {:>8} {:>8} {:>8}",
            ms(p50),
            ms(p95),
            ms(p99)
        );
    }
    text
}

/// A depth, with a + where it was not counted to the end.
pub(super) fn depth(n: u64, capped: bool) -> String {
    format!(
        "{}{}",
        say::number(n),
        if capped && n >= 10_000 { "+" } else { "" }
    )
}

/// `12.3` jobs per second, over the last minute.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".to_owned(),
        r if r < 10.0 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

/// How far a job says that it has come.
pub(super) fn progress(job: &JobInfo) -> String {
    job.progress
        .as_ref()
        .map_or(String::new(), |json| say::clip(json.get(), 40))
}

/// One snapshot, for a ticket or a script.
pub(super) fn plain(s: &Snapshot) -> String {
    let ms = |ms: Option<i64>| ms.map_or(String::new(), say::ms);
    let mut text = format!(
        "{}  {}/s  {} alive, {} lost, {} of {} slots busy\n\n",
        say::moment(s.at),
        rate(s.rate()),
        say::count(s.workers.alive, "worker"),
        s.workers.lost,
        s.workers.running,
        s.workers.concurrency
    );
    let _ = writeln!(
        text,
        "{:<20} {:>8} {:>8} {:>9} {:>8} {:>8} {:>7} {:>8} {:>8} {:>8} {:>8}",
        "queue",
        "ready",
        "running",
        "scheduled",
        "dead",
        "oldest",
        "/s",
        "wait p50",
        "wait p95",
        "run p50",
        "run p95"
    );
    for q in &s.queues {
        let _ = writeln!(
            text,
            "{:<20} {:>8} {:>8} {:>9} {:>8} {:>8} {:>7} {:>8} {:>8} {:>8} {:>8}{}",
            say::clip(&q.name, 20),
            depth(q.ready, q.capped),
            depth(q.running, q.capped),
            depth(q.scheduled, q.capped),
            depth(q.dead, q.capped),
            ms(q.oldest_wait_ms),
            rate(q.finished_minute as f64 / 60.0),
            ms(q.wait_p50_ms),
            ms(q.wait_p95_ms),
            ms(q.run_p50_ms),
            ms(q.run_p95_ms),
            if q.paused { "  paused" } else { "" }
        );
    }
    text += "\nrunning\n";
    for job in &s.running {
        let _ = writeln!(
            text,
            "  {} {} {} {} {}",
            job.id,
            job.queue,
            job.kind,
            list::when(job, s.at),
            progress(job)
        );
    }
    text += "\nfailures\n";
    for job in &s.failures {
        let error = job.last_error().map_or("", |e| &e.error);
        let _ = writeln!(
            text,
            "  {} {} {} {} {}: {}",
            job.id,
            job.state,
            job.queue,
            job.kind,
            say::when(failed_at(job), s.at),
            say::clip(error, 80)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_taken_out() {
        assert_eq!(without_colours("a\x1b[1mb\x1b[0m c"), "ab c");
        assert_eq!(without_colours("plain"), "plain");
    }

    #[test]
    fn rates_are_short() {
        assert_eq!(rate(0.0), "0");
        assert_eq!(rate(0.25), "0.2");
        assert_eq!(rate(1234.5), "1234");
    }
}
