//! The report as tables for people.

use super::report::{Line, Report};
use crate::{output, say};

/// How each comparison is said.
const SHARES: [(&str, &str); 12] = [
    ("of_floor", "of the floor"),
    ("of_plain", "of plain"),
    ("of_prepared", "of prepared"),
    ("of_alone", "of the transaction alone"),
    ("of_possible", "of what is possible"),
    ("of_clean", "of clean"),
    ("start_p99_of_clean", "× p99 of clean"),
    ("postgres_cpu_of_clean", "× CPU of clean"),
    ("start_p99_worst_of_clean", "× p99 at worst"),
    ("postgres_cpu_worst_of_clean", "× CPU at worst"),
    ("of_one", "× one process"),
    ("claim_of_small", "× claim at the small backlog"),
];

pub(super) fn print(report: &Report) {
    output::text("\n");
    let mut table = output::table(&[
        "scenario",
        "case",
        "jobs",
        "jobs/s",
        "compared",
        "CPU µs, Postgres + client",
        "WAL B (no images)",
        "table + indexes",
    ]);
    for line in &report.lines {
        table.add_row([
            line.scenario.to_owned(),
            line.case.clone(),
            say::number(line.jobs),
            rate(line),
            compared(line),
            cpu(line),
            wal(line),
            sizes(line),
        ]);
    }
    output::print_table(&table, "nothing was measured");
    print_waits(report);
    print_windows(report);
    output::text(&format!("\n{}\n", where_and_how(report)));
}

/// Latencies, where there are any.
fn print_waits(report: &Report) {
    let mut table = output::table(&["ms", "case", "until", "p50", "p90", "p99", "p99.9", "max"]);
    for line in &report.lines {
        for row in waits(line) {
            table.add_row(std::iter::once(line.scenario.to_owned()).chain(row));
        }
    }
    if !table.is_empty() {
        output::text("\n");
        output::print_table(&table, "");
    }
}

/// The case, what was waited for, and how long, at each percentile.
pub(super) fn waits(line: &Line) -> Vec<[String; 7]> {
    let row = |until: &str| {
        line.get(&format!("{until}_p50_ms"))?;
        let ms = |name: &str| {
            line.get(&format!("{until}_{name}_ms"))
                .map_or(String::new(), |ms| format!("{ms:.2}"))
        };
        let [p50, p90, p99, p999, max] = ["p50", "p90", "p99", "p999", "max"].map(ms);
        Some([
            line.case.clone(),
            until.to_owned(),
            p50,
            p90,
            p99,
            p999,
            max,
        ])
    };
    ["start", "done", "claim"]
        .into_iter()
        .filter_map(row)
        .collect()
}

/// How it went over time, where that matters.
fn print_windows(report: &Report) {
    let mut table = output::table(&[
        "over time",
        "case",
        "seconds",
        "start p50 ms",
        "start p99 ms",
        "Postgres CPU µs",
    ]);
    for line in &report.lines {
        for window in &line.windows {
            let figure = |name: &str| {
                window
                    .figures
                    .get(name)
                    .map_or(String::new(), |v| format!("{v:.2}"))
            };
            table.add_row([
                line.scenario.to_owned(),
                line.case.clone(),
                format!("{:.1}–{:.1}", window.from_s, window.to_s),
                figure("start_p50_ms"),
                figure("start_p99_ms"),
                figure("postgres_cpu_us"),
            ]);
        }
    }
    if !table.is_empty() {
        output::text("\n");
        output::print_table(&table, "");
    }
}

pub(super) fn rate(line: &Line) -> String {
    let whole = |v: f64| say::number(v.round() as u64);
    let Some(rate) = line.get("per_second") else {
        return String::new();
    };
    match line.spread.get("per_second") {
        Some([least, most]) => format!("{} ({}–{})", whole(rate), whole(*least), whole(*most)),
        None => whole(rate),
    }
}

pub(super) fn cpu(line: &Line) -> String {
    let figure = |name| line.get(name).map(|v| format!("{v:.1}"));
    if let Some(percent) = line.get("postgres_cpu_percent") {
        return format!("Postgres {percent:.2} % of a core");
    }
    match figure("client_cpu_us") {
        Some(client) => {
            let postgres = figure("postgres_cpu_us").unwrap_or("?".into());
            format!("{postgres} + {client}")
        }
        None => String::new(),
    }
}

pub(super) fn wal(line: &Line) -> String {
    let Some(wal) = line.get("wal_bytes") else {
        return String::new();
    };
    match line.get("wal_bytes_without_images") {
        Some(without) => format!("{wal:.0} ({without:.0})"),
        None => format!("{wal:.0}"),
    }
}

/// Both together before, and each after.
pub(super) fn sizes(line: &Line) -> String {
    let bytes = |name: &str| line.get(name).map(|v| v as u64);
    let sizes = || {
        let before = bytes("table_bytes_before")? + bytes("index_bytes_before")?;
        Some((
            before,
            bytes("table_bytes_after")?,
            bytes("index_bytes_after")?,
        ))
    };
    match sizes() {
        Some((before, table, index)) if before == table + index => {
            format!("{} + {}", say::bytes(table), say::bytes(index))
        }
        Some((before, table, index)) => format!(
            "{} → {} + {}",
            say::bytes(before),
            say::bytes(table),
            say::bytes(index)
        ),
        None => String::new(),
    }
}

pub(super) fn compared(line: &Line) -> String {
    let share = |(name, words): &(&str, &str)| Some(format!("{:.2} {words}", line.get(name)?));
    let mut parts: Vec<String> = SHARES.iter().filter_map(share).collect();
    if let Some(rss) = line.get("worker_rss_max_bytes") {
        parts.push(format!("worker {}", say::bytes(rss as u64)));
    }
    parts.join(", ")
}

/// The machine and the moment, in a sentence.
pub(super) fn where_and_how(report: &Report) -> String {
    let settings: Vec<String> = report
        .settings
        .iter()
        .map(|(n, v)| format!("{n}={v}"))
        .collect();
    let load = report
        .load_before
        .map_or(String::new(), |l| format!(", load {l:.1} before"));
    let build = if report.optimised {
        ""
    } else {
        " This program was not built for speed: use a release build."
    };
    format!(
        "Rowlock {} with PostgreSQL {} on {} cores{load}; {}; {}. Each job ran and was acknowledged exactly once.{build}",
        report.version,
        report.server,
        report.cores,
        say::count(report.rounds as u64, "round"),
        settings.join(" ")
    )
}
