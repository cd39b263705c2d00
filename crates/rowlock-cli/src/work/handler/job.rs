//! A job as a task: what a handler is told of it, as environment for a command, as JSON for an endpoint.

use jiff::Timestamp;
use opentelemetry::KeyValue;
use rowlock::{CancelReason, Ctx, RawJob};
use serde::Serialize;
use serde_json::value::RawValue;

use super::task::Task;
use crate::traces::Facts;

/// A job that is to be handled.
pub(super) struct JobTask {
    pub(super) job: RawJob,
    pub(super) ctx: Ctx,
}

impl Task for JobTask {
    fn key(&self) -> String {
        self.ctx.key()
    }

    fn payload(&self) -> &str {
        &self.job.payload
    }

    fn trace(&self) -> Option<&str> {
        self.ctx.trace()
    }

    fn facts(&self) -> Facts {
        let ctx = &self.ctx;
        Facts {
            name: format!("process {}", ctx.kind()),
            attributes: vec![
                KeyValue::new("messaging.system", "rowlock"),
                KeyValue::new("messaging.operation.name", "process"),
                KeyValue::new("messaging.operation.type", "process"),
                KeyValue::new("messaging.destination.name", ctx.queue().to_owned()),
                KeyValue::new("messaging.message.id", ctx.id().to_string()),
                KeyValue::new("rowlock.kind", ctx.kind().to_owned()),
                KeyValue::new("rowlock.attempt", i64::from(ctx.attempt())),
                KeyValue::new("rowlock.failures", i64::from(ctx.failures())),
            ],
        }
    }

    fn is_given_back(&self) -> bool {
        matches!(self.ctx.cancel_reason(), Some(CancelReason::Shutdown))
    }

    fn body(&self) -> Result<String, serde_json::Error> {
        body(&self.job, &self.ctx)
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        environment(&self.ctx)
    }

    async fn told_to_stop(&self) -> CancelReason {
        self.ctx.cancelled().await
    }
}

/// The body of a request. Everything is in the body, so that the signature covers everything.
#[derive(Serialize)]
struct Envelope<'a> {
    id: i64,
    kind: &'a str,
    queue: &'a str,
    attempt: i32,
    failures: i16,
    crashes: i16,
    max_attempts: i16,
    priority: i16,
    key: String,
    run_at: Option<Timestamp>,
    created_at: Option<Timestamp>,
    tags: &'a [String],
    metadata: serde_json::Map<String, serde_json::Value>,
    payload: &'a RawValue,
}

/// The job as an endpoint gets it.
fn body(job: &RawJob, ctx: &Ctx) -> Result<String, serde_json::Error> {
    let payload: &RawValue = serde_json::from_str(&job.payload)?;
    serde_json::to_string(&Envelope {
        id: ctx.id().0,
        kind: ctx.kind(),
        queue: ctx.queue(),
        attempt: ctx.attempt(),
        failures: ctx.failures(),
        crashes: ctx.crashes(),
        max_attempts: ctx.max_attempts(),
        priority: ctx.priority(),
        key: ctx.key(),
        run_at: ctx.run_at(),
        created_at: ctx.created_at(),
        tags: ctx.tags(),
        metadata: ctx.metadata(),
        payload,
    })
}

/// The job as a command gets it, beside the payload.
fn environment(ctx: &Ctx) -> Vec<(&'static str, String)> {
    let time = |at: Option<Timestamp>| at.map_or_else(String::new, |at| at.to_string());
    // Texts and plain maps always serialise.
    let tags = serde_json::to_string(ctx.tags()).unwrap_or_default();
    let metadata = serde_json::to_string(&ctx.metadata()).unwrap_or_default();
    vec![
        ("ROWLOCK_ID", ctx.id().to_string()),
        ("ROWLOCK_KIND", ctx.kind().to_owned()),
        ("ROWLOCK_QUEUE", ctx.queue().to_owned()),
        ("ROWLOCK_SCHEMA", ctx.client().schema().to_string()),
        ("ROWLOCK_ATTEMPT", ctx.attempt().to_string()),
        ("ROWLOCK_FAILURES", ctx.failures().to_string()),
        ("ROWLOCK_CRASHES", ctx.crashes().to_string()),
        ("ROWLOCK_MAX_ATTEMPTS", ctx.max_attempts().to_string()),
        (
            "ROWLOCK_LAST_ATTEMPT",
            u8::from(ctx.is_last_attempt()).to_string(),
        ),
        ("ROWLOCK_PRIORITY", ctx.priority().to_string()),
        ("ROWLOCK_KEY", ctx.key()),
        ("ROWLOCK_RUN_AT", time(ctx.run_at())),
        ("ROWLOCK_CREATED_AT", time(ctx.created_at())),
        ("ROWLOCK_TAGS", tags),
        ("ROWLOCK_METADATA", metadata),
    ]
}
