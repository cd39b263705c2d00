//! `rowlock top`: the queues, live, in a terminal.
//!
//! Three parts: `snapshot` asks the database, `app` is what is shown and what keys do to it (pure), `view` draws it. This file connects them: one
//! loop that waits for a key, for news, or for the end.

mod app;
mod snapshot;
mod text;
mod view;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use ratatui::crossterm::event::{self, Event};
use rowlock::Client;
use tokio::sync::mpsc;

use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::times;
use app::{Action, App};
use snapshot::Snapshot;

/// A question that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Watch the queues live: rates, depths, waiting and running times, running jobs, failures.
///
/// Keys: arrows or j/k select, Tab goes to the next part, Enter inspects, p pauses or resumes the queue, r retries the job, ? helps,
/// q quits.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock top\n  \
    rowlock top --interval 5s\n  \
    rowlock top --once                # one plain snapshot, for a ticket or a script\n  \
    rowlock top --once --json")]
pub(crate) struct Top {
    /// Print one snapshot and end. Needs no terminal.
    #[arg(long)]
    once: bool,

    /// How often to look; less often by itself when the database takes long to answer.
    #[arg(long, default_value = "1s", value_parser = times::span, value_name = "TIME")]
    interval: Duration,
}

/// What the loop waits for, beside keys.
enum News {
    Snapshot(Box<Snapshot>),
    /// The database could not be asked.
    Lost(String),
    /// What became of an action.
    Did(Result<String, String>),
    /// A job, to be looked at.
    Job(String),
}

impl Top {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        if self.once || global.json {
            let snapshot = Snapshot::take(&client).await?;
            match global.format() {
                Format::Json => output::json(&snapshot)?,
                Format::Table => output::text(&text::plain(&snapshot)),
            }
            return Ok(Exit::Success);
        }
        anyhow::ensure!(
            std::io::stdout().is_terminal() && std::io::stdin().is_terminal(),
            "top needs a terminal, and this is none: use --once for one plain snapshot"
        );
        // A wrong address or a missing schema is better said before the screen is taken.
        let first = Snapshot::take(&client).await?;
        let place = format!("{} {}", client.conninfo(), client.schema());
        let mut terminal = ratatui::try_init()?;
        let shown = show(&mut terminal, client, App::new(place, first), self.interval).await;
        ratatui::restore();
        shown?;
        Ok(Exit::Success)
    }
}

async fn show(
    terminal: &mut ratatui::DefaultTerminal,
    client: Client,
    mut app: App,
    interval: Duration,
) -> anyhow::Result<()> {
    let (told, mut news) = mpsc::channel(16);
    let looking = tokio::spawn(look(client.clone(), interval, told.clone()));
    let mut keys = keys();
    let mut ended = std::pin::pin!(ended());
    loop {
        terminal.draw(|frame| view::draw(frame, &mut app))?;
        tokio::select! {
            event = keys.recv() => match event {
                Some(Event::Key(key)) => match app.key(key) {
                    Some(Action::Quit) => break,
                    Some(action) => {
                        tokio::spawn(act(client.clone(), action, told.clone()));
                    }
                    None => {}
                },
                // The size has changed: draw anew.
                Some(_) => {}
                None => break,
            },
            Some(news) = news.recv() => match news {
                News::Snapshot(snapshot) => app.update(*snapshot),
                News::Lost(why) => app.lost(why),
                News::Did(answer) => app.did(answer),
                News::Job(text) => app.inspect(text),
            },
            () = &mut ended => break,
        }
    }
    looking.abort();
    Ok(())
}

/// Looks again and again, also after it failed. What takes long is asked for less often: at most a quarter of the time.
async fn look(client: Client, interval: Duration, told: mpsc::Sender<News>) {
    loop {
        let began = tokio::time::Instant::now();
        let news = match tokio::time::timeout(PATIENCE, Snapshot::take(&client)).await {
            Ok(Ok(snapshot)) => News::Snapshot(Box::new(snapshot)),
            Ok(Err(e)) => News::Lost(e.to_string()),
            Err(_) => News::Lost(format!("the database has not answered for {PATIENCE:?}")),
        };
        if told.send(news).await.is_err() {
            return;
        }
        tokio::time::sleep(interval.max(began.elapsed() * 3)).await;
    }
}

async fn act(client: Client, action: Action, told: mpsc::Sender<News>) {
    let news = match tokio::time::timeout(PATIENCE, text::act(&client, action)).await {
        Ok(Ok(news)) => news,
        Ok(Err(e)) => News::Did(Err(e.to_string())),
        Err(_) => News::Did(Err(format!("no answer within {PATIENCE:?}"))),
    };
    let _ = told.send(news).await;
}

/// Keys, from a thread of their own: the terminal can only be waited for by blocking.
fn keys() -> mpsc::Receiver<Event> {
    let (told, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if told.blocking_send(event).is_err() {
                return;
            }
        }
    });
    keys
}

/// Somebody ends the program from outside: the terminal has to be given back first.
async fn ended() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = [SignalKind::terminate(), SignalKind::hangup()].map(signal);
        if let [Ok(mut terminate), Ok(mut hangup)] = signals {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            return;
        }
    }
    std::future::pending::<()>().await;
}
