//! Asking before anything is destroyed.

use std::io::{IsTerminal, Write};

/// Asks whether to go on. Without a terminal nobody can answer, so `--yes` is needed there.
pub(crate) fn confirm(what: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    anyhow::ensure!(
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal(),
        "this would {what}; nobody is there to ask, so say --yes if that is meant"
    );
    write!(std::io::stderr(), "This will {what}. Go on? [y/N] ")?;
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    anyhow::ensure!(
        matches!(answer.trim(), "y" | "Y" | "yes"),
        "nothing was changed"
    );
    Ok(())
}
