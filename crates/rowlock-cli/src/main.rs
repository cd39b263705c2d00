//! The `rowlock` program: one file for each command.

mod archive;
mod bench;
mod confirm;
mod connect;
mod dead;
mod demo;
mod doctor;
mod duration;
mod exit;
mod jobs;
mod migrate;
mod output;
mod pretty;
mod progress;
mod queues;
mod replay;
mod say;
mod style;
mod times;
mod top;
mod why;
mod workers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use exit::Exit;
use output::Format;

/// The job queue for people who already run Postgres.
#[derive(Parser)]
#[command(
    name = "rowlock",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done; 1 failed, or what was compared differs; 2 a mistake in the command line; \
                  3 nothing found; doctor: 10 warnings, 20 critical."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(clap::Args, Clone)]
struct Global {
    #[command(flatten)]
    database: connect::Database,

    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    json: bool,
}

impl Global {
    fn format(&self) -> Format {
        if self.json {
            Format::Json
        } else {
            Format::Table
        }
    }
}

#[derive(Subcommand)]
enum Command {
    Archive(archive::Archive),
    Bench(bench::Bench),
    Dead(dead::Dead),
    Demo(demo::Demo),
    Doctor(doctor::Doctor),
    Jobs(jobs::Jobs),
    Migrate(migrate::Migrate),
    Queues(queues::Queues),
    Replay(replay::Replay),
    Top(top::Top),
    Why(why::Why),
    Workers(workers::Workers),
}

impl Command {
    async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        match self {
            Self::Archive(archive) => archive.run(global).await,
            Self::Bench(bench) => bench.run(global).await,
            Self::Dead(dead) => dead.run(global).await,
            Self::Demo(demo) => demo.run(&global.database).await,
            Self::Doctor(doctor) => doctor.run(global).await,
            Self::Jobs(jobs) => jobs.run(global).await,
            Self::Migrate(migrate) => migrate.run(global).await,
            Self::Queues(queues) => queues.run(global).await,
            Self::Replay(replay) => replay.run(global).await,
            Self::Top(top) => top.run(global).await,
            Self::Why(why) => why.run(global).await,
            Self::Workers(workers) => workers.run(global).await,
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(e) => return fail(&anyhow::Error::from(e).context("cannot start")),
    };
    match runtime.block_on(cli.command.run(&cli.global)) {
        Ok(exit) => exit.into(),
        Err(e) => fail(&e),
    }
}

/// One line for people, with the causes that the outer ones do not already tell.
fn fail(error: &anyhow::Error) -> ExitCode {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    eprintln!("rowlock: {text}");
    Exit::Failure.into()
}

/// Logs go to standard error, errors only unless `RUST_LOG` says otherwise.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}
