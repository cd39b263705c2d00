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
use super::table;
use crate::say;
use plot::{Bar, Series};

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
    let mut scenarios: Vec<&str> = Vec::new();
    for line in &report.lines {
        if !scenarios.contains(&line.scenario) {
            scenarios.push(line.scenario);
        }
    }
    for scenario in scenarios {
        let lines: Vec<&Line> = report
            .lines
            .iter()
            .filter(|l| l.scenario == scenario)
            .collect();
        let _ = write!(body, "<section><h2>{}</h2>", escape(scenario));
        body.push_str(&plots(&lines));
        body.push_str(&figures_table(&lines));
        body.push_str(&waits_table(&lines));
        body.push_str("</section>");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>rowlock bench, {at}</title><style>{STYLE}</style></head><body><main><h1>rowlock bench</h1><p>{at}. {how}</p>{body}{legend}</main></body></html>\n",
        at = escape(&say::moment(report.at)),
        how = escape(&table::where_and_how(report)),
        legend = legend(),
    )
}

/// Rates as bars, waiting times as bars, and both over time as lines: what there is.
fn plots(lines: &[&Line]) -> String {
    let mut html = String::new();
    let bars = |name: &str| -> Vec<Bar> {
        let bar = |line: &&Line| {
            Some(Bar {
                label: line.case.clone(),
                value: line.get(name)?,
                spread: line.spread.get(name).copied(),
                is_reference: is_reference(line),
            })
        };
        lines.iter().filter_map(bar).collect()
    };
    // Side by side with thousands at once, one by one could not be told apart.
    let (many, single): (Vec<Bar>, Vec<Bar>) = bars("per_second")
        .into_iter()
        .partition(|bar| is_many_at_once(&bar.label));
    html.push_str(&plot::bars("Jobs per second", "", &single));
    html.push_str(&plot::bars("Jobs per second, many at once", "", &many));
    for (name, title, unit) in [
        ("postgres_cpu_percent", "CPU of Postgres, of one core", " %"),
        ("claim_p50_ms", "A claim of 50 jobs, median", " ms"),
    ] {
        html.push_str(&plot::bars(title, unit, &bars(name)));
    }
    let waits: Vec<Bar> = lines.iter().flat_map(|line| wait_bars(line)).collect();
    html.push_str(&plot::bars("Waiting time", " ms", &waits));
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
    html
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

/// Of the ways to enqueue.
fn is_many_at_once(case: &str) -> bool {
    ["plain INSERT of", "batches of", "by COPY"]
        .iter()
        .any(|start| case.starts_with(start))
}

/// Whether it is there to be compared with.
fn is_reference(line: &Line) -> bool {
    line.scenario == "floor"
        || ["plain", "alone", "nobody"]
            .iter()
            .any(|word| line.case.contains(word))
}

fn figures_table(lines: &[&Line]) -> String {
    let mut html = String::from(
        "<div class=\"wide\"><table><thead><tr><th>case<th>jobs<th>jobs/s<th>compared<th>CPU µs, Postgres + client<th>WAL B (no images)\
         <th>table + indexes</thead><tbody>",
    );
    for line in lines {
        let cells = [
            line.case.clone(),
            say::number(line.jobs),
            table::rate(line),
            table::compared(line),
            table::cpu(line),
            table::wal(line),
            table::sizes(line),
        ];
        html.push_str("<tr>");
        for cell in cells {
            let _ = write!(html, "<td>{}", escape(&cell));
        }
    }
    html.push_str("</tbody></table></div>");
    html
}

/// All percentiles, where there are any.
fn waits_table(lines: &[&Line]) -> String {
    let rows: Vec<[String; 7]> = lines.iter().flat_map(|l| table::waits(l)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<div class=\"wide\"><table><thead><tr><th>ms<th>until<th>p50<th>p90<th>p99<th>p99.9<th>max</thead><tbody>",
    );
    for row in rows {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}", escape(&cell));
        }
    }
    html.push_str("</tbody></table></div>");
    html
}

/// What the figures of the JSON mean.
fn legend() -> String {
    let mut html = String::from(
        "<details><summary>What the figures mean</summary><div class=\"wide\"><table>",
    );
    for (name, about) in FIGURES.iter().filter(|(_, about)| !about.is_empty()) {
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
