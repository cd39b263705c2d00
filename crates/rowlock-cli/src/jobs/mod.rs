//! `rowlock jobs`: list, show, retry, cancel, delete.

mod change;
pub(crate) mod filter;
pub(crate) mod list;
pub(crate) mod show;

use clap::{Args, Subcommand};
use rowlock::JobId;

use crate::Global;
use crate::exit::Exit;

/// Look at jobs, and retry, cancel or delete them.
///
/// Without a further word it lists, newest first.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock jobs                                        # the newest, of all queues\n  \
    rowlock jobs --queue mail --state running\n  \
    rowlock jobs --state dead --error 'connection refused' --newer-than 2h\n  \
    rowlock jobs --payload user.id=7 --json\n  \
    rowlock jobs show 4711\n  \
    rowlock jobs retry --queue mail --error timeout --dry-run\n  \
    rowlock jobs cancel 4711 4712")]
pub(crate) struct Jobs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: list::List,
}

#[derive(Subcommand)]
enum Command {
    List(list::List),
    Show(show::Show),
    Retry(change::Retry),
    Cancel(change::Cancel),
    Delete(change::Delete),
}

/// An id on the command line.
pub(crate) fn id(text: &str) -> Result<JobId, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is no job id: ids are whole numbers, as `rowlock jobs` lists them")
    })
}

impl Jobs {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        if self.command.is_some() && !self.list.is_plain() {
            list::refuse_early_filter("jobs retry --queue mail");
        }
        match self.command {
            None => self.list.run(global).await,
            Some(Command::List(list)) => list.run(global).await,
            Some(Command::Show(show)) => show.run(global).await,
            Some(Command::Retry(retry)) => retry.run(global).await,
            Some(Command::Cancel(cancel)) => cancel.run(global).await,
            Some(Command::Delete(delete)) => delete.run(global).await,
        }
    }
}
