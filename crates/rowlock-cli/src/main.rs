//! The `rowlock` program: one file for each command.

mod connect;
mod demo;
mod migrate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The job queue for people who already run Postgres.
#[derive(Parser)]
#[command(
    name = "rowlock",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    database: connect::Database,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Demo),
    Migrate(migrate::Migrate),
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
    let result = runtime.block_on(async {
        match cli.command {
            Command::Demo(demo) => demo.run(&cli.database).await,
            Command::Migrate(migrate) => migrate.run(&cli.database).await,
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
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
    ExitCode::FAILURE
}

/// Logs go to standard error, warnings and worse unless `RUST_LOG` says otherwise.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}
