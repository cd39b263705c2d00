//! Lines to and from the harness: `ready PHASE` out, `go` in, one JSON object out, as often as there are phases.

use std::io::Write;

use anyhow::{Result, ensure};
use serde_json::Value;

/// Says that a phase can begin and waits for the word.
pub(crate) async fn ready(phase: &str) -> Result<()> {
    say(&format!("ready {phase}"))?;
    let line = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    })
    .await??;
    ensure!(line.trim() == "go", "expected `go`, not {:?}", line.trim());
    Ok(())
}

pub(crate) fn result(value: &Value) -> Result<()> {
    say(&value.to_string())
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
