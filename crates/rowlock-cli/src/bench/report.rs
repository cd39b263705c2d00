//! The report of a benchmark: what was measured in each round, and the middle of it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::{self, FIGURES, Figures};
use super::stage::Stage;
use crate::say;

/// What one case of a scenario gave.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Line {
    pub(super) scenario: &'static str,
    pub(super) case: String,
    pub(super) jobs: u64,
    /// How many rounds the figures are the middle of.
    pub(super) rounds: usize,
    #[serde(flatten)]
    pub(super) figures: Figures,
    /// The smallest and the largest value of each figure, if there were several rounds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) spread: BTreeMap<&'static str, [f64; 2]>,
    /// The same over time, where it matters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) windows: Vec<Window>,
    /// The figure and the case of the same scenario and round that says how this one compares.
    #[serde(skip)]
    against: Option<(&'static str, String)>,
}

/// A stretch of time within a case.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Window {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// All that was measured, and where.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) version: &'static str,
    pub(super) at: jiff::Timestamp,
    pub(super) server: String,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) cores: usize,
    /// Whether the program was built for speed.
    pub(super) optimised: bool,
    /// Processes that wanted a core when it began, by the kernel's count over a minute: what else the machine was doing.
    pub(super) load_before: Option<f64>,
    pub(super) rounds: usize,
    pub(super) lines: Vec<Line>,
    #[serde(skip)]
    measured: Vec<Vec<Line>>,
}

impl Line {
    pub(super) fn new(
        scenario: &'static str,
        case: impl Into<String>,
        jobs: u64,
        figures: Figures,
    ) -> Self {
        Self {
            scenario,
            case: case.into(),
            jobs,
            rounds: 1,
            figures,
            spread: BTreeMap::new(),
            windows: Vec::new(),
            against: None,
        }
    }

    /// Compares the rate with that of another case, whichever of them comes first.
    pub(super) fn against(self, figure: &'static str, case: impl Into<String>) -> Self {
        Self {
            against: Some((figure, case.into())),
            ..self
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.figures.get(name).copied()
    }

    /// For those who watch.
    fn text(&self) -> String {
        let mut text = format!("{:<10}{:<56}", self.scenario, self.case);
        if let Some(rate) = self.get("per_second") {
            text.push_str(&format!("{:>10}/s", say::number(rate.round() as u64)));
        }
        for (name, label) in [
            ("start_p50_ms", "start p50"),
            ("start_p99_ms", "p99"),
            ("done_p50_ms", "done p50"),
            ("done_p99_ms", "p99"),
            ("claim_p50_ms", "claim p50"),
        ] {
            if let Some(ms) = self.get(name) {
                text.push_str(&format!("  {label} {ms:.2} ms"));
            }
        }
        if let Some(percent) = self.get("postgres_cpu_percent") {
            text.push_str(&format!("  Postgres {percent:.2} % of a core"));
        }
        text
    }
}

impl Report {
    pub(super) async fn new(stage: &Stage) -> anyhow::Result<Self> {
        let server = stage
            .sql
            .query_one("show server_version", &[])
            .await?
            .get(0);
        let sql = "select name, current_setting(name) from pg_settings
                    where name in ('autovacuum', 'fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'wal_level')";
        let settings = stage
            .sql
            .query(sql, &[])
            .await?
            .iter()
            .map(|r| (r.get(0), r.get(1)))
            .collect();
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            at: jiff::Timestamp::now(),
            server,
            settings,
            cores: std::thread::available_parallelism().map_or(0, Into::into),
            optimised: !cfg!(debug_assertions),
            load_before: load(),
            rounds: 0,
            lines: Vec::new(),
            measured: Vec::new(),
        })
    }

    pub(super) fn begin_round(&mut self) {
        self.rounds += 1;
        self.measured.push(Vec::new());
    }

    pub(super) fn add(&mut self, line: Line) {
        let known = |name: &&str| FIGURES.iter().any(|(known, _)| known == name);
        debug_assert!(line.figures.keys().all(known), "{line:?}");
        // Where standard error is gone, there is nobody to tell.
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("{}\n", line.text()).as_bytes(),
        );
        if let Some(round) = self.measured.last_mut() {
            round.push(line);
        }
    }

    /// The number of this round, from 0 on.
    pub(super) fn round(&self) -> usize {
        self.rounds.saturating_sub(1)
    }

    /// Compares what was measured in this round.
    pub(super) fn end_round(&mut self) {
        let Some(round) = self.measured.last_mut() else {
            return;
        };
        compare_with_floor(round);
        compare_cases(round);
    }

    /// Takes the middle of all rounds.
    pub(super) fn finish(&mut self) {
        self.lines = middle_of(&self.measured);
    }
}

/// With the floor of the same round, if it was measured.
fn compare_with_floor(round: &mut [Line]) {
    let floor = |case: &str| {
        let line = round
            .iter()
            .find(|l| l.scenario == "floor" && l.case == case)?;
        line.get("per_second")
    };
    let (copy, drain) = (floor("COPY in, 1 connection"), floor("claim and delete"));
    for line in round {
        let floor = match (line.scenario, &*line.case) {
            ("drain", _) => drain,
            ("enqueue", "by COPY") => copy,
            _ => None,
        };
        if let Some((rate, floor)) = line.get("per_second").zip(floor) {
            line.figures.insert("of_floor", rate / floor);
        }
    }
}

/// With the case that each names, if it was measured.
fn compare_cases(round: &mut [Line]) {
    let rates: Vec<_> = round
        .iter()
        .filter_map(|l| Some(((l.scenario, l.case.clone()), l.get("per_second")?)))
        .collect();
    for line in round {
        let Some((figure, case)) = &line.against else {
            continue;
        };
        let base = rates
            .iter()
            .find(|((scenario, name), _)| *scenario == line.scenario && name == case);
        if let Some((rate, (_, base))) = line.get("per_second").zip(base) {
            line.figures.insert(figure, rate / base);
        }
    }
}

/// One line for each case, in the order in which they came first.
fn middle_of(rounds: &[Vec<Line>]) -> Vec<Line> {
    let mut cases: Vec<Vec<&Line>> = Vec::new();
    for line in rounds.iter().flatten() {
        let same = |c: &&mut Vec<&Line>| {
            c.iter()
                .any(|l| (l.scenario, &l.case) == (line.scenario, &line.case))
        };
        match cases.iter_mut().find(same) {
            Some(case) => case.push(line),
            None => cases.push(vec![line]),
        }
    }
    cases.iter().map(|case| middle_line(case)).collect()
}

fn middle_line(case: &[&Line]) -> Line {
    let all: Vec<&Figures> = case.iter().map(|l| &l.figures).collect();
    let (figures, spread) = figures::middle(&all);
    let windows = (0..case[0].windows.len()).map(|n| {
        let all: Vec<&Figures> = case
            .iter()
            .filter_map(|l| Some(&l.windows.get(n)?.figures))
            .collect();
        Window {
            figures: figures::middle(&all).0,
            ..case[0].windows[n].clone()
        }
    });
    Line {
        figures,
        spread,
        rounds: case.len(),
        windows: windows.collect(),
        ..case[0].clone()
    }
}

/// What the kernel calls the load of the last minute.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(case: &str, rate: f64) -> Line {
        Line::new("drain", case, 1, Figures::from([("per_second", rate)]))
    }

    #[test]
    fn a_case_is_compared_with_one_that_comes_later() {
        let mut round = [
            line("two", 30.0).against("of_one", "one"),
            line("one", 20.0).against("of_one", "one"),
            line("three", 30.0).against("of_one", "none such"),
        ];
        compare_cases(&mut round);
        let shares: Vec<_> = round.iter().map(|l| l.get("of_one")).collect();
        assert_eq!(shares, [Some(1.5), Some(1.0), None]);
    }

    #[test]
    fn rounds_become_one_line_for_each_case() {
        let rounds = [
            vec![line("a", 1.0), line("b", 10.0)],
            vec![line("a", 5.0), line("b", 20.0)],
            vec![line("a", 3.0), line("b", 60.0)],
        ];
        let lines = middle_of(&rounds);
        let seen: Vec<_> = lines
            .iter()
            .map(|l| {
                (
                    &*l.case,
                    l.rounds,
                    l.figures["per_second"],
                    l.spread["per_second"],
                )
            })
            .collect();
        assert_eq!(
            seen,
            [("a", 3, 3.0, [1.0, 5.0]), ("b", 3, 20.0, [10.0, 60.0])]
        );
    }
}
