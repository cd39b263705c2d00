//! `rowlock workers`: who works, where, on what.

use clap::Args;
use rowlock::manage::WorkerInfo;
use serde::Serialize;

use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::say;
use crate::style::{self, Tone, cell};

/// List workers, also those that stopped or died lately.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock workers\n  \
    rowlock workers --alive --json | jq '.workers | length'")]
pub(crate) struct Workers {
    /// Only those that live.
    #[arg(long)]
    alive: bool,

    /// Only those that serve this queue.
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,
}

/// What `rowlock workers` answers with `--json`.
#[derive(Serialize)]
struct Answer {
    workers: Vec<WorkerInfo>,
}

impl Workers {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let mut workers = client.workers().await?;
        workers.retain(|w| {
            (!self.alive || w.alive) && self.queue.as_ref().is_none_or(|q| serves(&w.queues, q))
        });
        if global.format() == Format::Json {
            output::json(&Answer { workers })?;
            return Ok(Exit::Success);
        }
        let now = client.clock().await?;
        let mut table = output::table(&[
            "id", "name", "host", "state", "busy", "queues", "kinds", "seen", "up", "version",
        ]);
        for w in &workers {
            let (state, tone) = state(w);
            table.add_row([
                cell(w.id, Tone::Strong),
                cell(&w.name, Tone::Plain),
                cell(format_args!("{} [{}]", w.host, w.pid), Tone::Plain),
                cell(state, tone),
                cell(format_args!("{}/{}", w.running, w.concurrency), Tone::Plain),
                cell(names(&w.queues), Tone::Plain),
                cell(names(&w.kinds), Tone::Plain),
                cell(say::when(w.seen_at, now), Tone::Dim),
                cell(
                    say::since(w.started_at, if w.alive { now } else { w.seen_at }),
                    Tone::Dim,
                ),
                cell(&w.version, Tone::Dim),
            ]);
        }
        output::print_table(&table, "no worker has been seen lately");
        Ok(Exit::Success)
    }
}

fn state(w: &WorkerInfo) -> (&str, style::Tone) {
    match w.state.as_str() {
        "stopped" => ("stopped", Tone::Dim),
        _ if !w.alive => ("lost", Tone::Bad),
        "draining" => ("draining", Tone::Warn),
        other => (other, Tone::Good),
    }
}

fn names(names: &[String]) -> String {
    match names {
        [] => "all".to_owned(),
        [first, second, third, _, ..] => {
            format!("{first}, {second}, {third} +{}", names.len() - 3)
        }
        few => few.join(", "),
    }
}

/// Whether a worker that subscribed to these names and patterns (with `*`) serves the queue.
pub(crate) fn serves(subscribed: &[String], queue: &str) -> bool {
    subscribed.iter().any(|pattern| fits(pattern, queue))
}

fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns() {
        assert!(fits("mail", "mail"));
        assert!(!fits("mail", "mails"));
        assert!(fits("*", ""));
        assert!(fits("mail*", "mail.eu"));
        assert!(fits("*.eu", "mail.eu"));
        assert!(fits("a*b*c", "a-b-b-c"));
        assert!(!fits("a*b*c", "a-c-b"));
        assert!(!fits("ab*ba", "aba"));
    }
}
