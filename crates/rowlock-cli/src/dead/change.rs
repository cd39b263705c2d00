//! `rowlock dead redrive|discard`: by ids, by filter, or all.

use std::collections::BTreeSet;

use clap::Args;
use jiff::Timestamp;
use rowlock::manage::{DeadFilter, JobState};
use rowlock::{Client, JobId};
use serde::Serialize;

use super::which::Which;
use crate::Global;
use crate::confirm::confirm;
use crate::exit::{Exit, mistake};
use crate::jobs::list;
use crate::output::{self, Format};
use crate::times::{self, Moment};
use crate::{progress, say};

/// Jobs that a dry run counts; beyond that it says "at least".
const COUNT_MAX: u64 = 100_000;

/// Put dead jobs back to work, with no failure counted.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock dead redrive 4711 4712\n  \
    rowlock dead redrive --queue mail --error timeout --limit 10      # try a few first\n  \
    rowlock dead redrive --tag vip --payload user.id=7\n  \
    rowlock dead redrive --all --rate 50                              # 50 a second\n  \
    rowlock dead redrive --queue mail --dry-run\n\n\
    A job whose unique key is taken by a live job stays dead. Exits with 3 when no job fits.")]
pub(super) struct Redrive {
    #[command(flatten)]
    target: Target,

    /// Spread them out: so many become due each second. Without it all are due at once.
    #[arg(long, value_name = "JOBS_PER_SECOND", allow_negative_numbers = true)]
    rate: Option<f64>,

    /// When the first of them is due, such as 2030-01-31T06:00 (UTC); now, by default.
    #[arg(long, value_name = "TIME", value_parser = times::moment)]
    start_at: Option<Moment>,
}

/// Delete dead jobs for good. To keep a copy, see `rowlock archive`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock dead discard 4711\n  \
    rowlock dead discard --reason poison --older-than 30d --yes\n  \
    rowlock dead discard --all --dry-run")]
pub(super) struct Discard {
    #[command(flatten)]
    target: Target,

    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

/// Which dead jobs to change.
#[derive(Args)]
struct Target {
    /// The jobs' ids; or a filter.
    #[arg(value_name = "ID", value_parser = crate::jobs::id, conflicts_with_all = ["queue", "kind", "reason", "error", "tag", "payload", "metadata", "older_than", "newer_than", "all", "limit"])]
    ids: Vec<JobId>,

    #[command(flatten)]
    which: Which,

    /// All dead jobs of all queues.
    #[arg(long)]
    all: bool,

    /// At most so many jobs, those that died first.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    /// Only say how many it would be, and which.
    #[arg(long)]
    dry_run: bool,
}

/// What `redrive` answers with `--json`.
#[derive(Serialize)]
struct RedriveAnswer {
    redriven: u64,
    /// Stay dead because their unique key is taken by a live job.
    duplicates: u64,
    /// Of the ids given, those that are not among the dead.
    not_dead: u64,
}

/// What `discard` answers with `--json`.
#[derive(Serialize)]
struct DiscardAnswer {
    discarded: u64,
    not_dead: u64,
}

/// What a dry run answers with `--json`.
#[derive(Serialize)]
struct DryAnswer {
    dry_run: bool,
    jobs: u64,
    /// Whether there are more than were counted.
    more: bool,
    /// The latest of them.
    sample: Vec<JobId>,
}

impl DryAnswer {
    fn add(&mut self, id: JobId) {
        self.jobs += 1;
        if self.sample.len() < 20 {
            self.sample.push(id);
        }
    }
}

impl Redrive {
    pub(super) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let now = client.clock().await?;
        let filter = self.target.filter(now)?;
        if self.target.dry_run {
            return self.target.show(&client, now, "redriven", global).await;
        }
        let bar = progress::of("redriving", self.target.total(&client).await?);
        let mut redrive = client
            .redrive(filter)
            .on_progress(|did| bar.set_position(did.redriven + did.duplicates));
        if let Some(rate) = self.rate {
            redrive = redrive.rate(rate);
        }
        if let Some(at) = self.start_at {
            redrive = redrive.start_at(at.from(now)?);
        }
        if let Some(limit) = self.target.limit {
            redrive = redrive.limit(limit);
        }
        let did = redrive.await?;
        bar.finish_and_clear();
        let answer = RedriveAnswer {
            redriven: did.redriven,
            duplicates: did.duplicates,
            not_dead: self.target.missing(did.redriven + did.duplicates),
        };
        match global.format() {
            Format::Json => output::json(&answer)?,
            Format::Table => output::text(&format!("{}\n", self.say(&answer))),
        }
        Ok(self.target.exit(answer.redriven, answer.duplicates))
    }

    fn say(&self, did: &RedriveAnswer) -> String {
        let mut text = format!("{} redriven", say::count(did.redriven, "job"));
        if let (Some(rate), true) = (self.rate, did.redriven > 1) {
            let last = jiff::SignedDuration::from_secs_f64((did.redriven - 1) as f64 / rate);
            text += &format!(", the last of them due in {}", say::span(last));
        }
        if did.duplicates > 0 {
            text += &format!(
                "; {} dead, because a live job has the same unique key",
                stay(did.duplicates)
            );
        }
        if did.not_dead > 0 {
            text += &format!("; {} not among the dead", is(did.not_dead));
        }
        text
    }
}

impl Discard {
    pub(super) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let now = client.clock().await?;
        let filter = self.target.filter(now)?;
        if self.target.dry_run {
            return self.target.show(&client, now, "discarded", global).await;
        }
        confirm(
            &format!("delete {} for good", self.target.describe()),
            self.yes,
        )?;
        let bar = progress::of("discarding", self.target.total(&client).await?);
        let mut discard = client
            .discard(filter)
            .on_progress(|did| bar.set_position(did.discarded));
        if let Some(limit) = self.target.limit {
            discard = discard.limit(limit);
        }
        let did = discard.await?;
        bar.finish_and_clear();
        let answer = DiscardAnswer {
            discarded: did.discarded,
            not_dead: self.target.missing(did.discarded),
        };
        match global.format() {
            Format::Json => output::json(&answer)?,
            Format::Table => {
                let mut text = format!("{} discarded", say::count(answer.discarded, "job"));
                if answer.not_dead > 0 {
                    text += &format!("; {} not among the dead", is(answer.not_dead));
                }
                output::text(&format!("{text}\n"));
            }
        }
        Ok(self.target.exit(answer.discarded, 0))
    }
}

impl Target {
    fn filter(&self, now: Timestamp) -> anyhow::Result<DeadFilter> {
        if !self.ids.is_empty() {
            return Ok(DeadFilter::new().ids(self.ids.iter().copied()));
        }
        if !self.all && self.which.is_empty() {
            return Err(mistake(
                "say which dead jobs: their ids, a filter such as --queue or --error, or --all for all of them",
            ));
        }
        self.which.to_dead_filter(now)
    }

    /// What it is about, before it is counted.
    fn describe(&self) -> String {
        if !self.ids.is_empty() {
            return say::count(self.ids.len() as u64, "dead job");
        }
        let most = self.limit.map_or_else(
            || "all".to_owned(),
            |n| format!("at most {}", say::number(n)),
        );
        match &self.which.queue {
            Some(queue) if self.which.is_at_most_a_queue() => {
                format!("{most} dead jobs of queue {queue}")
            }
            _ if self.which.is_empty() => format!("{most} dead jobs of all queues"),
            _ => format!("{most} dead jobs that fit"),
        }
    }

    /// How many jobs there are to do, where that is cheap to know.
    async fn total(&self, client: &Client) -> anyhow::Result<Option<u64>> {
        if !self.ids.is_empty() {
            return Ok(Some(self.ids.len() as u64));
        }
        if !self.which.is_at_most_a_queue() {
            return Ok(None);
        }
        let queues = match &self.which.queue {
            Some(name) => client.queue(name).await?.into_iter().collect(),
            None => client.queues().await?,
        };
        let capped = queues.iter().any(|q| q.capped);
        let dead = queues.iter().map(|q| q.dead).sum::<u64>();
        Ok((!capped).then(|| self.limit.map_or(dead, |limit| limit.min(dead))))
    }

    /// Of the ids given, how many were not met.
    fn missing(&self, met: u64) -> u64 {
        let given: BTreeSet<JobId> = self.ids.iter().copied().collect();
        (given.len() as u64).saturating_sub(met)
    }

    fn exit(&self, done: u64, duplicates: u64) -> Exit {
        let met = done + duplicates;
        if met == 0 {
            output::note("no dead job fits");
            Exit::NothingFound
        } else if done == 0 || !self.ids.is_empty() && (duplicates > 0 || self.missing(met) > 0) {
            Exit::Failure
        } else {
            Exit::Success
        }
    }

    /// What a dry run finds.
    async fn count(&self, client: &Client, now: Timestamp) -> anyhow::Result<DryAnswer> {
        let bar = progress::of("counting", None);
        let mut answer = DryAnswer {
            dry_run: true,
            jobs: 0,
            more: false,
            sample: Vec::new(),
        };
        for id in &self.ids {
            let job = client.job(*id).await?;
            if job.is_some_and(|job| job.state == JobState::Dead) {
                answer.add(*id);
            }
        }
        let filter = self.which.to_job_filter(now)?;
        let limit = self.limit.unwrap_or(COUNT_MAX).min(COUNT_MAX);
        let mut next = None;
        while self.ids.is_empty() {
            let mut page = filter.clone().limit(list::PAGE_MAX);
            if let Some(next) = next {
                page = page.after(next);
            }
            let found = client.jobs(&page).await?;
            found.jobs.iter().for_each(|job| answer.add(job.id));
            bar.set_position(answer.jobs);
            next = found.next;
            if next.is_none() || answer.jobs >= limit {
                answer.more = next.is_some() && self.limit.is_none();
                answer.jobs = answer.jobs.min(limit);
                break;
            }
        }
        bar.finish_and_clear();
        Ok(answer)
    }

    async fn show(
        &self,
        client: &Client,
        now: Timestamp,
        verb: &str,
        global: &Global,
    ) -> anyhow::Result<Exit> {
        let answer = self.count(client, now).await?;
        if global.format() == Format::Json {
            output::json(&answer)?;
        } else if answer.jobs > 0 {
            let ids: Vec<String> = answer.sample.iter().map(ToString::to_string).collect();
            let more = if answer.jobs > ids.len() as u64 {
                " …"
            } else {
                ""
            };
            output::text(&format!(
                "{}{} would be {verb}: {}{more}\n",
                if answer.more { "at least " } else { "" },
                say::count(answer.jobs, "dead job"),
                ids.join(" ")
            ));
        }
        if answer.jobs == 0 {
            output::note("no dead job fits");
            return Ok(Exit::NothingFound);
        }
        Ok(Exit::Success)
    }
}

fn is(n: u64) -> String {
    format!("{} {}", say::number(n), if n == 1 { "is" } else { "are" })
}

fn stay(n: u64) -> String {
    format!(
        "{} {}",
        say::number(n),
        if n == 1 { "stays" } else { "stay" }
    )
}
