//! `rowlock jobs retry|cancel|delete`: by ids, or by the same filter that `rowlock jobs` lists with.
//!
//! A filter is first turned into ids, then asked about, then done: so what is changed is what was counted, however much comes in meanwhile.

use std::collections::BTreeMap;

use clap::Args;
use rowlock::manage::{CancelAnswer, DeleteAnswer, JobState, RetryAnswer};
use rowlock::{Client, JobId};
use serde::Serialize;

use super::filter::Filter;
use super::list;
use crate::Global;
use crate::confirm::confirm;
use crate::exit::{Exit, mistake};
use crate::output::{self, Format};
use crate::style::{self, Tone, cell};
use crate::{progress, queues, say};

/// Jobs that are changed in one call: small enough that a bar moves, and that a Ctrl-C leaves little half done.
const BATCH: usize = 500;
/// Answers that are listed one by one; beyond that only how many there were of each.
const LISTED_MAX: usize = 50;

/// Run jobs again, or sooner: dead ones come back, of finished ones a copy is made, scheduled ones are due now.
///
/// With a filter but without --state it takes what has failed: dead jobs, and those that wait for their next attempt.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock jobs retry 4711 4712\n  \
    rowlock jobs retry --queue mail --error 'connection refused' --dry-run\n  \
    rowlock jobs retry --queue mail --state done --newer-than 1h    # once more, as copies")]
pub(crate) struct Retry {
    #[command(flatten)]
    which: Which,
}

/// Cancel jobs: waiting ones end at once, running ones are asked to stop.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock jobs cancel 4711\n  \
    rowlock jobs cancel --queue reports --kind report.yearly --yes")]
pub(crate) struct Cancel {
    #[command(flatten)]
    which: Which,

    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

/// Delete jobs for good, without a trace, wherever they are. Running ones are left alone.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock jobs delete 4711\n  \
    rowlock jobs delete --queue mail --state done --older-than 3d --yes\n\n\
    To keep a copy, see `rowlock archive`.")]
pub(crate) struct Delete {
    #[command(flatten)]
    which: Which,

    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

/// Which jobs to change.
#[derive(Args)]
struct Which {
    /// The jobs' ids; or a filter.
    #[arg(value_name = "ID", value_parser = super::id, conflicts_with_all = ["queue", "kind", "state", "tag", "reason", "error", "payload", "metadata", "older_than", "newer_than", "limit", "all"])]
    ids: Vec<JobId>,

    #[command(flatten)]
    filter: Filter,

    /// All jobs of all queues, if that is meant.
    #[arg(long)]
    all: bool,

    /// At most so many jobs.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    /// Only say which jobs it would be.
    #[arg(long)]
    dry_run: bool,
}

/// What became of one job.
#[derive(Debug, Clone, Copy, Serialize)]
struct Answer {
    id: JobId,
    answer: &'static str,
    /// The live job that runs in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    new_id: Option<JobId>,
    #[serde(skip)]
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Done,
    /// There is no such job.
    Missing,
    Refused,
}

/// What the changing commands answer with `--json`.
#[derive(Serialize)]
struct Changed {
    dry_run: bool,
    answers: Vec<Answer>,
}

impl Retry {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let failed_only = self.which.filter.state.is_empty();
        let wanted = |state, failures| !failed_only || state == JobState::Dead || failures > 0;
        let by_default = [JobState::Scheduled, JobState::Dead];
        let found = self
            .which
            .find(&client, global, &by_default, wanted)
            .await?;
        let Some(found) = found else {
            return Ok(Exit::NothingFound);
        };
        if self.which.dry_run {
            return found.show("retried", global);
        }
        let change = async |ids: &[JobId]| {
            let answers = client.retry(ids).await?;
            Ok(answers
                .iter()
                .map(|r| Answer {
                    id: r.id,
                    answer: r.answer.as_str(),
                    new_id: r.new_id.filter(|new| *new != r.id),
                    verdict: match r.answer {
                        RetryAnswer::NotFound => Verdict::Missing,
                        RetryAnswer::Duplicate | RetryAnswer::Busy => Verdict::Refused,
                        _ => Verdict::Done,
                    },
                })
                .collect())
        };
        found.report(found.in_batches("retrying", change).await?, global)
    }
}

impl Cancel {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let live = [JobState::Scheduled, JobState::Ready, JobState::Running];
        let found = self.which.find(&client, global, &live, |_, _| true).await?;
        let Some(found) = found else {
            return Ok(Exit::NothingFound);
        };
        if self.which.dry_run {
            return found.show("cancelled", global);
        }
        if found.by_filter {
            confirm(&format!("cancel {}", found.describe()), self.yes)?;
        }
        let change = async |ids: &[JobId]| {
            let answers = client.cancel(ids).await?;
            Ok(answers
                .iter()
                .map(|c| Answer {
                    id: c.id,
                    answer: c.answer.as_str(),
                    new_id: None,
                    verdict: match c.answer {
                        CancelAnswer::NotLive => Verdict::Missing,
                        CancelAnswer::Busy => Verdict::Refused,
                        _ => Verdict::Done,
                    },
                })
                .collect())
        };
        found.report(found.in_batches("cancelling", change).await?, global)
    }
}

impl Delete {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let not_running = |state, _| state != JobState::Running;
        let found = self.which.find(&client, global, &[], not_running).await?;
        let Some(found) = found else {
            return Ok(Exit::NothingFound);
        };
        if self.which.dry_run {
            return found.show("deleted", global);
        }
        confirm(&format!("delete {} for good", found.describe()), self.yes)?;
        let change = async |ids: &[JobId]| {
            let answers = client.delete(ids).await?;
            Ok(answers
                .iter()
                .map(|d| Answer {
                    id: d.id,
                    answer: d.answer.as_str(),
                    new_id: None,
                    verdict: match d.answer {
                        DeleteAnswer::NotFound => Verdict::Missing,
                        DeleteAnswer::Running | DeleteAnswer::Busy => Verdict::Refused,
                        _ => Verdict::Done,
                    },
                })
                .collect())
        };
        found.report(found.in_batches("deleting", change).await?, global)
    }
}

/// The jobs that a command is about to change.
struct Found {
    ids: Vec<JobId>,
    by_filter: bool,
    /// How many of them are in which state; empty for ids that were given.
    states: BTreeMap<JobState, u64>,
}

impl Which {
    /// `None` when no job fits, which has then been said.
    async fn find(
        &self,
        client: &Client,
        global: &Global,
        states_by_default: &[JobState],
        wanted: impl Fn(JobState, i16) -> bool,
    ) -> anyhow::Result<Option<Found>> {
        if !self.ids.is_empty() {
            return Ok(Some(Found {
                ids: self.ids.clone(),
                by_filter: false,
                states: BTreeMap::new(),
            }));
        }
        if !self.all && self.filter.is_empty() {
            return Err(mistake(
                "say which jobs: their ids, a filter such as --queue or --error, or --all for all jobs of all queues",
            ));
        }
        let mut filter = self.filter.clone();
        if filter.state.is_empty() {
            filter.state = states_by_default.to_vec();
        }
        let filter = filter.to_job_filter(client.clock().await?)?;
        let mut found = Found {
            ids: Vec::new(),
            by_filter: true,
            states: BTreeMap::new(),
        };
        let limit = self.limit.unwrap_or(u64::MAX);
        let bar = progress::of("looking", None);
        let mut next = None;
        loop {
            let mut page = filter.clone().limit(list::PAGE_MAX);
            if let Some(next) = next {
                page = page.after(next);
            }
            let answer = client.jobs(&page).await?;
            for job in answer.jobs {
                if wanted(job.state, job.failures) && (found.ids.len() as u64) < limit {
                    found.ids.push(job.id);
                    *found.states.entry(job.state).or_default() += 1;
                }
            }
            bar.set_position(found.ids.len() as u64);
            next = answer.next;
            if next.is_none() || found.ids.len() as u64 >= limit {
                break;
            }
        }
        bar.finish_and_clear();
        if found.ids.is_empty() {
            if global.format() == Format::Json {
                output::json(&Changed {
                    dry_run: self.dry_run,
                    answers: Vec::new(),
                })?;
            }
            queues::note_unknown(client, self.filter.queue.as_deref()).await?;
            output::note("no job fits");
            return Ok(None);
        }
        Ok(Some(found))
    }
}

impl Found {
    /// `1,200 jobs (1,000 done, 200 ready)`.
    fn describe(&self) -> String {
        let jobs = say::count(self.ids.len() as u64, "job");
        let states: Vec<String> = self
            .states
            .iter()
            .map(|(state, n)| format!("{} {state}", say::number(*n)))
            .collect();
        if states.is_empty() {
            jobs
        } else {
            format!("{jobs} ({})", states.join(", "))
        }
    }

    async fn in_batches(
        &self,
        doing: &str,
        change: impl AsyncFn(&[JobId]) -> rowlock::Result<Vec<Answer>>,
    ) -> rowlock::Result<Vec<Answer>> {
        let mut answers = Vec::with_capacity(self.ids.len());
        let bar = progress::of(doing, Some(self.ids.len() as u64));
        for ids in self.ids.chunks(BATCH) {
            answers.extend(change(ids).await?);
            bar.inc(ids.len() as u64);
        }
        bar.finish_and_clear();
        Ok(answers)
    }

    fn show(&self, verb: &str, global: &Global) -> anyhow::Result<Exit> {
        if global.format() == Format::Json {
            let answers = self.ids.iter().map(|id| Answer {
                id: *id,
                answer: "would_be_changed",
                new_id: None,
                verdict: Verdict::Done,
            });
            output::json(&Changed {
                dry_run: true,
                answers: answers.collect(),
            })?;
            return Ok(Exit::Success);
        }
        let ids: Vec<String> = self
            .ids
            .iter()
            .take(LISTED_MAX)
            .map(ToString::to_string)
            .collect();
        let more = if self.ids.len() > LISTED_MAX {
            " …"
        } else {
            ""
        };
        output::text(&format!(
            "{} would be {verb}: {}{more}\n",
            self.describe(),
            ids.join(" ")
        ));
        Ok(Exit::Success)
    }

    fn report(&self, answers: Vec<Answer>, global: &Global) -> anyhow::Result<Exit> {
        let exit = self.exit(&answers);
        if global.format() == Format::Json {
            output::json(&Changed {
                dry_run: false,
                answers,
            })?;
            return Ok(exit);
        }
        if answers.len() <= LISTED_MAX {
            let mut table = output::table(&["id", "answer"]);
            for a in &answers {
                let text = match a.new_id {
                    Some(new) => format!("{} by job {new}", words(a.answer)),
                    None => words(a.answer),
                };
                table.add_row([cell(a.id, Tone::Strong), cell(text, tone(a.verdict))]);
            }
            output::print_table(&table, "");
            return Ok(exit);
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for a in &answers {
            *counts.entry(a.answer).or_default() += 1;
        }
        let mut table = output::table(&["jobs", "answer"]);
        for (answer, n) in counts {
            table.add_row([
                style::number(n, Tone::Strong),
                cell(words(answer), Tone::Plain),
            ]);
        }
        output::print_table(&table, "");
        Ok(exit)
    }

    /// What a filter found and is gone by now does not count against it: somebody else was quicker.
    fn exit(&self, answers: &[Answer]) -> Exit {
        let is = |verdict| move |a: &&Answer| a.verdict == verdict;
        let missing = answers.iter().filter(is(Verdict::Missing)).count();
        if missing == answers.len() {
            Exit::NothingFound
        } else if answers.iter().any(|a| a.verdict == Verdict::Refused)
            || missing > 0 && !self.by_filter
        {
            Exit::Failure
        } else {
            Exit::Success
        }
    }
}

/// A word of the contract as people read it.
fn words(answer: &str) -> String {
    match answer {
        "asked" => "runs, and was asked to stop".into(),
        "busy" => "busy: an open transaction holds it, try again".into(),
        "not_live" => "not live: it has ended already, or never was".into(),
        "not_found" => "not found".into(),
        "copied" => "run again".into(),
        "hastened" => "due now".into(),
        "ready" => "waits for a worker already".into(),
        "running" => "running".into(),
        "duplicate" => "duplicate: its unique key is taken".into(),
        other => other.to_owned(),
    }
}

fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Done => Tone::Good,
        Verdict::Missing => Tone::Dim,
        Verdict::Refused => Tone::Warn,
    }
}
