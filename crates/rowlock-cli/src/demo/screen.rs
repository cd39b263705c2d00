//! What the demo shows: a table that is redrawn in place on a terminal, and a line a second elsewhere.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use rowlock::{Client, WorkerHandle};

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
    terminal: bool,
    began: Instant,
    /// Said below the table.
    notes: Vec<String>,
    /// How many lines the last drawing has.
    lines: usize,
    handled: u64,
}

impl Screen {
    pub(super) fn new(terminal: bool) -> Self {
        Self {
            terminal,
            began: Instant::now(),
            notes: Vec::new(),
            lines: 0,
            handled: 0,
        }
    }

    pub(super) fn note(&mut self, text: String) {
        if !self.terminal {
            println!("{text}");
        }
        self.notes.push(text);
    }

    pub(super) async fn draw(
        &mut self,
        client: &Client,
        worker: &WorkerHandle,
    ) -> anyhow::Result<()> {
        let queues = counts(client).await?;
        let handled = worker.handled();
        let rate = handled - self.handled;
        self.handled = handled;
        let seconds = self.began.elapsed().as_secs();
        if !self.terminal {
            let sum = |pick: fn(&QueueLine) -> u64| queues.iter().map(pick).sum::<u64>();
            println!(
                "{seconds:>4} s  {handled:>6} handled  {rate:>4}/s  {:>4} ready  {:>3} running  {:>4} scheduled  {:>3} dead",
                sum(|q| q.ready),
                sum(|q| q.running),
                sum(|q| q.scheduled),
                sum(|q| q.dead),
            );
            return Ok(());
        }
        let text = self.table(&queues, seconds, rate);
        let mut out = std::io::stdout().lock();
        if self.lines > 0 {
            // Back to the first line of the last drawing, and clear from there.
            write!(out, "\x1b[{}A\x1b[J", self.lines)?;
        }
        out.write_all(text.as_bytes())?;
        out.flush()?;
        self.lines = text.lines().count();
        Ok(())
    }

    fn table(&self, queues: &[QueueLine], seconds: u64, rate: u64) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "\x1b[1mrowlock demo\x1b[0m   {seconds} s   {} handled   {rate}/s",
            self.handled
        );
        let _ = writeln!(text);
        let _ = writeln!(
            text,
            "\x1b[2m{:<10} {:>7} {:>8} {:>10} {:>9} {:>6}\x1b[0m",
            "queue", "ready", "running", "scheduled", "finished", "dead"
        );
        for q in queues {
            let dead = if q.dead > 0 {
                format!("\x1b[31m{:>6}\x1b[0m", q.dead)
            } else {
                format!("{:>6}", q.dead)
            };
            let _ = writeln!(
                text,
                "{:<10} {:>7} {:>8} {:>10} {:>9} {dead}",
                q.name, q.ready, q.running, q.scheduled, q.finished
            );
        }
        let _ = writeln!(text);
        for note in &self.notes {
            let _ = writeln!(text, "\x1b[2m{note}\x1b[0m");
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
