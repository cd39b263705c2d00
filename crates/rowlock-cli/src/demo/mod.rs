//! `rowlock demo`: a queue at work, on a private Postgres unless a database is given.

mod screen;
mod workload;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use rowlock::{Client, ConnInfo, WorkerHandle};
use rowlock_testkit::PrivatePostgres;

use serde::Serialize;

use crate::Global;
use crate::exit::{Exit, mistake};
use crate::output::{self, Format};
use screen::Screen;

/// Watch a queue at work: emails, reports, a flaky job that retries, one that dies.
///
/// With no database given, starts a PostgreSQL of its own in a data directory and stops it at the end. The server's programs (initdb,
/// postgres) must be installed.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock demo\n  \
    rowlock demo --duration 15s       # ends by itself, with a summary\n  \
    rowlock demo --duration 15s --json\n  \
    rowlock demo --fresh              # forget what earlier demos left\n  \
    rowlock demo -d postgres://localhost/scratch")]
pub(crate) struct Demo {
    /// End by itself after this long, such as 15s or 2m.
    #[arg(long, value_parser = crate::times::span, value_name = "TIME")]
    duration: Option<Duration>,

    /// Start over with an empty database. Only for the demo's own server.
    #[arg(long)]
    fresh: bool,

    /// Where the demo's own server keeps its data.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Jobs per second.
    #[arg(
        long,
        default_value_t = 20.0,
        value_name = "N",
        allow_negative_numbers = true
    )]
    rate: f64,
}

impl Demo {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let database = &global.database;
        if !(self.rate > 0.0 && self.rate <= 10_000.0) {
            return Err(mistake(format!(
                "--rate must be above 0 and at most 10000, not {}",
                self.rate
            )));
        }
        let (server, info) = match &database.database {
            Some(text) => {
                if self.fresh {
                    return Err(mistake(
                        "--fresh would empty the database you gave; it is only for the demo's own server",
                    ));
                }
                let info = ConnInfo::parse(text)?;
                output::aside(&format!("working in the database that was given: {info}"));
                (None, info)
            }
            None => {
                let server = self.start_server()?;
                let info = ConnInfo::parse(&server.url("postgres"))?;
                (Some(server), info)
            }
        };
        let client = database.client_of(info)?;
        client.migrate().await?;

        let worker = workload::worker(&client)?.start().await?;
        let producer = tokio::spawn(workload::produce(client.clone(), self.rate));
        let shown = self.show(&client, &worker, global.format()).await;

        producer.abort();
        output::aside("\nfinishing what runs …");
        let stopped = worker.shutdown().await;
        let summary = Summary::of(&client, &worker).await;
        if let Some(mut server) = server {
            server
                .stop()
                .context("cannot stop the private PostgreSQL")?;
        }
        shown?;
        summary?.print(global.format())?;
        anyhow::ensure!(
            stopped.unsettled == 0,
            "{} jobs could not be settled",
            stopped.unsettled
        );
        anyhow::ensure!(stopped.handled > 0, "not a single job ran");
        Ok(Exit::Success)
    }

    fn start_server(&self) -> anyhow::Result<PrivatePostgres> {
        let dir = match &self.data_dir {
            Some(dir) => dir.clone(),
            None => default_data_dir(),
        };
        let began = Instant::now();
        let server = PrivatePostgres::builder()
            .data_dir(&dir)
            .fresh(self.fresh)
            .start()?;
        let url = server.url("postgres");
        output::aside(&format!(
            "PostgreSQL {} started in {} ({:.1} s)\n  \
             look inside:  psql '{url}'\n  \
             watch it:     rowlock top -d '{url}'",
            server.version(),
            dir.display(),
            began.elapsed().as_secs_f64()
        ));
        Ok(server)
    }

    /// Shows the queue until the time is up or somebody has seen enough.
    async fn show(
        &self,
        client: &Client,
        worker: &WorkerHandle,
        format: Format,
    ) -> anyhow::Result<()> {
        let until = self.duration.map(|d| tokio::time::Instant::now() + d);
        let mut screen = Screen::new(std::io::stdout().is_terminal());
        output::aside("Ctrl-C ends it\n");
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        // One future for the whole show: a new one each second would miss what comes in between.
        let interrupted = interrupted();
        tokio::pin!(interrupted);
        loop {
            tokio::select! {
                // With --json there is nothing but the summary.
                _ = tick.tick(), if format == Format::Table => screen.draw(client, worker).await?,
                () = &mut interrupted => return Ok(()),
                () = end_of(until) => return Ok(()),
            }
        }
    }
}

/// Waits for Ctrl-C or a request to end.
pub(crate) async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}

async fn end_of(until: Option<tokio::time::Instant>) {
    match until {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// How it went; what `rowlock demo` answers with `--json`.
#[derive(Serialize)]
struct Summary {
    /// Attempts that ended, in this run.
    handled: u64,
    /// Jobs that finished in the last hour.
    finished: u64,
    /// Jobs that are ready or scheduled.
    waiting: u64,
    dead: u64,
}

impl Summary {
    async fn of(client: &Client, worker: &WorkerHandle) -> anyhow::Result<Self> {
        let counts = screen::counts(client).await?;
        let total = |pick: fn(&screen::QueueLine) -> u64| counts.iter().map(pick).sum::<u64>();
        Ok(Self {
            handled: worker.handled(),
            finished: total(|q| q.finished),
            waiting: total(|q| q.ready + q.scheduled),
            dead: total(|q| q.dead),
        })
    }

    fn print(&self, format: Format) -> anyhow::Result<()> {
        if format == Format::Json {
            return output::json(self);
        }
        output::text(&format!(
            "{} attempts handled; {} jobs in the history, {} waiting or scheduled, {} dead\n",
            self.handled, self.finished, self.waiting, self.dead
        ));
        Ok(())
    }
}

/// Under the user's data directory; for root, whose home the server's own user cannot enter, under /var/tmp.
fn default_data_dir() -> PathBuf {
    let home = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".local/share")));
    match home {
        Some(home) if !home.starts_with("/root") => home.join("rowlock/demo"),
        _ => PathBuf::from("/var/tmp/rowlock-demo"),
    }
}
