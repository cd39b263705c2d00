//! The report as tables for people: for each scenario what was done, what it cost, how long it took, and how it went over time. No more columns than fit
//! into 120 characters.

use super::figures::Figures;
use super::report::{Line, Report};
use crate::{output, say};

/// How each comparison is said.
const SHARES: [(&str, &str); 17] = [
    ("of_floor", "of the floor"),
    ("of_plain", "of plain"),
    ("of_prepared", "of prepared"),
    ("of_alone", "of the transaction alone"),
    ("of_possible", "of what is possible"),
    ("of_offered", "of the offered rate, in time"),
    ("of_clean", "of clean"),
    ("start_p99_of_clean", "× p99 of clean"),
    ("postgres_cpu_of_clean", "× CPU of clean"),
    ("start_p99_worst_of_clean", "× p99 at worst"),
    ("postgres_cpu_worst_of_clean", "× CPU at worst"),
    ("postgres_cpu_of_plain", "× CPU of plain"),
    ("wal_of_plain", "× WAL of plain"),
    ("of_one", "× one process"),
    ("of_half", "× half as many"),
    ("claim_of_small", "× claim at the small backlog"),
    ("worker_rss_of_small", "× memory at the small backlog"),
];

pub(super) fn print(report: &Report) {
    for (scenario, lines) in report.by_scenario() {
        output::text(&format!("\n{scenario}\n"));
        for table in tables(&lines) {
            let mut shown = output::table(&table.headings);
            for row in table.rows {
                shown.add_row(row);
            }
            output::print_table(&shown, "");
        }
    }
    output::text("\n");
    for sentence in where_and_how(report) {
        output::text(&format!("{sentence}\n"));
    }
}

/// A table, however it is shown. A cell may have several lines.
pub(super) struct Table {
    pub(super) headings: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    fn new(headings: &[&'static str]) -> Self {
        Self {
            headings: headings.to_vec(),
            rows: Vec::new(),
        }
    }

    /// A row for a case, if there is anything to say of it.
    fn push_unless_empty(&mut self, line: &Line, cells: Vec<String>) {
        if cells.iter().any(|cell| !cell.is_empty()) {
            let case = std::iter::once(line.case.clone());
            self.rows.push(case.chain(cells).collect());
        }
    }

    /// Without the columns in which nothing stands.
    fn trimmed(mut self) -> Self {
        let empty = |n: usize| self.rows.iter().all(|row| row[n].is_empty());
        let kept: Vec<bool> = (0..self.headings.len()).map(|n| !empty(n)).collect();
        let mut n = 0;
        self.headings.retain(|_| {
            n += 1;
            kept[n - 1]
        });
        for row in &mut self.rows {
            let mut n = 0;
            row.retain(|_| {
                n += 1;
                kept[n - 1]
            });
        }
        self
    }
}

/// All that there is to show of a scenario.
pub(super) fn tables(lines: &[&Line]) -> Vec<Table> {
    let all = [
        rates(lines),
        costs(lines),
        waits(lines),
        windows(lines),
        disk(lines),
    ];
    all.into_iter()
        .filter(|table| !table.rows.is_empty())
        .map(Table::trimmed)
        .collect()
}

/// What was done, how fast, and how that compares.
fn rates(lines: &[&Line]) -> Table {
    let mut table = Table::new(&["case", "jobs", "jobs/s", "compared, and more"]);
    for line in lines {
        let more: Vec<String> = compared(line).into_iter().chain(more(line)).collect();
        table.rows.push(vec![
            line.case.clone(),
            say::number(line.jobs),
            figure(line, "per_second", whole),
            more.join("\n"),
        ]);
    }
    table
}

/// What each job cost.
fn costs(lines: &[&Line]) -> Table {
    let mut table = Table::new(&[
        "for each job",
        "CPU µs, Postgres",
        "client",
        "WAL B",
        "without images",
    ]);
    for line in lines {
        let one_digit = |v: f64| format!("{v:.1}");
        table.push_unless_empty(
            line,
            vec![
                figure(line, "postgres_cpu_us", one_digit),
                figure(line, "client_cpu_us", one_digit),
                figure(line, "wal_bytes", whole),
                figure(line, "wal_bytes_without_images", whole),
            ],
        );
    }
    table
}

/// Sizes before and after.
fn disk(lines: &[&Line]) -> Table {
    let mut table = Table::new(&["on the disk", "table", "indexes", "history"]);
    for line in lines {
        let sizes = vec![
            change(line, "table_bytes_before", "table_bytes_after"),
            change(line, "index_bytes_before", "index_bytes_after"),
            if has_history(line) {
                change(line, "history_bytes_before", "history_bytes_after")
            } else {
                String::new()
            },
        ];
        table.push_unless_empty(line, sizes);
    }
    table
}

/// Latencies, at each percentile.
fn waits(lines: &[&Line]) -> Table {
    let mut table = Table::new(&["ms", "until", "p50", "p90", "p99", "p99.9", "max"]);
    for line in lines {
        for until in ["start", "done", "claim"] {
            let at = |name: &str| figure(line, &format!("{until}_{name}_ms"), two_digits);
            let all = ["p50", "p90", "p99", "p999", "max"].map(at);
            if !all[0].is_empty() {
                let names = [line.case.clone(), until.to_owned()];
                table.rows.push(names.into_iter().chain(all).collect());
            }
        }
    }
    table
}

/// How it went over time, where that matters.
fn windows(lines: &[&Line]) -> Table {
    let mut table = Table::new(&[
        "over time",
        "seconds",
        "start p50 ms",
        "start p99 ms",
        "Postgres CPU µs",
    ]);
    for line in lines {
        for window in &line.windows {
            let figure = |name: &str| {
                window
                    .figures
                    .get(name)
                    .copied()
                    .map_or(String::new(), two_digits)
            };
            table.rows.push(vec![
                line.case.clone(),
                format!("{:.1}–{:.1}", window.from_s, window.to_s),
                figure("start_p50_ms"),
                figure("start_p99_ms"),
                figure("postgres_cpu_us"),
            ]);
        }
    }
    table
}

/// A figure, and below it the smallest and the largest of several rounds.
fn figure(line: &Line, name: &str, say: impl Fn(f64) -> String) -> String {
    let value = line.get(name).map(&say).unwrap_or_default();
    match spread(line, name, say) {
        Some(spread) => format!("{value}\n({spread})"),
        None => value,
    }
}

/// The same on one line, with words after it.
fn remark(line: &Line, name: &str, words: &str, say: impl Fn(f64) -> String) -> Option<String> {
    let value = say(line.get(name)?);
    Some(match spread(line, name, say) {
        Some(spread) => format!("{value} {words} ({spread})"),
        None => format!("{value} {words}"),
    })
}

/// The smallest and the largest, where they are told apart.
fn spread(line: &Line, name: &str, say: impl Fn(f64) -> String) -> Option<String> {
    let [least, most] = line.spread.get(name)?.map(say);
    (least != most).then(|| format!("{least}–{most}"))
}

fn whole(value: f64) -> String {
    say::number(value.round() as u64)
}

fn two_digits(value: f64) -> String {
    format!("{value:.2}")
}

fn bytes(value: f64) -> String {
    say::bytes(value as u64)
}

fn compared(line: &Line) -> Vec<String> {
    let share = |(name, words): &(&str, &str)| remark(line, name, words, two_digits);
    SHARES.iter().filter_map(share).collect()
}

/// What only some scenarios have.
fn more(line: &Line) -> Vec<String> {
    let ms = |v: f64| format!("{v:.2} ms");
    let percent = |v: f64| format!("{v:.2} %");
    let all = [
        remark(line, "postgres_cpu_percent", "of a core, Postgres", percent),
        remark(line, "client_cpu_percent", "of a core, client", percent),
        remark(line, "handlers_allow_per_second", "bare sleeps/s", whole),
        remark(line, "late_max_ms", "late at most, the producer", ms),
        remark(line, "first_start_ms", "to the first start", ms),
        remark(line, "first_done_ms", "to the first completion", ms),
        remark(line, "simple_claim_p50_ms", "p50 of a simple claim", ms),
        remark(line, "worker_rss_start_bytes", "worker, at first", bytes),
        remark(line, "worker_rss_max_bytes", "worker, at most", bytes),
    ];
    all.into_iter().flatten().collect()
}

fn change(line: &Line, before: &str, after: &str) -> String {
    match (line.get(before).map(bytes), line.get(after).map(bytes)) {
        (Some(before), Some(after)) if before != after => format!("{before} → {after}"),
        (_, after) => after.unwrap_or_default(),
    }
}

/// Whether anything came to it: its empty partitions are always there.
pub(super) fn has_history(line: &Line) -> bool {
    line.get("history_bytes_before") != line.get("history_bytes_after")
}

/// What, where, how and when, in sentences.
pub(super) fn where_and_how(report: &Report) -> Vec<String> {
    let settings: Vec<String> = report
        .settings
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut all = Vec::new();
    if let Some(failed) = &report.failed {
        all.push(format!("INCOMPLETE: {failed}."));
    }
    all.push(format!(
        "Rowlock {} measured {}, PostgreSQL {}, {}.",
        report.version,
        report.place.text(),
        report.server,
        machine(report)
    ));
    all.push(format!(
        "{}, {}. Settings: {}.",
        say::count(report.rounds as u64, "round"),
        report.options_text.join(", "),
        settings.join(" ")
    ));
    all.push(checked(report));
    if !report.optimised {
        all.push("This program was not built for speed: use a release build.".to_owned());
    }
    all.retain(|sentence| !sentence.is_empty());
    all
}

fn machine(report: &Report) -> String {
    let load = report
        .load_before
        .map_or(String::new(), |load| format!(", load {load:.1} before"));
    let cores = say::count(report.cores as u64, "core");
    if report.place.same_machine {
        format!("on {cores}{load}")
    } else {
        format!("from a client with {cores}{load}; the server's own machine was not seen")
    }
}

/// What was checked of the scenarios that are shown; each fails if it does not hold.
fn checked(report: &Report) -> String {
    let has = |pick: fn(&str) -> bool| report.lines.iter().any(|line| pick(line.scenario));
    let mut all = Vec::new();
    if has(|scenario| !["floor", "idle"].contains(&scenario)) {
        all.push("Each job ran and was acknowledged exactly once.");
    }
    if has(|scenario| scenario == "floor") {
        all.push("The rows of floor, which are no jobs, were counted after each step.");
    }
    if has(|scenario| scenario == "idle") {
        all.push("The idle workers had no jobs.");
    }
    all.join(" ")
}

/// The names of the figures that these lines have.
pub(super) fn figures_of(lines: &[Line]) -> Vec<&'static str> {
    let windows = |line: &'_ Line| -> Vec<&'static str> {
        let names = |figures: &Figures| figures.keys().copied().collect::<Vec<_>>();
        let windows = line.windows.iter().flat_map(|w| names(&w.figures));
        names(&line.figures).into_iter().chain(windows).collect()
    };
    lines.iter().flat_map(windows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::FIGURES;

    fn line(figures: &[(&'static str, f64)]) -> Line {
        Line::new("drain", "a case", 5, figures.iter().copied().collect())
    }

    #[test]
    fn every_comparison_has_words() {
        for (name, _) in FIGURES {
            let compares = name.starts_with("of_") || name.contains("_of_");
            assert_eq!(SHARES.iter().any(|s| s.0 == name), compares, "{name}");
        }
    }

    #[test]
    fn everything_that_varies_shows_how_much() {
        let mut line = line(&[
            ("per_second", 1234.0),
            ("of_floor", 0.5),
            ("start_p50_ms", 2.0),
        ]);
        line.spread = [
            ("per_second", [1000.0, 2000.0]),
            ("of_floor", [0.25, 0.75]),
            ("start_p50_ms", [1.0, 3.0]),
        ]
        .into();
        let tables = tables(&[&line]);
        assert_eq!(
            tables[0].rows,
            [[
                "a case",
                "5",
                "1,234\n(1,000–2,000)",
                "0.50 of the floor (0.25–0.75)"
            ]]
        );
        assert_eq!(tables[1].rows, [["a case", "start", "2.00\n(1.00–3.00)"]]);
        assert_eq!(
            tables[1].headings,
            ["ms", "until", "p50"],
            "no empty columns"
        );
    }

    #[test]
    fn sizes_before_are_said_if_they_differ() {
        let line = line(&[
            ("table_bytes_before", 2048.0),
            ("table_bytes_after", 2048.0),
            ("index_bytes_before", 0.0),
            ("index_bytes_after", 1024.0),
            ("history_bytes_before", 512.0),
            ("history_bytes_after", 512.0),
        ]);
        let tables = tables(&[&line]);
        let disk = &tables[1];
        assert_eq!(disk.headings, ["on the disk", "table", "indexes"]);
        assert_eq!(disk.rows, [["a case", "2.0 kB", "0 B → 1.0 kB"]]);
    }
}
