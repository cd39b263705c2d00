//! `rowlock config`: check, show and compare configurations without starting anything.

mod check;
mod diff;
mod show;

use clap::{Args, Subcommand};

use crate::Global;
use crate::exit::Exit;

/// Check, show and compare configurations of `rowlock work`.
#[derive(Args)]
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
