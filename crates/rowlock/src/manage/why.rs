//! Why is this job not running?

use std::fmt;

use serde::Serialize;
use tokio_postgres::types::Type;

use super::row;
use crate::client::Client;
use crate::error::Result;
use crate::job::JobId;

/// Why a job is not running, or that it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Why {
    /// The job.
    pub id: JobId,
    /// The reasons, the one that matters most first; never none.
    pub reasons: Vec<Reason>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Reason {
    /// For programs: `not_found`, `done`, `cancelled`, `expired`, `dead`, `running`, `cancel_asked`, `locked`, `cancel_pending`,
    /// `expiry_passed`, `queue_paused`, `kind_paused`, `scheduled`, `lease_expired`, `no_worker`, `no_worker_for_kind`,
    /// `workers_full`, `behind`, `ready`; a newer database may know more.
    pub code: String,
    /// For people.
    pub sentence: String,
    /// The evidence; what is in it depends on the code.
    pub detail: serde_json::Value,
}

impl Why {
    /// The reason with this code, if it is one.
    #[must_use]
    pub fn reason(&self, code: &str) -> Option<&Reason> {
        self.reasons.iter().find(|r| r.code == code)
    }
}

impl fmt::Display for Why {
    /// A line for each reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, reason) in self.reasons.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&reason.sentence)?;
        }
        Ok(())
    }
}

impl Client {
    /// Why a job is not running: paused, for later, behind others, without a worker, locked, ended.
    ///
    /// ```no_run
    /// # async fn f(client: rowlock::Client, id: rowlock::JobId) -> rowlock::Result<()> {
    /// let why = client.why(id).await?;
    /// println!("{why}");
    /// if why.reason("queue_paused").is_some() {
    ///     client.resume("mail").await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn why(&self, id: JobId) -> Result<Why> {
        let rows = self
            .rows(
                "find out why a job is not running",
                "select code, sentence, detail from rowlock.why($1)",
                &[(&id.0, Type::INT8)],
            )
            .await?;
        let reasons = rows
            .iter()
            .map(|r| {
                Ok(Reason {
                    code: r.get("code"),
                    sentence: r.get("sentence"),
                    detail: row::json(r, "detail")?.unwrap_or_default(),
                })
            })
            .collect::<Result<_>>()?;
        Ok(Why { id, reasons })
    }
}
