//! The `rowlock` program: one file for each command.

// They panic when nobody reads, or the disk is full: `output` does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod archive;
mod backoff;
mod bench;
mod completions;
mod config;
mod confirm;
mod connect;
mod dead;
mod demo;
mod doctor;
mod enqueue;
mod exit;
mod jobs;
mod log;
mod man;
mod migrate;
mod nearest;
mod notify;
mod output;
mod pretty;
mod progress;
mod queues;
mod replay;
mod say;
mod serve;
mod settings;
mod style;
mod times;
mod tls;
mod top;
mod traces;
mod units;
mod why;
mod work;
mod workers;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use exit::Exit;
use output::Format;

/// Where the help of each command says what all of them take.
const EVERYWHERE: &str = "With every command";

/// The job queue for people who already run Postgres.
#[derive(Parser)]
#[command(
    name = "rowlock",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done; 1 failed, or what was compared differs; 2 a mistake in what was asked; \
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
    #[arg(long, global = true, help_heading = EVERYWHERE)]
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
    Completions(completions::Completions),
    Config(config::Config),
    Dead(dead::Dead),
    Demo(demo::Demo),
    Doctor(doctor::Doctor),
    Enqueue(enqueue::Enqueue),
    Jobs(jobs::Jobs),
    Man(man::Man),
    Migrate(migrate::Migrate),
    Queues(queues::Queues),
    Replay(replay::Replay),
    Top(top::Top),
    Why(why::Why),
    Work(work::Work),
    Workers(workers::Workers),
}

impl Command {
    async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        match self {
            Self::Archive(archive) => archive.run(global).await,
            Self::Bench(bench) => bench.run(global).await,
            Self::Completions(completions) => completions.run(),
            Self::Config(config) => config.run(global),
            Self::Dead(dead) => dead.run(global).await,
            Self::Demo(demo) => demo.run(global).await,
            Self::Doctor(doctor) => doctor.run(global).await,
            Self::Enqueue(enqueue) => enqueue.run(global).await,
            Self::Jobs(jobs) => jobs.run(global).await,
            Self::Man(man) => man.run(),
            Self::Migrate(migrate) => migrate.run(global).await,
            Self::Queues(queues) => queues.run(global).await,
            Self::Replay(replay) => replay.run(global).await,
            Self::Top(top) => top.run(global).await,
            Self::Why(why) => why.run(global).await,
            Self::Work(work) => work.run(global).await,
            Self::Workers(workers) => workers.run(global).await,
        }
    }

    /// Whether it has an answer that could be JSON.
    fn answers(&self) -> bool {
        match self {
            Self::Completions(_) | Self::Man(_) => false,
            Self::Migrate(migrate) => !migrate.is_script(),
            _ => true,
        }
    }

    /// Whether it starts the log itself, once it knows how.
    fn has_log_of_its_own(&self) -> bool {
        matches!(self, Self::Work(_))
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.global.json && !cli.command.answers() {
        refuse_idle_json();
    }
    if !cli.command.has_log_of_its_own() {
        log::errors_to_stderr();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(e) => return fail(&anyhow::Error::from(e).context("cannot start")),
    };
    match runtime.block_on(cli.command.run(&cli.global)) {
        Ok(exit) => exit.into(),
        Err(e) if nobody_reads(&e) => Exit::Success.into(),
        Err(e) => fail(&e),
    }
}

/// Whether it only could not be printed because the reader has seen enough: `rowlock … | head`.
fn nobody_reads(error: &anyhow::Error) -> bool {
    let kind = match error.downcast_ref::<serde_json::Error>() {
        Some(e) => e.io_error_kind(),
        None => error
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind),
    };
    kind == Some(std::io::ErrorKind::BrokenPipe)
}

/// Refuses `--json` where it could only be ignored.
fn refuse_idle_json() -> ! {
    let text = "--json is for commands that answer: this one prints a file for other programs\n";
    clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, text).exit()
}

/// One line for people, with the causes that the outer ones do not already tell.
fn fail(error: &anyhow::Error) -> ExitCode {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    // Where standard error is full or gone, there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "rowlock: {text}");
    exit::of(error).into()
}
