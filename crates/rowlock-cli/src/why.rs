//! `rowlock why`: why is this job not running?

use std::fmt::Write as _;

use clap::Args;
use rowlock::JobId;
use rowlock::manage::Why as Answer;
use serde_json::Value;

use crate::Global;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::say;
use crate::style::{Tone, paint};

/// Why is this job not running? Each reason with its evidence, the one that matters most first.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock why 4711\n  \
    rowlock why 4711 --json | jq -r '.reasons[0].code'\n\n\
    Exits with 3 when there is no such job.")]
pub(crate) struct Why {
    /// The job's id.
    #[arg(value_parser = crate::jobs::id)]
    id: JobId,
}

impl Why {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let why = global.database.client()?.why(self.id).await?;
        match global.format() {
            Format::Json => output::json(&why)?,
            Format::Table => output::text(&text(&why)),
        }
        Ok(match why.reason("not_found") {
            Some(_) => Exit::NothingFound,
            None => Exit::Success,
        })
    }
}

fn text(why: &Answer) -> String {
    let mut text = format!("{}\n", paint(format_args!("job {}", why.id), Tone::Strong));
    for reason in &why.reasons {
        let sentence = say::plain(&reason.sentence);
        let _ = writeln!(text, "\n{}", paint(sentence, tone(&reason.code)));
        let evidence: Vec<String> = evidence(&reason.detail);
        if !evidence.is_empty() {
            let line = format!("  {}: {}", reason.code, evidence.join(", "));
            let _ = writeln!(text, "{}", paint(line, Tone::Dim));
        }
    }
    text
}

fn tone(code: &str) -> Tone {
    match code {
        "running" | "ready" | "done" => Tone::Good,
        "scheduled" | "behind" => Tone::Plain,
        "dead" | "not_found" | "no_worker" | "no_worker_for_kind" => Tone::Bad,
        _ => Tone::Warn,
    }
}

/// `name=value`, for what is known.
fn evidence(detail: &Value) -> Vec<String> {
    let Some(detail) = detail.as_object() else {
        return Vec::new();
    };
    detail
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name}={}", say::clip(text, 120)),
            other => format!("{name}={}", say::clip(&other.to_string(), 120)),
        })
        .collect()
}
