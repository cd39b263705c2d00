//! `rowlock dead`: dead letters: list, show, redrive, discard.

mod change;
mod which;

use clap::{Args, Subcommand};

use crate::Global;
use crate::exit::Exit;
use crate::jobs::{list, show};
use crate::queues;
use which::Which;

/// Look at dead letters, and redrive or discard them.
///
/// Without a further word it lists, the latest first. Dead jobs are kept until somebody redrives or discards them.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock dead --queue mail\n  \
    rowlock dead show 4711\n  \
    rowlock dead redrive --queue mail --error timeout --limit 10      # try a few first\n  \
    rowlock dead redrive --queue mail --rate 50                       # 50 a second\n  \
    rowlock dead discard --reason poison --older-than 30d --yes")]
pub(crate) struct Dead {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: List,
}

#[derive(Subcommand)]
enum Command {
    List(List),
    Show(show::Show),
    Redrive(change::Redrive),
    Discard(change::Discard),
}

/// List dead jobs, the latest first.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock dead list --queue mail --newer-than 2h\n  \
    rowlock dead list --error 'connection refused' --json | jq -r '.jobs[].id'")]
struct List {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    page: list::Page,
}

impl Dead {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        if self.command.is_some() && !(self.list.which.is_empty() && self.list.page.is_plain()) {
            list::refuse_early_filter("dead redrive --queue mail");
        }
        match self.command {
            None => self.list.run(global).await,
            Some(Command::List(list)) => list.run(global).await,
            Some(Command::Show(show)) => show.run(global).await,
            Some(Command::Redrive(redrive)) => redrive.run(global).await,
            Some(Command::Discard(discard)) => discard.run(global).await,
        }
    }
}

impl List {
    async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        let now = client.clock().await?;
        let filter = self.which.to_job_filter(now)?;
        let listed = list::list(&client, filter, self.page).await?;
        if listed.is_empty() {
            queues::note_unknown(&client, self.which.queue.as_deref()).await?;
        }
        listed.print(global.format(), now, "no dead job fits")
    }
}
