//! The report of a benchmark: what was measured in each round, and the middle of it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::figures::{self, FIGURES, Figures};
use super::options::{Options, Scenario};
use super::stage::{SCHEMA, Stage};
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
    /// Cases of the same scenario and round, and how this one is compared with each.
    #[serde(skip)]
    against: Vec<(String, &'static [Ratio])>,
}

/// A figure that says how another one compares with that of another case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ratio {
    name: &'static str,
    of: &'static str,
    /// Whether the largest over time is compared, in place of that of the whole.
    worst: bool,
}

impl Ratio {
    pub(super) const fn new(name: &'static str, of: &'static str) -> Self {
        Self {
            name,
            of,
            worst: false,
        }
    }

    pub(super) const fn of_worst(name: &'static str, of: &'static str) -> Self {
        Self {
            name,
            of,
            worst: true,
        }
    }

    fn value(self, line: &Line) -> Option<f64> {
        if !self.worst {
            return line.get(self.of);
        }
        let values = line.windows.iter().filter_map(|w| w.figures.get(self.of));
        values.copied().reduce(f64::max)
    }
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
    /// Why it is incomplete, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<String>,
    pub(super) server: String,
    pub(super) place: Place,
    pub(super) settings: BTreeMap<String, String>,
    /// The options that the scenarios use, by their names with units.
    pub(super) options: BTreeMap<&'static str, Value>,
    /// Of the machine on which this program runs; the server's only if `place` says so. So is the load.
    pub(super) cores: usize,
    /// Whether the program was built for speed.
    pub(super) optimised: bool,
    /// Processes that wanted a core when it began, by the kernel's count over a minute: what else the machine was doing.
    pub(super) load_before: Option<f64>,
    pub(super) rounds: usize,
    pub(super) lines: Vec<Line>,
    /// The options for people.
    #[serde(skip)]
    pub(super) options_text: Vec<String>,
    #[serde(skip)]
    measured: Vec<Vec<Line>>,
    /// What is being measured.
    #[serde(skip)]
    scenario: Option<Scenario>,
}

/// Which database was measured.
#[derive(Debug, Serialize)]
pub(super) struct Place {
    /// Whether the server was started for this.
    pub(super) private: bool,
    /// Whether its processes were seen on the machine on which this program runs.
    pub(super) same_machine: bool,
    /// Without a password.
    pub(super) database: String,
    pub(super) schema: &'static str,
}

impl Place {
    fn of(stage: &Stage) -> Self {
        Self {
            private: stage.is_private(),
            same_machine: stage.backend().is_some(),
            database: stage.info().to_string(),
            schema: SCHEMA,
        }
    }

    pub(super) fn text(&self) -> String {
        if self.private {
            "a private server, started for this".to_owned()
        } else {
            format!("the schema {} in {}", self.schema, self.database)
        }
    }
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
            against: Vec::new(),
        }
    }

    /// Compares it with another case, whichever of them comes first.
    pub(super) fn against(mut self, case: impl Into<String>, ratios: &'static [Ratio]) -> Self {
        self.against.push((case.into(), ratios));
        self
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.figures.get(name).copied()
    }

    /// Whether a case of this name is compared with.
    pub(super) fn names(&self, case: &str) -> bool {
        self.case != case && self.against.iter().any(|(other, _)| other == case)
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
    pub(super) async fn new(stage: &Stage, options: &Options) -> anyhow::Result<Self> {
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
        let in_force = options.in_force();
        let options_text = in_force.iter().map(|o| o.text.clone()).collect();
        let options = in_force.into_iter().map(|o| (o.name, o.value)).collect();
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            at: jiff::Timestamp::now(),
            failed: None,
            server,
            place: Place::of(stage),
            settings,
            options,
            options_text,
            cores: std::thread::available_parallelism().map_or(0, Into::into),
            optimised: !cfg!(debug_assertions),
            load_before: load(),
            rounds: 0,
            lines: Vec::new(),
            measured: Vec::new(),
            scenario: None,
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

    pub(super) fn begin_scenario(&mut self, scenario: Scenario) {
        self.scenario = Some(scenario);
    }

    /// What is being measured, in the words of the lines that are there.
    pub(super) fn whereabouts(&self) -> String {
        let Some(scenario) = self.scenario.map(Scenario::name) else {
            return "before anything was measured".to_owned();
        };
        let round = self.measured.last().into_iter().flatten();
        let last = round.rev().find(|l| l.scenario == scenario);
        let when = match last {
            Some(line) => format!("{scenario}, after {:?}", line.case),
            None => format!("{scenario}, in its first case"),
        };
        match self.rounds {
            0 | 1 => when,
            round => format!("round {round}, {when}"),
        }
    }

    /// The lines of each scenario, in the order in which they came first.
    pub(super) fn by_scenario(&self) -> Vec<(&'static str, Vec<&Line>)> {
        let mut all: Vec<(&'static str, Vec<&Line>)> = Vec::new();
        for line in &self.lines {
            match all.iter_mut().find(|(name, _)| *name == line.scenario) {
                Some((_, lines)) => lines.push(line),
                None => all.push((line.scenario, vec![line])),
            }
        }
        all
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

    /// Takes the middle of all rounds. With an error the last round may lack some lines.
    pub(super) fn finish(&mut self, failed: Option<&anyhow::Error>) {
        if failed.is_some() {
            self.end_round();
        }
        self.failed = failed.map(|e| say::chain(e.as_ref()));
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
    let (copy, copies) = (
        floor("COPY in, 1 connection"),
        floor("COPY in, 4 connections"),
    );
    let drain = floor("claim and delete");
    for line in round {
        let floor = match (line.scenario, &*line.case) {
            ("drain", _) => drain,
            ("enqueue", "by COPY, 1 producer") => copy,
            ("enqueue", "by COPY, 4 producers") => copies,
            _ => None,
        };
        if let Some((rate, floor)) = line.get("per_second").zip(floor) {
            line.figures.insert("of_floor", rate / floor);
        }
    }
}

/// With the cases that each names, if they were measured.
fn compare_cases(round: &mut [Line]) {
    let ratios: Vec<Figures> = round.iter().map(|line| ratios(line, round)).collect();
    for (line, ratios) in round.iter_mut().zip(ratios) {
        line.figures.extend(ratios);
    }
}

fn ratios(line: &Line, round: &[Line]) -> Figures {
    let mut figures = Figures::new();
    for (case, ratios) in &line.against {
        let base = round
            .iter()
            .find(|l| l.scenario == line.scenario && l.case == *case);
        let Some(base) = base else {
            continue;
        };
        for ratio in *ratios {
            if let Some((value, base)) = ratio.value(line).zip(base.get(ratio.of)) {
                figures.insert(ratio.name, value / base);
            }
        }
    }
    figures
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
        const OF_ONE: &[Ratio] = &[Ratio::new("of_one", "per_second")];
        let mut round = [
            line("two", 30.0).against("one", OF_ONE),
            line("one", 20.0).against("one", OF_ONE),
            line("three", 30.0).against("none such", OF_ONE),
        ];
        compare_cases(&mut round);
        let shares: Vec<_> = round.iter().map(|l| l.get("of_one")).collect();
        assert_eq!(shares, [Some(1.5), Some(1.0), None]);
    }

    #[test]
    fn the_worst_stretch_is_compared_with_the_whole() {
        const WORST: &[Ratio] = &[Ratio::of_worst("of_clean", "per_second")];
        let mut pinned = line("pinned", 15.0).against("clean", WORST);
        pinned.windows = [10.0, 40.0, 20.0]
            .map(|v| Window {
                from_s: 0.0,
                to_s: 1.0,
                figures: Figures::from([("per_second", v)]),
            })
            .into();
        let mut round = [line("clean", 10.0), pinned];
        compare_cases(&mut round);
        assert_eq!(round[1].get("of_clean"), Some(4.0));
        assert_eq!(round[0].get("of_clean"), None);
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
