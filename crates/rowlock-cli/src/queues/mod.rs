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
    if let Some(queue) = client.queue(name).await? {
        return Ok(Some(queue));
    }
    let mut names: Vec<String> = client.queues().await?.into_iter().map(|q| q.name).collect();
    names.sort_by_key(|known| distance(known, name));
    let known = match names.as_slice() {
        [] => "there are none yet".to_owned(),
        names => {
            let more = if names.len() > 5 { ", …" } else { "" };
            let first: Vec<&str> = names.iter().take(5).map(String::as_str).collect();
            format!("there are {}{more}", first.join(", "))
        }
    };
    eprintln!("rowlock: there is no queue {name:?}; {known}");
    Ok(None)
}

/// How many letters have to be changed to make one name of the other: the likeliest is named first.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distances() {
        assert_eq!(distance("mail", "mail"), 0);
        assert_eq!(distance("mail", "mial"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("reports", "report"), 1);
    }
}
