//! `rowlock replay`: run finished jobs of a window again, as copies.

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use rowlock::Client;
use rowlock::manage::{JobFilter, JobState};
use serde::Serialize;

use crate::Global;
use crate::confirm::confirm;
use crate::exit::Exit;
use crate::jobs::list;
use crate::output::{self, Format};
use crate::times::{self, Moment};
use crate::{progress, say};

/// Jobs that a dry run counts; beyond that it says "at least".
const COUNT_MAX: u64 = 100_000;

/// Run finished jobs of a window of time again, as copies; their metadata says replay_of.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock replay mail --since 2h --dry-run\n  \
    rowlock replay mail --since 2030-01-31T12:00 --until 2030-01-31T12:30 --kind receipt --rate 50\n  \
    rowlock replay mail --since 1d --outcome cancelled --yes\n\n\
    A job whose unique key is taken by a live job is not copied. Dead jobs: see `rowlock dead redrive`. Exits with 3 when no job fits.")]
pub(crate) struct Replay {
    /// The queue.
    queue: String,

    /// Where the window begins: how long ago (2h), or when (2030-01-31T12:00, in UTC).
    #[arg(long, value_name = "TIME", value_parser = times::moment)]
    since: Moment,

    /// Where it ends; now, by default.
    #[arg(long, value_name = "TIME", value_parser = times::moment)]
    until: Option<Moment>,

    /// Only jobs of this kind.
    #[arg(long, short, value_name = "NAME")]
    kind: Option<String>,

    /// Jobs that ended so.
    #[arg(long, value_enum, default_value_t = Outcome::Done)]
    outcome: Outcome,

    /// Spread them out: so many become due each second. Without it all are due at once.
    #[arg(long, value_name = "JOBS_PER_SECOND", allow_negative_numbers = true)]
    rate: Option<f64>,

    /// When the first of them is due, such as 2030-01-31T06:00 (UTC); now, by default.
    #[arg(long, value_name = "TIME", value_parser = times::moment)]
    start_at: Option<Moment>,

    /// At most so many jobs, those that finished first.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    /// Only say how many it would be.
    #[arg(long)]
    dry_run: bool,

    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Outcome {
    Done,
    Cancelled,
    Expired,
    Any,
}

impl Outcome {
    fn states(self) -> Vec<JobState> {
        match self {
            Self::Done => vec![JobState::Done],
            Self::Cancelled => vec![JobState::Cancelled],
            Self::Expired => vec![JobState::Expired],
            Self::Any => vec![JobState::Done, JobState::Cancelled, JobState::Expired],
        }
    }
}

/// What `rowlock replay --dry-run` answers with `--json`.
#[derive(Serialize)]
struct DryAnswer {
    dry_run: bool,
    jobs: u64,
    /// Whether there are more than were counted.
    more: bool,
}

impl Replay {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let now = client.clock().await?;
        let since = self.since.from(now)?;
        let until = self.until.map(|until| until.from(now)).transpose()?;
        if self.dry_run {
            return self
                .show(&client, since, until.unwrap_or(now), global)
                .await;
        }
        confirm(&self.describe(since, until.unwrap_or(now)), self.yes)?;
        let bar = progress::of("replaying", None);
        let mut replay = client
            .replay(&self.queue, since)
            .finished_before(until.unwrap_or(now))
            .on_progress(|did| bar.set_position(did.replayed));
        replay = match self.outcome.states().as_slice() {
            [one] => replay.outcome(*one),
            _ => replay.any_outcome(),
        };
        if let Some(kind) = &self.kind {
            replay = replay.kind(kind);
        }
        if let Some(rate) = self.rate {
            replay = replay.rate(rate);
        }
        if let Some(at) = self.start_at {
            replay = replay.start_at(at.from(now)?);
        }
        if let Some(limit) = self.limit {
            replay = replay.limit(limit);
        }
        let did = replay.await?;
        bar.finish_and_clear();
        if global.format() == Format::Json {
            output::json(&did)?;
        } else {
            let mut text = format!("{} enqueued again", say::count(did.replayed, "job"));
            if let (Some(rate), true) = (self.rate, did.replayed > 1) {
                let last = jiff::SignedDuration::from_secs_f64((did.replayed - 1) as f64 / rate);
                text += &format!(", the last of them due in {}", say::span(last));
            }
            if did.duplicates > 0 {
                text += &format!(
                    "; {} not, because a live job has the same unique key",
                    say::number(did.duplicates)
                );
            }
            output::text(&format!("{text}\n"));
        }
        Ok(match (did.replayed, did.duplicates) {
            (0, 0) => Exit::NothingFound,
            (0, _) => Exit::Failure,
            _ => Exit::Success,
        })
    }

    fn describe(&self, since: Timestamp, until: Timestamp) -> String {
        let most = self
            .limit
            .map_or("all".to_owned(), |n| format!("at most {}", say::number(n)));
        let kind = self
            .kind
            .as_ref()
            .map_or(String::new(), |k| format!(" of kind {k}"));
        format!(
            "run {most} jobs{kind} of queue {} again that ended from {} to {}",
            self.queue,
            say::moment(since),
            say::moment(until)
        )
    }

    async fn show(
        &self,
        client: &Client,
        since: Timestamp,
        until: Timestamp,
        global: &Global,
    ) -> anyhow::Result<Exit> {
        let mut filter = JobFilter::new()
            .states(self.outcome.states())
            .queue(&self.queue)
            .ended_after(since)
            .ended_before(until)
            .limit(list::PAGE_MAX);
        if let Some(kind) = &self.kind {
            filter = filter.kind(kind);
        }
        let limit = self.limit.unwrap_or(COUNT_MAX).min(COUNT_MAX);
        let bar = progress::of("counting", None);
        let (mut jobs, mut next) = (0, None);
        loop {
            let page = match next.take() {
                Some(next) => filter.clone().after(next),
                None => filter.clone(),
            };
            let found = client.jobs(&page).await?;
            jobs += found.jobs.len() as u64;
            next = found.next;
            bar.set_position(jobs);
            if next.is_none() || jobs >= limit {
                break;
            }
        }
        bar.finish_and_clear();
        let answer = DryAnswer {
            dry_run: true,
            jobs: jobs.min(limit),
            more: next.is_some() && self.limit.is_none(),
        };
        match global.format() {
            Format::Json => output::json(&answer)?,
            Format::Table => output::text(&format!(
                "{}{} would be enqueued again\n",
                if answer.more { "at least " } else { "" },
                say::count(answer.jobs, "job")
            )),
        }
        Ok(if jobs == 0 {
            Exit::NothingFound
        } else {
            Exit::Success
        })
    }
}
