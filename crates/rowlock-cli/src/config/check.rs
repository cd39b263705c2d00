//! `rowlock config check`: everything that is wrong with a configuration, each with its line.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::settings::{self, Level, Loaded, Overrides};

/// Say everything that is wrong with a configuration. Exits with 1 if it cannot be used.
///
/// What a configuration refers to and is not here (a variable, a file, a command) is a warning: it may be there where the configuration is
/// used. Connects to nothing.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock config check rowlock.toml\n  \
    rowlock config check --json rowlock.toml")]
pub(crate) struct Check {
    /// The configuration; rowlock.toml if there is one here.
    #[arg(env = "ROWLOCK_CONFIG", value_name = "FILE")]
    file: Option<PathBuf>,
}

/// What `rowlock config check` answers with `--json`.
#[derive(Serialize)]
struct Answer<'a> {
    file: &'a str,
    ok: bool,
    problems: Vec<ProblemAnswer<'a>>,
}

#[derive(Serialize)]
struct ProblemAnswer<'a> {
    level: &'static str,
    line: Option<usize>,
    column: Option<usize>,
    message: &'a str,
    help: Option<&'a str>,
}

impl Check {
    pub(super) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let file = settings::file(self.file.as_deref())?;
        let mut loaded = Loaded::read(&file, &Overrides::from_environment())?;
        for problem in &mut loaded.problems {
            if problem.level == Level::Missing {
                problem.level = Level::Warning;
            }
        }
        let ok = !loaded.is_wrong();
        match global.format() {
            Format::Json => output::json(&answer(&loaded, ok))?,
            Format::Table => print(&loaded, ok),
        }
        Ok(if ok { Exit::Success } else { Exit::Failure })
    }
}

fn print(loaded: &Loaded, ok: bool) {
    let mut all = loaded.rendered(|_| true);
    let name = &loaded.source.name;
    all.push(match (ok, all.len()) {
        (true, 0) => format!("{name} is fine"),
        (true, n) => format!("{name} can be used, with {n} warning{}", plural(n)),
        (false, n) => format!("{name} cannot be used: {n} problem{}", plural(n)),
    });
    output::text(&format!("{}\n", all.join("\n")));
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

fn answer(loaded: &Loaded, ok: bool) -> Answer<'_> {
    let problems = loaded.problems.iter().map(|problem| {
        let place = problem
            .span
            .as_ref()
            .map(|span| loaded.source.place(span.start));
        ProblemAnswer {
            level: match problem.level {
                Level::Warning => "warning",
                Level::Error | Level::Missing => "error",
            },
            line: place.map(|(line, _)| line),
            column: place.map(|(_, column)| column),
            message: &problem.message,
            help: problem.help.as_deref(),
        }
    });
    Answer {
        file: &loaded.source.name,
        ok,
        problems: problems.collect(),
    }
}
