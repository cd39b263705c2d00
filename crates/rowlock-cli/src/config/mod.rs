//! `rowlock config`: check, show and compare configurations without starting anything.

mod check;
mod diff;
mod show;

use clap::{Args, Subcommand};

use crate::Global;
use crate::exit::Exit;

/// Check, show and compare configurations of `rowlock work`.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock config check rowlock.toml\n  \
    rowlock config show rowlock.toml                      # each value, and where it comes from\n  \
    rowlock config diff staging.toml production.toml")]
pub(crate) struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(check::Check),
    Show(show::Show),
    Diff(diff::Diff),
}

impl Config {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        match self.command {
            Command::Check(check) => check.run(global),
            Command::Show(show) => show.run(global),
            Command::Diff(diff) => diff.run(global),
        }
    }
}
