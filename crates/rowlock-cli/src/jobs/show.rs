//! `rowlock jobs show`: the whole life of one job.

use std::fmt::Write as _;

use clap::Args;
use jiff::Timestamp;
use rowlock::JobId;
use rowlock::manage::{JobInfo, JobState};

use super::list;
use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::style::{self, Tone, paint};
use crate::{pretty, say};

/// Show the whole life of a job: its attempts and errors, progress, result, payload.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock jobs show 4711\n  \
    rowlock jobs show 4711 --json | jq .payload\n\n\
    Exits with 3 when there is no such job. `rowlock why 4711` says why a job is not running.")]
pub(crate) struct Show {
    /// The job's id.
    #[arg(value_parser = super::id)]
    id: JobId,
}

impl Show {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let Some(job) = client.job(self.id).await? else {
            output::note(&format!(
                "there is no job {}, or its history has been cleared",
                self.id
            ));
            return Ok(Exit::NothingFound);
        };
        match global.format() {
            Format::Json => output::json(&job)?,
            Format::Table => output::text(&life(&job, client.clock().await?)),
        }
        Ok(Exit::Success)
    }
}

/// All about a job, as text.
pub(crate) fn life(job: &JobInfo, now: Timestamp) -> String {
    let mut text = String::new();
    let state = match job.reason {
        Some(reason) => format!("{} ({reason})", job.state),
        None => job.state.to_string(),
    };
    let _ = writeln!(
        text,
        "{}  {} in queue {}  {}",
        paint(format_args!("job {}", job.id), Tone::Strong),
        job.kind,
        job.queue,
        paint(state, style::state(job.state))
    );
    for (name, value) in facts(job, now) {
        let _ = writeln!(
            text,
            "  {} {value}",
            paint(format_args!("{name:<10}"), Tone::Dim)
        );
    }
    for (name, json) in [
        ("payload", Some(&job.payload)),
        ("metadata", job.metadata.as_ref()),
        ("progress", job.progress.as_ref()),
        ("result", job.result.as_ref()),
        ("backoff", job.backoff.as_ref()),
    ] {
        if let Some(json) = json {
            section(&mut text, name, &say::plain(&pretty::json(json.get())));
        }
    }
    let mut events = String::new();
    for (at, event, tone) in events_of(job) {
        let at = at.map_or_else(|| " ".repeat(23), say::moment);
        // An error may have many lines; all of them are wanted here.
        let event = say::plain(&event).replace('\n', &format!("\n{}", " ".repeat(25)));
        let _ = writeln!(events, "{}  {}", paint(at, Tone::Dim), paint(event, tone));
    }
    section(&mut text, "life", events.trim_end());
    text
}

fn section(text: &mut String, name: &str, body: &str) {
    let _ = writeln!(text, "\n{}", paint(name, Tone::Strong));
    for line in body.lines() {
        let _ = writeln!(text, "  {line}");
    }
}

fn facts(job: &JobInfo, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut facts = vec![("when", list::when(job, now))];
    if job.state == JobState::Ready && job.crashed {
        facts.push((
            "crashed",
            "its last worker died or lost its connection".into(),
        ));
    }
    let mut attempts = format!("{} started, {} failed", job.attempt, job.failures);
    if let Some(max) = job.max_attempts {
        let _ = write!(attempts, " of {max} that may");
    }
    if job.crashes > 0 {
        let _ = write!(attempts, ", {} crashed", job.crashes);
    }
    facts.push(("attempts", attempts));
    facts.push(("priority", job.priority.to_string()));
    if let Some(worker) = job.worker {
        let name = match (&job.worker_name, &job.worker_host) {
            (Some(name), Some(host)) => format!("{name} on {host} (worker {worker})"),
            _ => format!("worker {worker}, no longer known"),
        };
        facts.push(("worker", name));
    }
    if let (JobState::Running, Some(until)) = (job.state, job.lease_until) {
        facts.push((
            "lease",
            format!("ends {} unless extended", say::when(until, now)),
        ));
    }
    if let Some(ms) = job.timeout_ms {
        facts.push(("timeout", say::ms(ms)));
    }
    if let Some(at) = job.expires_at {
        facts.push((
            "expiry",
            format!("{} ({})", say::moment(at), say::when(at, now)),
        ));
    }
    if let Some(key) = &job.unique_key {
        facts.push(("unique", say::clip(key, 200)));
    }
    if !job.tags.is_empty() {
        facts.push(("tags", job.tags.join(", ")));
    }
    if let Some(trace) = &job.trace {
        facts.push(("trace", trace.clone()));
    }
    facts
}

/// What happened to it, in order, and what is to come.
fn events_of(job: &JobInfo) -> Vec<(Option<Timestamp>, String, Tone)> {
    let mut events = vec![(Some(job.created_at), "enqueued".to_owned(), Tone::Plain)];
    for error in &job.errors {
        let worker = match error.worker {
            0 => String::new(),
            id => format!(" on worker {id}"),
        };
        let event = format!("attempt {} failed{worker}: {}", error.attempt, error.error);
        events.push((Some(error.at), event, Tone::Bad));
    }
    if let Some(at) = job.started_at {
        let event = format!("attempt {} started", job.attempt);
        events.push((Some(at), event, Tone::Busy));
    }
    if let Some(at) = job.cancel_at {
        events.push((Some(at), "asked to stop".to_owned(), Tone::Warn));
    }
    if let Some(at) = job.ended_at {
        let event = match job.reason {
            Some(reason) => format!("dead: {reason}"),
            None => job.state.to_string(),
        };
        events.push((Some(at), event, style::state(job.state)));
    }
    if job.state == JobState::Scheduled {
        events.push((Some(job.run_at), "due".to_owned(), Tone::Dim));
    }
    events.sort_by_key(|(at, ..)| *at);
    events
}
