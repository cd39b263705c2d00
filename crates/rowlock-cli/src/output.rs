//! What the commands print: tables for people, JSON for programs.
//!
//! JSON is stable: fields are added, never renamed or taken away within a major version. On a terminal, tables fit its width;
//! elsewhere they are plain text without colours.

use std::io::{IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// How a reading command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Json,
}

/// Prints any value as JSON with a line break after it.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    text(&format!("{}\n", serde_json::to_string_pretty(value)?));
    Ok(())
}

/// Prints a text as it is. A reader that has seen enough, such as `head`, ends the program without a complaint.
pub(crate) fn text(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(e) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        if e.kind() != std::io::ErrorKind::BrokenPipe {
            note(&format!("cannot write the answer: {e}"));
            std::process::exit(1);
        }
        std::process::exit(0);
    }
}

/// Says something beside the answer, on standard error. Where that is full or gone, there is nobody to tell.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "rowlock: {text}");
}

/// As [`note`], where it is no remark but part of what is shown.
pub(crate) fn aside(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A table with these headings.
pub(crate) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(headings.to_vec());
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    } else {
        table
            .set_content_arrangement(ContentArrangement::Disabled)
            .force_no_tty();
    }
    table
}

/// Prints a table, or what to say when it is empty.
pub(crate) fn print_table(table: &Table, empty: &str) {
    if table.is_empty() {
        text(&format!("{empty}\n"));
    } else {
        text(&format!("{}\n", table.trim_fmt()));
    }
}
