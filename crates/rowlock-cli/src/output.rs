//! What the commands print: tables for people, JSON for programs.
//!
//! JSON is stable: fields are added, never renamed or taken away within a major version. On a terminal, tables fit its width;
//! elsewhere they are plain text without colours. Where a terminal is too narrow for a table, its rows stand one below the other.

use std::io::{IsTerminal, Write};

use comfy_table::{Cell, ContentArrangement, Row, Table, presets};
use serde::Serialize;

use crate::style::{Tone, paint};

/// On a terminal narrower than this, a table that does not fit is shown row by row.
const TABLE_COLUMNS_MIN: u16 = 80;

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
    } else if table.is_tty() && table.width().is_some_and(|width| is_cramped(table, width)) {
        text(&cards(table));
    } else {
        text(&format!("{}\n", table.trim_fmt()));
    }
}

/// Whether a table would have to break its words to fit a narrow terminal. A wide one wraps a long cell or two, which is still a table.
fn is_cramped(table: &Table, width: u16) -> bool {
    let mut plain = table.clone();
    plain
        .force_no_tty()
        .set_content_arrangement(ContentArrangement::Disabled);
    let widest = plain.lines().map(|line| line.trim_end().chars().count());
    width < TABLE_COLUMNS_MIN && widest.max().unwrap_or(0) > usize::from(width)
}

/// The rows one below the other, each a line for every cell that has something in it.
fn cards(table: &Table) -> String {
    let names: Vec<String> = table
        .header()
        .map(|row| row.cell_iter().map(Cell::content).collect())
        .unwrap_or_default();
    let longest = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    let card = |row: &Row| {
        let cells = row.cell_iter().zip(&names);
        let filled = cells.filter(|(cell, _)| !cell.content().is_empty());
        filled
            .map(|(cell, name)| {
                let name = paint(format_args!("{name:<longest$}"), Tone::Dim);
                format!("{name}  {}\n", cell.content())
            })
            .collect::<String>()
    };
    let cards: Vec<String> = table.row_iter().map(card).collect();
    cards.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs() -> Table {
        let mut table = table(&["id", "state", "remark"]);
        table
            .add_row(["7", "dead", "connection refused by the mail server"])
            .add_row(["8", "done", ""]);
        table
    }

    #[test]
    fn narrow_terminals_get_cards() {
        assert!(is_cramped(&jobs(), 40));
        assert!(!is_cramped(&jobs(), 60));
        assert!(!is_cramped(&jobs(), 80));
        assert_eq!(
            cards(&jobs()),
            "id      7\nstate   dead\nremark  connection refused by the mail server\n\nid      8\nstate   done\n"
        );
    }
}
