//! `rowlock completions`: what a shell needs to complete commands and flags.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::exit::Exit;
use crate::output;

/// Print completions for a shell.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock completions bash > ~/.local/share/bash-completion/completions/rowlock\n  \
    rowlock completions zsh > ~/.zfunc/_rowlock\n  \
    rowlock completions fish > ~/.config/fish/completions/rowlock.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "rowlock", &mut script);
        output::text(&String::from_utf8(script)?);
        Ok(Exit::Success)
    }
}
