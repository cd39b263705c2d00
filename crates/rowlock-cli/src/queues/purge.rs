//! `rowlock queues purge`: delete what waits in a queue.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rowlock::manage::{JobState, QueueInfo};

use crate::Global;
use crate::confirm::confirm;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::{progress, say};

/// Delete the waiting jobs of a queue for good, without a trace. Running ones are left alone.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock queues purge mail\n  \
    rowlock queues purge mail --kind newsletter --state scheduled --yes\n\n\
    To stop jobs but keep them in the history, see `rowlock jobs cancel`.")]
pub(super) struct Purge {
    /// The queue.
    name: String,

    /// Only jobs of this kind.
    #[arg(long, short, value_name = "NAME")]
    kind: Option<String>,

    /// Only ready, or only scheduled jobs.
    #[arg(long, short, value_name = "STATE", value_parser = waiting_state())]
    state: Option<JobState>,

    /// At most so many jobs, those that would have run first.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

fn waiting_state() -> impl TypedValueParser<Value = JobState> {
    PossibleValuesParser::new(["ready", "scheduled"]).try_map(|text| text.parse::<JobState>())
}

impl Purge {
    pub(super) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let Some(queue) = super::find(&client, &self.name).await? else {
            return Ok(Exit::NothingFound);
        };
        confirm(&self.describe(&queue), self.yes)?;
        let known = self.kind.is_none() && !queue.capped;
        let bar = progress::of("purging", known.then(|| self.waiting(&queue)));
        let mut purge = client
            .purge(&self.name)
            .on_progress(|did| bar.set_position(did.purged));
        if let Some(kind) = &self.kind {
            purge = purge.kind(kind);
        }
        if let Some(state) = self.state {
            purge = purge.state(state);
        }
        if let Some(limit) = self.limit {
            purge = purge.limit(limit);
        }
        let did = purge.await?;
        bar.finish_and_clear();
        match global.format() {
            Format::Json => output::json(&did)?,
            Format::Table => output::text(&format!("{} purged\n", say::count(did.purged, "job"))),
        }
        Ok(if did.purged == 0 {
            Exit::NothingFound
        } else {
            Exit::Success
        })
    }

    /// How many jobs wait, as far as they were counted.
    fn waiting(&self, queue: &QueueInfo) -> u64 {
        let waiting = match self.state {
            Some(JobState::Ready) => queue.ready,
            Some(_) => queue.scheduled,
            None => queue.ready + queue.scheduled,
        };
        self.limit.map_or(waiting, |limit| limit.min(waiting))
    }

    fn describe(&self, queue: &QueueInfo) -> String {
        let state = self.state.map_or("waiting", JobState::as_str);
        let of = match &self.kind {
            Some(kind) => format!("of kind {kind} in queue {}", self.name),
            None => format!("of queue {}", self.name),
        };
        let jobs = match (&self.kind, queue.capped) {
            // How many are of that kind is not counted.
            (Some(_), _) => format!("all {state} jobs {of}"),
            (None, true) => format!(
                "at least {} {state} jobs {of}",
                say::number(self.waiting(queue))
            ),
            (None, false) => format!(
                "{} {of}",
                say::count(self.waiting(queue), &format!("{state} job"))
            ),
        };
        format!("delete {jobs} for good")
    }
}
