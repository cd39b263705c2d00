//! What the demo shows: a table that is redrawn in place on a terminal of any width, and a line a second elsewhere.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use ratatui::crossterm::terminal;
use rowlock::{Client, WorkerHandle};

use crate::say;
use crate::style::{Tone, paint};

/// Lines of a drawing that are not queues: the heading, a space, the names of the columns, and how many queues are not shown.
const LINES_AROUND: u16 = 5;

/// The counts of one queue.
pub(super) struct QueueLine {
    name: String,
    pub(super) ready: u64,
    running: u64,
    pub(super) scheduled: u64,
    pub(super) dead: u64,
    pub(super) finished: u64,
}

pub(super) struct Screen {
    /// Where it is drawn in place; a terminal, and not one that asked for JSON.
    terminal: bool,
    began: Instant,
    /// How many lines the last drawing has.
    lines: usize,
    handled: u64,
}

/// One look at the queues.
struct Look<'a> {
    queues: &'a [QueueLine],
    seconds: u64,
    handled: u64,
    per_second: u64,
}

impl Screen {
    pub(super) fn new(terminal: bool) -> Self {
        Self {
            terminal,
            began: Instant::now(),
            lines: 0,
            handled: 0,
        }
    }

    pub(super) async fn draw(
        &mut self,
        client: &Client,
        worker: &WorkerHandle,
    ) -> anyhow::Result<()> {
        let queues = counts(client).await?;
        let handled = worker.handled();
        let look = Look {
            queues: &queues,
            seconds: self.began.elapsed().as_secs(),
            handled,
            per_second: handled - self.handled,
        };
        self.handled = handled;
        let mut out = std::io::stdout().lock();
        if !self.terminal {
            writeln!(out, "{}", look.line())?;
            return Ok(());
        }
        let (columns, rows) = terminal::size().unwrap_or((80, 24));
        let text = look.table(columns.into(), rows.saturating_sub(LINES_AROUND).into());
        if self.lines > 0 {
            // Back to the first line of the last drawing, and clear from there.
            write!(out, "\x1b[{}A\x1b[J", self.lines)?;
        }
        out.write_all(text.as_bytes())?;
        out.flush()?;
        self.lines = text.lines().count();
        Ok(())
    }
}

impl Look<'_> {
    fn line(&self) -> String {
        let sum = |pick: fn(&QueueLine) -> u64| self.queues.iter().map(pick).sum::<u64>();
        format!(
            "{:>4} s  {:>6} handled  {:>4}/s  {:>4} ready  {:>3} running  {:>4} scheduled  {:>3} dead",
            self.seconds,
            self.handled,
            self.per_second,
            sum(|q| q.ready),
            sum(|q| q.running),
            sum(|q| q.scheduled),
            sum(|q| q.dead),
        )
    }

    /// No line is wider than the terminal: one that wraps would be two, and the next drawing would begin a line too low.
    fn table(&self, columns: usize, queues_max: usize) -> String {
        let wide = columns >= 56;
        let (names, widths) = if wide {
            (
                ["queue", "ready", "running", "scheduled", "finished", "dead"],
                [10, 7, 8, 10, 9, 6],
            )
        } else {
            (
                ["queue", "ready", "run", "sched", "done", "dead"],
                [9, 5, 4, 5, 6, 4],
            )
        };
        let row = |cells: [String; 6]| {
            let mut line = format!("{:<w$.w$}", say::plain(&cells[0]), w = widths[0]);
            for (cell, width) in cells.iter().zip(widths).skip(1) {
                let _ = write!(line, " {cell:>width$}");
            }
            say::clip(&line, columns)
        };
        let heading = format!(
            "rowlock demo   {} s   {} handled   {}/s",
            self.seconds, self.handled, self.per_second
        );
        let mut text = format!(
            "{}\n\n{}\n",
            paint(say::clip(&heading, columns), Tone::Strong),
            paint(row(names.map(str::to_owned)), Tone::Dim)
        );
        for q in self.queues.iter().take(queues_max) {
            let numbers = [q.ready, q.running, q.scheduled, q.finished, q.dead];
            let [a, b, c, d, e] = numbers.map(|n| n.to_string());
            let line = row([q.name.clone(), a, b, c, d, e]);
            let tone = if q.dead > 0 { Tone::Bad } else { Tone::Plain };
            let _ = writeln!(text, "{}", paint(line, tone));
        }
        if self.queues.len() > queues_max {
            let more = format!("… and {} more queues", self.queues.len() - queues_max);
            let _ = writeln!(text, "{}", say::clip(&more, columns));
        }
        text
    }
}

/// The counts of all queues.
pub(super) async fn counts(client: &Client) -> anyhow::Result<Vec<QueueLine>> {
    let mut lines = Vec::new();
    for queue in client.stats().await? {
        lines.push(QueueLine {
            ready: queue.ready,
            running: queue.running,
            scheduled: queue.scheduled,
            dead: queue.dead,
            finished: queue.finished_hour,
            name: queue.name,
        });
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(n: usize) -> Vec<QueueLine> {
        let queue = |n| QueueLine {
            name: format!("a-queue-with-a-long-name-{n}"),
            ready: 123_456,
            running: 10,
            scheduled: 123_456,
            dead: 1,
            finished: 123_456_789,
        };
        (0..n).map(queue).collect()
    }

    #[test]
    fn a_drawing_fits_the_terminal() {
        let queues = queues(30);
        let look = Look {
            queues: &queues,
            seconds: 123_456,
            handled: 123_456_789,
            per_second: 10_000,
        };
        for columns in [1, 20, 40, 56, 80, 200] {
            for rows in [0, 10, 30] {
                let text = look.table(columns, rows);
                assert!(
                    text.lines().all(|l| l.chars().count() <= columns),
                    "{columns}:\n{text}"
                );
                assert!(text.lines().count() <= rows + usize::from(LINES_AROUND));
            }
        }
        assert!(look.table(40, 30).contains("sched"));
    }
}
