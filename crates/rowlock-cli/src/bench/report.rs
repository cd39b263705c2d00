//! The report of a benchmark.

use serde::Serialize;

use super::meter::Cost;
use super::stage::Stage;
use crate::output;

/// One line of the report.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    scenario: String,
    jobs: u64,
    #[serde(flatten)]
    cost: Option<Cost>,
    /// Milliseconds at these shares of all jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
}

/// How long jobs waited, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Latency {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
}

/// All that was measured, and where.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: &'static str,
    server: String,
    settings: Vec<(String, String)>,
    cores: usize,
    lines: Vec<Line>,
}

impl Report {
    pub(super) async fn new(stage: &Stage) -> anyhow::Result<Self> {
        let server = stage
            .sql
            .query_one("show server_version", &[])
            .await?
            .get(0);
        let sql = "select name, setting || coalesce(unit, '') from pg_settings
                    where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'wal_level') order by 1";
        let settings = stage
            .sql
            .query(sql, &[])
            .await?
            .iter()
            .map(|r| (r.get(0), r.get(1)))
            .collect();
        let cores = std::thread::available_parallelism().map_or(0, Into::into);
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            server,
            settings,
            cores,
            lines: Vec::new(),
        })
    }

    pub(super) fn add(
        &mut self,
        scenario: impl Into<String>,
        jobs: u64,
        cost: Option<Cost>,
        latency: Option<Latency>,
    ) {
        let line = Line {
            scenario: scenario.into(),
            jobs,
            cost,
            latency,
        };
        eprintln!("{}", line.text());
        self.lines.push(line);
    }

    pub(super) fn print(&self) {
        println!();
        let mut table = output::table(&[
            "scenario",
            "jobs",
            "jobs/s",
            "p50 ms",
            "p99 ms",
            "max ms",
            "CPU µs pg + client",
            "WAL B/job",
            "without images",
        ]);
        for line in &self.lines {
            let cost = |f: fn(&Cost) -> String| line.cost.as_ref().map_or(String::new(), f);
            let ms = |f: fn(&Latency) -> f64| {
                line.latency
                    .as_ref()
                    .map_or(String::new(), |l| format!("{:.2}", f(l)))
            };
            table.add_row([
                line.scenario.clone(),
                line.jobs.to_string(),
                cost(|c| format!("{:.0}", c.per_second)),
                ms(|l| l.p50_ms),
                ms(|l| l.p99_ms),
                ms(|l| l.max_ms),
                cost(|c| {
                    format!(
                        "{} + {:.1}",
                        c.postgres_cpu_us.map_or("?".into(), |p| format!("{p:.1}")),
                        c.client_cpu_us
                    )
                }),
                cost(|c| format!("{:.0}", c.wal_bytes)),
                cost(|c| {
                    c.wal_bytes_without_images
                        .map_or(String::new(), |w| format!("{w:.0}"))
                }),
            ]);
        }
        output::print_table(&table, "nothing was measured");
        let settings: Vec<String> = self
            .settings
            .iter()
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        println!(
            "\nPostgreSQL {} on {} cores; {}. Each job ran exactly once.",
            self.server,
            self.cores,
            settings.join(" ")
        );
    }
}

impl Line {
    fn text(&self) -> String {
        let rate = self
            .cost
            .as_ref()
            .map_or(String::new(), |c| format!("  {:.0}/s", c.per_second));
        let latency = self.latency.map_or(String::new(), |l| {
            format!("  p50 {:.2} ms  p99 {:.2} ms", l.p50_ms, l.p99_ms)
        });
        format!("{:<40}{:>10} jobs{rate}{latency}", self.scenario, self.jobs)
    }
}

impl Latency {
    /// Of waiting times in microseconds.
    pub(super) fn of(mut us: Vec<u64>) -> Option<Self> {
        us.sort_unstable();
        let at = |share: f64| {
            us.get(((us.len() - 1) as f64 * share) as usize)
                .map(|v| *v as f64 / 1000.0)
        };
        if us.is_empty() {
            return None;
        }
        Some(Self {
            p50_ms: at(0.5)?,
            p99_ms: at(0.99)?,
            max_ms: at(1.0)?,
        })
    }
}
