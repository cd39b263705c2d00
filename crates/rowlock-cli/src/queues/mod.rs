//! `rowlock queues`: list, show, pause, resume, set, purge.

mod list;
mod purge;
mod set;
mod settings;
mod switch;

use clap::{Args, Subcommand};
use rowlock::Client;
use rowlock::manage::QueueInfo;

use crate::Global;
use crate::exit::Exit;
use crate::output;

/// Look at queues, pause and resume them, change their settings, empty them.
///
/// Without a further word it lists. Numbers stop at 10,000 and then end in +.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock queues\n  \
    rowlock queues show mail\n  \
    rowlock queues pause mail\n  \
    rowlock queues pause mail --kind newsletter\n  \
    rowlock queues set mail retention='3 days' lease=10s max-attempts=3 backoff=exponential:1s\n  \
    rowlock queues purge mail --state scheduled")]
pub(crate) struct Queues {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    List(list::List),
    Show(list::Show),
    Pause(switch::Pause),
    Resume(switch::Resume),
    Set(set::Set),
    Purge(purge::Purge),
}

impl Queues {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        match self.command {
            None => list::List {}.run(global).await,
            Some(Command::List(list)) => list.run(global).await,
            Some(Command::Show(show)) => show.run(global).await,
            Some(Command::Pause(pause)) => pause.run(global).await,
            Some(Command::Resume(resume)) => resume.run(global).await,
            Some(Command::Set(set)) => set.run(global).await,
            Some(Command::Purge(purge)) => purge.run(global).await,
        }
    }
}

/// A queue; if there is none of this name, that is said, with the names that there are.
async fn find(client: &Client, name: &str) -> anyhow::Result<Option<QueueInfo>> {
    let queue = client.queue(name).await?;
    if queue.is_none() {
        note_missing(client, name).await?;
    }
    Ok(queue)
}

/// Where nothing was found: says so if a queue was named that there is not, for then that is why.
pub(crate) async fn note_unknown(client: &Client, name: Option<&str>) -> anyhow::Result<()> {
    match name {
        Some(name) if client.queue(name).await?.is_none() => note_missing(client, name).await,
        _ => Ok(()),
    }
}

async fn note_missing(client: &Client, name: &str) -> anyhow::Result<()> {
    let mut names: Vec<String> = client.queues().await?.into_iter().map(|q| q.name).collect();
    // The likeliest first.
    names.sort_by_key(|known| strsim::osa_distance(known, name));
    let known = match names.as_slice() {
        [] => "there are none yet".to_owned(),
        [only] => format!("there is only {only}"),
        names => {
            let more = if names.len() > 5 { ", …" } else { "" };
            let first: Vec<&str> = names.iter().take(5).map(String::as_str).collect();
            format!("there are {}{more}", first.join(", "))
        }
    };
    output::note(&format!("there is no queue {name:?}; {known}"));
    Ok(())
}
