//! The report as one HTML file that needs nothing else: plots as inline SVG, readable in the light and in the dark.

mod plot;
mod scale;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::NamedTempFile;

use super::figures::FIGURES;
use super::report::{Line, Report};
use super::table::{self, Table};
use crate::say;
use plot::{Bar, Series, Unit};

/// Where the report goes. The place is taken before anything is measured, so that hours are not lost to a mistake in a path, and the file appears only
/// when it is complete.
pub(super) struct Place {
    path: PathBuf,
    file: NamedTempFile,
}

impl Place {
    pub(super) fn take(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot write the report to {}", path.display());
        anyhow::ensure!(!path.is_dir(), "{}: it is a directory", cannot());
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let file = NamedTempFile::new_in(dir.unwrap_or(Path::new("."))).with_context(cannot)?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    pub(super) fn write(mut self, report: &Report) -> anyhow::Result<()> {
        let cannot = || format!("cannot write the report to {}", self.path.display());
        self.file
            .write_all(page(report).as_bytes())
            .with_context(cannot)?;
        // A temporary file is for its owner alone; a report is for everybody who may look into the directory.
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        self.file
            .as_file()
            .set_permissions(everybody)
            .with_context(cannot)?;
        let path = self.path.clone();
        self.file
            .persist(&path)
            .with_context(|| format!("cannot write the report to {}", path.display()))?;
        Ok(())
    }
}

fn page(report: &Report) -> String {
    let mut body = String::new();
    for (scenario, lines) in report.by_scenario() {
        let _ = write!(body, "<section><h2>{}</h2>", escape(scenario));
        body.push_str(&plots(&lines));
        for table in table::tables(&lines) {
            body.push_str(&cells(&table));
        }
        body.push_str("</section>");
    }
    let mut how = String::new();
    for sentence in table::where_and_how(report) {
        let _ = write!(how, "<p>{}</p>", escape(&sentence));
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>rowlock bench, {at}</title><style>{STYLE}</style></head><body><main><h1>rowlock bench</h1><p>{at}</p>{how}{body}{legend}</main></body></html>\n",
        at = escape(&say::moment(report.at)),
        legend = legend(report),
    )
}

/// What each figure is called, and in what it is shown.
const BARS: [(&str, &str, Unit); 9] = [
    (
        "postgres_cpu_us",
        "CPU of Postgres for each job",
        Unit::Said(" µs"),
    ),
    (
        "client_cpu_us",
        "CPU of the client for each job",
        Unit::Said(" µs"),
    ),
    (
        "wal_bytes",
        "Write-ahead log for each job",
        Unit::Said(" B"),
    ),
    (
        "postgres_cpu_percent",
        "CPU of Postgres, of one core",
        Unit::Said(" %"),
    ),
    (
        "client_cpu_percent",
        "CPU of the client, of one core",
        Unit::Said(" %"),
    ),
    (
        "claim_p50_ms",
        "A claim of 50 jobs, median",
        Unit::Said(" ms"),
    ),
    (
        "worker_rss_max_bytes",
        "Memory of a worker process, at most",
        Unit::Bytes,
    ),
    ("table_bytes_after", "The job table afterwards", Unit::Bytes),
    ("index_bytes_after", "Its indexes afterwards", Unit::Bytes),
];

/// Rates and costs as bars, waiting times as bars, and both over time as lines: what there is.
fn plots(lines: &[&Line]) -> String {
    let mut html = rate_plots(lines);
    let waits: Vec<Bar> = lines.iter().flat_map(|line| wait_bars(line)).collect();
    html.push_str(&plot::bars("Waiting time", Unit::Said(" ms"), &waits));
    for (name, title) in [
        (
            "start_p99_ms",
            "p99 to the start of the handler over time, ms",
        ),
        (
            "postgres_cpu_us",
            "CPU of Postgres for each job over time, µs",
        ),
    ] {
        html.push_str(&plot::lines(title, &series(lines, name)));
    }
    for (name, title, unit) in BARS {
        html.push_str(&plot::bars(title, unit, &bars(lines, name)));
    }
    let kept: Vec<&Line> = lines
        .iter()
        .copied()
        .filter(|l| table::has_history(l))
        .collect();
    let kept = bars(&kept, "history_bytes_after");
    html.push_str(&plot::bars("The history afterwards", Unit::Bytes, &kept));
    html
}

/// Side by side with thousands at once, one by one could not be told apart: what is a small part of the longest has a plot of its own.
fn rate_plots(lines: &[&Line]) -> String {
    const SMALL: f64 = 0.1;
    let all = bars(lines, "per_second");
    let most = all.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let (fast, slow): (Vec<Bar>, Vec<Bar>) =
        all.into_iter().partition(|bar| bar.value >= most * SMALL);
    plot::bars("Jobs per second", Unit::Said(""), &fast)
        + &plot::bars("Jobs per second, the slow ones", Unit::Said(""), &slow)
}

/// A bar for each case that has the figure.
fn bars(lines: &[&Line], name: &str) -> Vec<Bar> {
    let bar = |line: &&Line| {
        Some(Bar {
            label: line.case.clone(),
            value: line.get(name)?,
            spread: line.spread.get(name).copied(),
            is_reference: is_reference(line, lines),
        })
    };
    lines.iter().filter_map(bar).collect()
}

/// Whether it is there to be compared with: the floor, and what other cases name.
fn is_reference(line: &Line, all: &[&Line]) -> bool {
    line.scenario == "floor" || all.iter().any(|other| other.names(&line.case))
}

fn wait_bars(line: &Line) -> Vec<Bar> {
    let bar = |(name, what): (&str, &str)| {
        Some(Bar {
            label: format!("{}, {what}", line.case),
            value: line.get(name)?,
            spread: line.spread.get(name).copied(),
            is_reference: name.starts_with("done"),
        })
    };
    let all = [
        ("start_p50_ms", "start p50"),
        ("start_p99_ms", "start p99"),
        ("start_p999_ms", "start p99.9"),
        ("done_p50_ms", "done p50"),
        ("done_p99_ms", "done p99"),
        ("done_p999_ms", "done p99.9"),
    ];
    all.into_iter().filter_map(bar).collect()
}

fn series(lines: &[&Line], name: &str) -> Vec<Series> {
    let one = |line: &&Line| {
        let at = |window: &super::report::Window| {
            let middle = (window.from_s + window.to_s) / 2.0;
            Some((middle, *window.figures.get(name)?))
        };
        let points: Vec<(f64, f64)> = line.windows.iter().filter_map(at).collect();
        (!points.is_empty()).then(|| Series {
            label: line.case.clone(),
            points,
            end_s: line.windows.last().map_or(0.0, |w| w.to_s),
        })
    };
    lines.iter().filter_map(one).collect()
}

fn cells(table: &Table) -> String {
    let mut html = String::from("<div class=\"wide\"><table><thead><tr>");
    for heading in &table.headings {
        let _ = write!(html, "<th>{}", escape(heading));
    }
    html.push_str("</thead><tbody>");
    for row in &table.rows {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}", escape(cell).replace('\n', "<br>"));
        }
    }
    html.push_str("</tbody></table></div>");
    html
}

/// What the figures mean that this page shows, by their names in the JSON.
fn legend(report: &Report) -> String {
    let used = table::figures_of(&report.lines);
    let mut html = String::from(
        "<details><summary>What the figures mean, by their names in the JSON</summary><div class=\"wide\"><table>",
    );
    let explained = FIGURES
        .iter()
        .filter(|(name, about)| !about.is_empty() && used.contains(name));
    for (name, about) in explained {
        let _ = write!(
            html,
            "<tr><td><code>{}</code><td>{}",
            escape(name),
            escape(about)
        );
    }
    html.push_str("</table></div></details>");
    html
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_no_markup() {
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused_before() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Place::take(dir.path()).is_err());
        assert!(Place::take(&dir.path().join("missing/report.html")).is_err());
        let path = dir.path().join("report.html");
        let place = Place::take(&path).unwrap();
        assert!(!path.exists(), "it appears when it is complete");
        drop(place);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
