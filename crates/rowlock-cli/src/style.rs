//! Colours, on a terminal and nowhere else. `NO_COLOR` turns them off.

use std::io::IsTerminal;

use comfy_table::{Attribute, Cell, CellAlignment, Color};
use rowlock::manage::JobState;

/// What a colour means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Busy,
    Warn,
    Bad,
    Dim,
    Strong,
}

/// Whether standard output takes colours.
pub(crate) fn on() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// A text for standard output.
pub(crate) fn paint(text: impl std::fmt::Display, tone: Tone) -> String {
    let code = match tone {
        _ if !on() => return text.to_string(),
        Tone::Plain => return text.to_string(),
        Tone::Good => "32",
        Tone::Busy => "36",
        Tone::Warn => "33",
        Tone::Bad => "31",
        Tone::Dim => "2",
        Tone::Strong => "1",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// A text in a table.
pub(crate) fn cell(text: impl std::fmt::Display, tone: Tone) -> Cell {
    let cell = Cell::new(text);
    match tone {
        _ if !on() => cell,
        Tone::Plain => cell,
        Tone::Good => cell.fg(Color::Green),
        Tone::Busy => cell.fg(Color::Cyan),
        Tone::Warn => cell.fg(Color::Yellow),
        Tone::Bad => cell.fg(Color::Red),
        Tone::Dim => cell.add_attribute(Attribute::Dim),
        Tone::Strong => cell.add_attribute(Attribute::Bold),
    }
}

/// A number in a table: to the right, and dim when there is nothing to see.
pub(crate) fn number(n: u64, tone: Tone) -> Cell {
    let tone = if n == 0 { Tone::Dim } else { tone };
    cell(crate::say::number(n), tone).set_alignment(CellAlignment::Right)
}

/// The colour of a job's state.
pub(crate) fn state(state: JobState) -> Tone {
    match state {
        JobState::Running => Tone::Busy,
        JobState::Done => Tone::Good,
        JobState::Dead => Tone::Bad,
        JobState::Cancelled | JobState::Expired => Tone::Warn,
        JobState::Scheduled => Tone::Dim,
        _ => Tone::Plain,
    }
}
