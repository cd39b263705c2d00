//! What a check found, and how it is told.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::exit::Exit;
use crate::say;
use crate::style::{Tone, paint};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    Ok,
    /// The check could not look: nobody knows.
    Unknown,
    Warning,
    Critical,
}

impl Severity {
    pub(super) fn exit(self) -> Exit {
        match self {
            Self::Ok => Exit::Success,
            Self::Unknown | Self::Warning => Exit::Warning,
            Self::Critical => Exit::Critical,
        }
    }

    fn word(self) -> (&'static str, Tone) {
        match self {
            Self::Ok => ("ok", Tone::Good),
            Self::Unknown => ("unknown", Tone::Warn),
            Self::Warning => ("warning", Tone::Warn),
            Self::Critical => ("critical", Tone::Bad),
        }
    }
}

/// One thing that a check found.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    /// Which check.
    check: &'static str,
    /// What exactly, for programs; stable.
    pub(super) code: &'static str,
    pub(super) severity: Severity,
    /// For people.
    sentence: String,
    /// What it rests on; what is in it depends on the code.
    evidence: Map<String, Value>,
    /// What to do about it; null when nothing is to be done.
    advice: Option<String>,
}

impl Finding {
    pub(super) fn new(
        check: &'static str,
        code: &'static str,
        severity: Severity,
        sentence: impl Into<String>,
    ) -> Self {
        Self {
            check,
            code,
            severity,
            sentence: sentence.into(),
            evidence: Map::new(),
            advice: None,
        }
    }

    pub(super) fn ok(check: &'static str, sentence: impl Into<String>) -> Self {
        Self::new(check, "ok", Severity::Ok, sentence)
    }

    pub(super) fn could_not_look(check: &'static str, error: &anyhow::Error) -> Self {
        let finding = Self::new(
            check,
            "could_not_look",
            Severity::Unknown,
            format!("could not look: {error}"),
        );
        finding.advice(
            "try as a superuser or a member of pg_monitor, or leave the check out with --skip",
        )
    }

    pub(super) fn evidence(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.evidence.insert(name.to_owned(), value);
        }
        self
    }

    pub(super) fn advice(mut self, what: impl Into<String>) -> Self {
        self.advice = Some(what.into());
        self
    }
}

/// All findings as text.
pub(super) fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for f in findings {
        let (word, tone) = f.severity.word();
        let _ = writeln!(
            text,
            "{} {} {}",
            paint(format_args!("{word:<8}"), tone),
            paint(format_args!("{:<8}", f.check), Tone::Strong),
            say::plain(&f.sentence)
        );
        let indent = " ".repeat(18);
        if !f.evidence.is_empty() && f.severity != Severity::Ok {
            let evidence: Vec<String> = f
                .evidence
                .iter()
                .map(|(k, v)| format!("{k}={}", short(v)))
                .collect();
            let _ = writeln!(text, "{indent}{}", paint(evidence.join(", "), Tone::Dim));
        }
        if let Some(advice) = &f.advice {
            let _ = writeln!(
                text,
                "{indent}→ {}",
                say::plain(advice).replace('\n', &format!("\n{indent}  "))
            );
        }
    }
    text
}

fn short(value: &Value) -> String {
    match value {
        Value::String(text) => say::clip(text, 160),
        other => say::clip(&other.to_string(), 160),
    }
}
