//! Whether the schema is there, in the version that this program knows.

use super::exam::Exam;
use super::finding::{Finding, Severity};

pub(super) async fn check(exam: &Exam) -> anyhow::Result<Vec<Finding>> {
    let (status, schema) = (&exam.status, exam.schema());
    let found = |code, severity, sentence: String, advice: &str| {
        let finding = Finding::new("schema", code, severity, sentence)
            .evidence("version", status.current)
            .evidence("known", status.latest);
        Ok(vec![finding.advice(advice)])
    };
    if status.current == 0 {
        return found(
            "schema_missing",
            Severity::Critical,
            format!("there is no schema {schema} in this database, or this role may not see it"),
            "run `rowlock migrate`, or name the right database and --schema",
        );
    }
    if status.current < status.latest {
        return found(
            "schema_behind",
            Severity::Critical,
            format!(
                "schema {schema} is at version {}, this program needs {}",
                status.current, status.latest
            ),
            "run `rowlock migrate`",
        );
    }
    if status.current > status.latest {
        return found(
            "schema_ahead",
            Severity::Warning,
            format!(
                "schema {schema} is at version {}, this program knows {} and no later one",
                status.current, status.latest
            ),
            "upgrade this program and the workers that are as old",
        );
    }
    if !status.functions_current {
        return found(
            "functions_differ",
            Severity::Warning,
            format!("the functions in schema {schema} are not those of this program"),
            "run `rowlock migrate`",
        );
    }
    Ok(vec![Finding::ok(
        "schema",
        format!("{schema} is up to date (version {})", status.current),
    )])
}
