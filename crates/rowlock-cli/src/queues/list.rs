//! `rowlock queues list` and `show`.

use std::fmt::Write as _;

use clap::Args;
use comfy_table::{Cell, CellAlignment};
use rowlock::manage::{QueueInfo, QueueStats};
use serde::Serialize;

use super::settings;
use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::say;
use crate::style::{Tone, cell, number, paint};

/// List queues: how full they are, how fast, how long jobs wait and run.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock queues list\n  \
    rowlock queues list --json | jq '.queues[] | select(.paused) | .name'")]
pub(super) struct List {}

/// Show one queue: numbers and settings.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock queues show mail\n  \
    rowlock queues show mail --json | jq .stats.wait_p95_ms\n\n\
    Exits with 3 when there is no such queue.")]
pub(super) struct Show {
    /// The queue.
    name: String,
}

/// A queue, as `--json` tells it.
#[derive(Serialize)]
struct Entry {
    #[serde(flatten)]
    queue: QueueInfo,
    /// Of the last minute and hour; null for a queue that was made this very moment.
    stats: Option<QueueStats>,
}

/// What `rowlock queues` answers with `--json`.
#[derive(Serialize)]
struct Answer {
    queues: Vec<Entry>,
}

impl List {
    pub(super) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let (queues, mut stats) = tokio::try_join!(client.queues(), client.stats())?;
        let queues: Vec<Entry> = queues
            .into_iter()
            .map(|queue| {
                let at = stats.iter().position(|s| s.name == queue.name);
                Entry {
                    stats: at.map(|at| stats.swap_remove(at)),
                    queue,
                }
            })
            .collect();
        if global.format() == Format::Json {
            output::json(&Answer { queues })?;
            return Ok(Exit::Success);
        }
        let mut table = output::table(&[
            "queue",
            "",
            "ready",
            "running",
            "scheduled",
            "dead",
            "oldest",
            "per min",
            "wait p95",
            "run p95",
        ]);
        for entry in &queues {
            let (q, s) = (&entry.queue, entry.stats.as_ref());
            let depth = |n: u64, tone| capped(n, tone, q.capped);
            table.add_row([
                cell(&q.name, Tone::Strong),
                cell(paused(q), Tone::Warn),
                depth(q.ready, Tone::Plain),
                depth(q.running, Tone::Busy),
                depth(q.scheduled, Tone::Plain),
                depth(q.dead, Tone::Bad),
                right(q.oldest_wait_ms.map(|ms| ms as i64)),
                number(s.map_or(0, |s| s.finished_minute), Tone::Good),
                right(s.and_then(|s| s.wait_p95_ms)),
                right(s.and_then(|s| s.run_p95_ms)),
            ]);
        }
        output::print_table(&table, "there is no queue yet: the first job makes one");
        Ok(Exit::Success)
    }
}

fn capped(n: u64, tone: Tone, capped: bool) -> Cell {
    if capped && n >= 10_000 {
        let text = format!("{}+", say::number(n));
        return cell(text, tone).set_alignment(CellAlignment::Right);
    }
    number(n, tone)
}

fn right(ms: Option<i64>) -> Cell {
    cell(ms.map_or(String::new(), say::ms), Tone::Plain).set_alignment(CellAlignment::Right)
}

fn paused(q: &QueueInfo) -> String {
    if q.paused {
        return "paused".to_owned();
    }
    match q.paused_kinds.as_slice() {
        [] => String::new(),
        [kind] => format!("{kind} paused"),
        kinds => format!("{} kinds paused", kinds.len()),
    }
}

impl Show {
    pub(super) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let Some(queue) = super::find(&client, &self.name).await? else {
            return Ok(Exit::NothingFound);
        };
        let entry = Entry {
            stats: client.queue_stats(&self.name).await?,
            queue,
        };
        match global.format() {
            Format::Json => output::json(&entry)?,
            Format::Table => output::text(&entry.text()),
        }
        Ok(Exit::Success)
    }
}

impl Entry {
    fn text(&self) -> String {
        let q = &self.queue;
        let mut text = String::new();
        let _ = write!(
            text,
            "{}",
            paint(format_args!("queue {}", q.name), Tone::Strong)
        );
        let state = paused(q);
        if !state.is_empty() {
            let _ = write!(text, "  {}", paint(state, Tone::Warn));
        }
        text.push('\n');
        let more = if q.capped {
            " (counted up to 10,000)"
        } else {
            ""
        };
        let mut line = |name: &str, value: String| {
            let _ = writeln!(
                text,
                "  {} {value}",
                paint(format_args!("{name:<12}"), Tone::Dim)
            );
        };
        line(
            "jobs",
            format!(
                "{} ready, {} running, {} scheduled, {} dead{more}",
                say::number(q.ready),
                say::number(q.running),
                say::number(q.scheduled),
                say::number(q.dead)
            ),
        );
        if let Some(ms) = q.oldest_wait_ms {
            line("oldest", format!("waits {}", say::ms(ms as i64)));
        }
        if let Some(s) = &self.stats {
            let about = if s.estimated { "about " } else { "" };
            line(
                "finished",
                format!(
                    "{about}{} in the last minute, {about}{} in the last hour",
                    say::number(s.finished_minute),
                    say::number(s.finished_hour)
                ),
            );
            for (name, times) in [
                ("wait", [s.wait_p50_ms, s.wait_p95_ms, s.wait_p99_ms]),
                ("run", [s.run_p50_ms, s.run_p95_ms, s.run_p99_ms]),
            ] {
                if let [Some(p50), Some(p95), Some(p99)] = times {
                    let times = [p50, p95, p99].map(say::ms);
                    line(
                        name,
                        format!("p50 {}, p95 {}, p99 {}", times[0], times[1], times[2]),
                    );
                }
            }
        }
        let _ = writeln!(text, "\n{}", paint("settings", Tone::Strong));
        for (name, value) in settings::of_queue(q) {
            let _ = writeln!(
                text,
                "  {} {value}",
                paint(format_args!("{name:<12}"), Tone::Dim)
            );
        }
        for (kind, info) in &q.kinds {
            let _ = writeln!(
                text,
                "\n{}",
                paint(format_args!("kind {kind}"), Tone::Strong)
            );
            for (name, value) in settings::of_kind(info) {
                let _ = writeln!(
                    text,
                    "  {} {value}",
                    paint(format_args!("{name:<12}"), Tone::Dim)
                );
            }
        }
        text
    }
}
