//! Drawing. What is narrow gets fewer columns, what is low gets one part at a time; nothing is wrapped.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};
use rowlock::manage::JobState;

use super::app::{Action, App, Over, Part};
use super::snapshot::failed_at;
use super::text;
use crate::jobs::list;
use crate::say;

/// Below this width only what matters most is shown.
const WIDE: u16 = 90;
/// Below this height only the part that is chosen is shown.
const HIGH: u16 = 18;

const HELP: &str = "\
↑ ↓  j k     select
Tab          next part
Enter        inspect
p            pause or resume queue
r            retry failed job
?            this help
q  Esc       quit

Depths count to 10,000.
Times are of the last hour.";

pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    header(frame, app, head);
    if body.height < HIGH {
        part(frame, app, app.part, body);
    } else {
        let queues = u16::try_from(app.rows(Part::Queues)).unwrap_or(u16::MAX);
        let most = body.height / 2;
        let [top, middle, bottom] = Layout::vertical([
            Constraint::Length(queues.saturating_add(3).min(most)),
            Constraint::Fill(1),
            Constraint::Fill(1),
        ])
        .areas(body);
        part(frame, app, Part::Queues, top);
        part(frame, app, Part::Running, middle);
        part(frame, app, Part::Failures, bottom);
    }
    footer(frame, app, foot);
    over(frame, app);
}

fn header(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let w = &app.snapshot.workers;
    let mut line = vec![
        Span::from("rowlock ").bold(),
        Span::from(format!("{}/s  ", text::rate(app.snapshot.rate()))).green(),
        Span::from(format!(
            "{}/{} slots  {}",
            w.running,
            w.concurrency,
            say::count(w.alive, "worker")
        )),
    ];
    if w.lost > 0 {
        line.push(Span::from(format!(", {} lost", w.lost)).red());
    }
    if area.width >= WIDE {
        let place = format!(
            "  {}  {}",
            say::moment(app.now()),
            say::clip(&app.place, 60)
        );
        line.push(Span::from(place).dim());
    }
    frame.render_widget(Paragraph::new(Line::from(line)), area);
}

fn footer(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let line = match (&app.over, &app.lost, &app.message) {
        (Over::Sure(Action::Pause(queue)), ..) => Line::from(format!("pause queue {queue}? y/n"))
            .yellow()
            .bold(),
        (_, Some(why), _) => Line::from(format!(
            "no connection, trying again: {}",
            say::clip(why, 200)
        ))
        .red(),
        (_, _, Some((message, true))) => Line::from(say::clip(message, 200)).yellow(),
        (_, _, Some((message, false))) => Line::from(say::clip(message, 200)).green(),
        _ if area.width >= 60 => Line::from(
            "q quit  Tab part  ↑↓ select  Enter inspect  p pause/resume  r retry  ? help",
        )
        .dim(),
        _ => Line::from("q quit  Tab  ↑↓  Enter  p  r  ? help").dim(),
    };
    frame.render_widget(Paragraph::new(line), area);
}

fn part(frame: &mut Frame<'_>, app: &App, which: Part, area: Rect) {
    let wide = area.width >= WIDE;
    let (title, head, widths, rows) = match which {
        Part::Queues => queues(app, wide),
        Part::Running => running(app, wide),
        Part::Failures => failures(app, wide),
    };
    let chosen = app.part == which;
    let border = if chosen {
        Style::new().fg(Color::Cyan)
    } else {
        Style::new().add_modifier(Modifier::DIM)
    };
    let block = Block::bordered().border_style(border).title(title);
    if rows.is_empty() {
        let nothing = match which {
            Part::Queues => "no queue yet: the first job makes one",
            Part::Running => "nothing runs",
            Part::Failures => "nothing has failed",
        };
        frame.render_widget(Paragraph::new(nothing.dim()).block(block), area);
        return;
    }
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::DIM)))
        .block(block)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(app.row(which).filter(|_| chosen));
    frame.render_stateful_widget(table, area, &mut state);
}

type Content = (
    String,
    Vec<Cell<'static>>,
    Vec<Constraint>,
    Vec<Row<'static>>,
);

fn right(text: impl Into<String>) -> Cell<'static> {
    Cell::from(Line::from(text.into()).alignment(Alignment::Right))
}

fn count(n: u64, capped: bool, color: Color) -> Cell<'static> {
    let style = if n == 0 {
        Style::new().add_modifier(Modifier::DIM)
    } else {
        Style::new().fg(color)
    };
    right(text::depth(n, capped)).style(style)
}

fn queues(app: &App, wide: bool) -> Content {
    let ms = |ms: Option<i64>| right(ms.map_or(String::new(), say::ms));
    let rows = app.snapshot.queues.iter().map(|q| {
        let name = if q.paused {
            format!("⏸ {}", q.name)
        } else {
            q.name.clone()
        };
        let style = if q.paused {
            Style::new().fg(Color::Yellow)
        } else {
            Style::new()
        };
        let mut cells = vec![
            Cell::from(say::plain(&name)).style(style),
            count(q.ready, q.capped, Color::Reset),
            count(q.running, q.capped, Color::Cyan),
            count(q.dead, q.capped, Color::Red),
            right(text::rate(q.finished_minute as f64 / 60.0)),
        ];
        if wide {
            cells.extend([
                count(q.scheduled, q.capped, Color::Reset),
                ms(q.oldest_wait_ms),
                ms(q.wait_p50_ms),
                ms(q.wait_p95_ms),
                ms(q.run_p50_ms),
                ms(q.run_p95_ms),
            ]);
        }
        Row::new(cells)
    });
    let mut head = vec![
        Cell::from("queue"),
        right("ready"),
        right("run"),
        right("dead"),
        right("/s"),
    ];
    let mut widths = vec![
        Constraint::Fill(1),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(5),
    ];
    if wide {
        head.extend(
            [
                "scheduled",
                "oldest",
                "wait p50",
                "wait p95",
                "run p50",
                "run p95",
            ]
            .map(right),
        );
        widths.extend([9, 8, 8, 8, 8, 8].map(Constraint::Length));
    }
    (" queues ".to_owned(), head, widths, rows.collect())
}

fn running(app: &App, wide: bool) -> Content {
    let rows = app.snapshot.running.iter().map(|job| {
        let mut cells = vec![
            right(job.id.to_string()),
            Cell::from(say::plain(&job.kind)),
            right(list::when(job, app.now())),
        ];
        if wide {
            cells.extend([
                Cell::from(say::plain(&job.queue)),
                Cell::from(list::attempts(job)),
                Cell::from(say::plain(job.worker_name.as_deref().unwrap_or(""))),
                Cell::from(text::progress(job)),
            ]);
        }
        Row::new(cells)
    });
    let mut head = vec![right("id"), Cell::from("kind"), right("time")];
    let mut widths = vec![
        Constraint::Length(9),
        Constraint::Fill(2),
        Constraint::Length(10),
    ];
    if wide {
        head.extend(["queue", "attempt", "worker", "progress"].map(Cell::from));
        widths.extend([
            Constraint::Fill(1),
            Constraint::Length(7),
            Constraint::Fill(1),
            Constraint::Fill(2),
        ]);
    }
    (
        format!(" running {} ", app.rows(Part::Running)),
        head,
        widths,
        rows.collect(),
    )
}

fn failures(app: &App, wide: bool) -> Content {
    let rows = app.snapshot.failures.iter().map(|job| {
        let dead = job.state == JobState::Dead;
        let style = Style::new().fg(if dead { Color::Red } else { Color::Yellow });
        let state = if dead { "dead" } else { "retry" };
        let mut cells = vec![
            right(job.id.to_string()),
            Cell::from(state).style(style),
            Cell::from(say::plain(&job.kind)),
            right(say::when(failed_at(job), app.now())),
        ];
        if wide {
            let error = job.last_error().map_or("", |e| &e.error);
            cells.extend([
                Cell::from(say::plain(&job.queue)),
                Cell::from(list::attempts(job)),
                Cell::from(say::clip(error, 200)),
            ]);
        }
        Row::new(cells)
    });
    let mut head = vec![
        right("id"),
        Cell::from(""),
        Cell::from("kind"),
        right("failed"),
    ];
    let mut widths = vec![
        Constraint::Length(9),
        Constraint::Length(5),
        Constraint::Fill(2),
        Constraint::Length(11),
    ];
    if wide {
        head.extend(["queue", "attempt", "error"].map(Cell::from));
        widths.extend([
            Constraint::Fill(1),
            Constraint::Length(7),
            Constraint::Fill(4),
        ]);
    }
    (
        format!(" failures {} ", app.rows(Part::Failures)),
        head,
        widths,
        rows.collect(),
    )
}

/// Help, or a text to read, over the rest.
fn over(frame: &mut Frame<'_>, app: &App) {
    let (title, text, at) = match &app.over {
        Over::Nothing | Over::Sure(_) => return,
        Over::Help => (" help ", HELP, 0),
        Over::Text(text, at) => (" any other key closes ", text.as_str(), *at),
    };
    let all = frame.area();
    let wanted = text.lines().map(|l| l.chars().count()).max().unwrap_or(0) + 4;
    let width = u16::try_from(wanted)
        .unwrap_or(u16::MAX)
        .clamp(24, 100)
        .min(all.width);
    let height = u16::try_from(text.lines().count() + 2)
        .unwrap_or(u16::MAX)
        .min(all.height);
    let [area] = Layout::horizontal([Constraint::Length(width)])
        .flex(ratatui::layout::Flex::Center)
        .areas(all);
    let [area] = Layout::vertical([Constraint::Length(height)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let block = Block::bordered()
        .border_style(Style::new().fg(Color::Cyan))
        .title(title);
    frame.render_widget(Clear, area);
    let paragraph = Paragraph::new(text)
        .block(block)
        .wrap(ratatui::widgets::Wrap { trim: false });
    frame.render_widget(paragraph.scroll((at, 0)), area);
}
