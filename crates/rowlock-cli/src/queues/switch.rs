//! `rowlock queues pause` and `resume`.

use clap::Args;
use rowlock::manage::QueueInfo;
use serde::Serialize;

use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::say;

/// Pause queues, or one kind in them: jobs still come in, those that run go on, but none is started.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock queues pause mail\n  \
    rowlock queues pause mail --kind newsletter\n  \
    rowlock queues pause --all")]
pub(super) struct Pause {
    #[command(flatten)]
    which: Which,
}

/// Let paused queues, or one kind in them, go on.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock queues resume mail\n  \
    rowlock queues resume mail --kind newsletter\n  \
    rowlock queues resume --all")]
pub(super) struct Resume {
    #[command(flatten)]
    which: Which,
}

#[derive(Args)]
struct Which {
    /// The queues.
    #[arg(value_name = "QUEUE", required_unless_present = "all")]
    names: Vec<String>,

    /// All queues there are.
    #[arg(long, conflicts_with = "names")]
    all: bool,

    /// Only this kind in them.
    #[arg(long, short, value_name = "NAME")]
    kind: Option<String>,
}

/// What became of one queue.
#[derive(Serialize)]
struct Switched {
    queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    paused: bool,
    /// Whether that is new.
    changed: bool,
}

/// What `pause` and `resume` answer with `--json`.
#[derive(Serialize)]
struct Answer {
    queues: Vec<Switched>,
}

impl Pause {
    pub(super) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        self.which.switch(true, global).await
    }
}

impl Resume {
    pub(super) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        self.which.switch(false, global).await
    }
}

impl Which {
    async fn switch(self, paused: bool, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let mut queues = Vec::new();
        if self.all {
            queues = client.queues().await?;
        }
        // All names are looked up before anything is done: a slip must not do half of it, nor make a queue.
        for name in &self.names {
            match super::find(&client, name).await? {
                Some(queue) => queues.push(queue),
                None => return Ok(Exit::NothingFound),
            }
        }
        let mut answer = Answer { queues: Vec::new() };
        for queue in &queues {
            match (&self.kind, paused) {
                (None, true) => client.pause(&queue.name).await?,
                (None, false) => client.resume(&queue.name).await?,
                (Some(kind), true) => client.pause_kind(&queue.name, kind).await?,
                (Some(kind), false) => client.resume_kind(&queue.name, kind).await?,
            }
            let was = match &self.kind {
                None => queue.paused,
                Some(kind) => queue.paused_kinds.contains(kind),
            };
            answer.queues.push(Switched {
                queue: queue.name.clone(),
                kind: self.kind.clone(),
                paused,
                changed: was != paused,
            });
        }
        if global.format() == Format::Json {
            output::json(&answer)?;
            return Ok(Exit::Success);
        }
        let lines: Vec<String> = queues
            .iter()
            .zip(&answer.queues)
            .map(|(queue, switched)| line(queue, switched))
            .collect();
        output::text(&lines.concat());
        Ok(Exit::Success)
    }
}

fn line(queue: &QueueInfo, did: &Switched) -> String {
    let what = match &did.kind {
        Some(kind) => format!("kind {kind} in queue {}", did.queue),
        None => format!("queue {}", did.queue),
    };
    match (did.paused, did.changed) {
        (true, true) if queue.running > 0 && did.kind.is_none() => {
            format!(
                "{what} is paused; {} still running\n",
                say::count(queue.running, "job")
            )
        }
        (true, true) => format!("{what} is paused\n"),
        (true, false) => format!("{what} was paused already\n"),
        // A paused queue holds its kinds back whatever they say.
        (false, _) if did.kind.is_some() && queue.paused => {
            format!("{what} would go on, but the queue itself is paused\n")
        }
        (false, true) if !queue.paused_kinds.is_empty() && did.kind.is_none() => format!(
            "{what} goes on; still paused in it: {}\n",
            queue.paused_kinds.join(", ")
        ),
        (false, true) => format!("{what} goes on\n"),
        (false, false) => format!("{what} was not paused\n"),
    }
}
