//! `rowlock man`: the manual pages, one for each command.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

use crate::Cli;
use crate::exit::Exit;

/// Write the manual pages into a directory: rowlock.1, rowlock-work.1, and so on.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock man ~/.local/share/man/man1 && man rowlock-work")]
pub(crate) struct Man {
    /// Where to; made if it is not there.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Man {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let doing = || format!("cannot write manual pages to {}", self.dir.display());
        std::fs::create_dir_all(&self.dir).with_context(doing)?;
        clap_mangen::generate_to(Cli::command(), &self.dir).with_context(doing)?;
        Ok(Exit::Success)
    }
}
