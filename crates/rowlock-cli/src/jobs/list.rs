//! `rowlock jobs list`: jobs that fit, newest first, page by page.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use rowlock::Client;
use rowlock::manage::{JobFilter, JobInfo, JobState, Next};
use serde::Serialize;

use super::filter::Filter;
use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::style::{self, Tone};
use crate::{queues, say, style::cell, times};

/// Jobs that one call of the library lists at most.
pub(crate) const PAGE_MAX: u32 = 1000;

/// List jobs, newest first.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock jobs list --queue mail --state ready,running\n  \
    rowlock jobs list --tag vip --payload user.id=7 --newer-than 1d\n  \
    rowlock jobs list --state dead --json | jq -r '.jobs[].id'")]
pub(crate) struct List {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    page: Page,
}

/// How much of a list.
#[derive(Args, Clone)]
pub(crate) struct Page {
    /// How many jobs to list at most.
    #[arg(long, short = 'n', default_value_t = LIMIT, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,

    /// Go on where an earlier list with the same filter stopped.
    #[arg(long, value_name = "NEXT")]
    after: Option<Next>,

    /// How long to go on through jobs that do not fit before saying so.
    #[arg(long, default_value = "400ms", value_name = "TIME", value_parser = times::span)]
    search_for: Duration,
}

const LIMIT: u32 = 50;
const SEARCH_FOR: Duration = Duration::from_millis(400);

impl Page {
    pub(crate) fn is_plain(&self) -> bool {
        self.limit == LIMIT && self.after.is_none() && self.search_for == SEARCH_FOR
    }
}

/// A filter that stands before the word belongs to the list, and would be ignored: `rowlock jobs --queue mail delete --all` must not delete the jobs
/// of all queues.
pub(crate) fn refuse_early_filter(example: &str) -> ! {
    let text = format!("options that choose jobs go after the word, as in `rowlock {example}`\n");
    clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, text).exit()
}

/// What `rowlock jobs` and `rowlock dead` answer with `--json`.
#[derive(Serialize)]
pub(crate) struct Listed {
    jobs: Vec<JobInfo>,
    /// What to pass as `--after` to go on; null when there is nothing more.
    next: Option<Next>,
    /// How many rows were looked at.
    visited: u64,
    /// Whether it stopped before it had looked at everything.
    cut: bool,
}

impl List {
    /// Whether it was given nothing.
    pub(super) fn is_plain(&self) -> bool {
        self.filter.is_empty() && self.page.is_plain()
    }

    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let now = client.clock().await?;
        let filter = self.filter.to_job_filter(now)?;
        let listed = list(&client, filter, self.page).await?;
        if listed.is_empty() {
            queues::note_unknown(&client, self.filter.queue.as_deref()).await?;
        }
        listed.print(global.format(), now, "no job fits")
    }
}

/// As many jobs as a page may hold, in as many calls as that takes.
pub(crate) async fn list(client: &Client, filter: JobFilter, page: Page) -> anyhow::Result<Listed> {
    let began = Instant::now();
    let mut listed = Listed {
        jobs: Vec::new(),
        next: page.after,
        visited: 0,
        cut: false,
    };
    loop {
        let left = page.limit - listed.jobs.len() as u32;
        let mut filter = filter.clone().limit(left.min(PAGE_MAX));
        if let Some(next) = listed.next.take() {
            filter = filter.after(next);
        }
        let found = client.jobs(&filter).await?;
        listed.jobs.extend(found.jobs);
        listed.visited += found.visited;
        listed.next = found.next;
        listed.cut = found.cut;
        let full = listed.jobs.len() >= page.limit as usize;
        let enough = listed.cut && began.elapsed() >= page.search_for;
        if full || listed.next.is_none() || enough {
            return Ok(listed);
        }
    }
}

impl Listed {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(crate) fn print(self, format: Format, now: Timestamp, empty: &str) -> anyhow::Result<Exit> {
        if format == Format::Json {
            output::json(&self)?;
            return Ok(Exit::Success);
        }
        output::print_table(&table(&self.jobs, now), empty);
        let mut note = String::new();
        if self.cut {
            let _ = write!(
                note,
                "stopped after looking at {}; more may fit: --search-for 1m looks further. ",
                say::count(self.visited, "row")
            );
        }
        if let Some(next) = &self.next {
            let _ = write!(note, "go on with --after '{next}'");
        }
        if !note.is_empty() {
            // Not among the rows, where a script would take it for one.
            output::note(note.trim_end());
        }
        Ok(Exit::Success)
    }
}

/// Jobs as a table.
pub(crate) fn table(jobs: &[JobInfo], now: Timestamp) -> comfy_table::Table {
    let mut table = output::table(&["id", "state", "queue", "kind", "attempt", "when", "remark"]);
    for job in jobs {
        table.add_row([
            cell(job.id, Tone::Strong),
            cell(job.state, style::state(job.state)),
            cell(&job.queue, Tone::Plain),
            cell(&job.kind, Tone::Plain),
            cell(attempts(job), Tone::Plain),
            cell(when(job, now), Tone::Plain),
            cell(remark(job), Tone::Dim),
        ]);
    }
    table
}

/// `2/5`: how many attempts it has had, and may fail.
pub(crate) fn attempts(job: &JobInfo) -> String {
    match job.max_attempts {
        Some(max) => format!("{}/{max}", job.attempt),
        None => job.attempt.to_string(),
    }
}

/// What matters about the time of a job in its state.
pub(crate) fn when(job: &JobInfo, now: Timestamp) -> String {
    match job.state {
        JobState::Scheduled => say::when(job.run_at, now),
        JobState::Ready => format!("waits {}", say::since(job.run_at, now)),
        JobState::Running => format!(
            "for {}",
            say::since(job.started_at.unwrap_or(job.run_at), now)
        ),
        _ => say::when(job.ended_at.unwrap_or(job.created_at), now),
    }
}

fn remark(job: &JobInfo) -> String {
    let worker = job.worker_name.as_deref().unwrap_or("a worker");
    match (job.state, job.last_error()) {
        (JobState::Running, _) if job.cancel_at.is_some() => {
            format!("on {worker}, asked to stop")
        }
        (JobState::Running, _) => format!("on {worker}"),
        (JobState::Ready, _) if job.crashed => "its worker died".to_owned(),
        (JobState::Done, _) => String::new(),
        (_, Some(error)) => say::clip(&error.error, 60),
        _ => job.reason.map_or(String::new(), |r| r.to_string()),
    }
}
