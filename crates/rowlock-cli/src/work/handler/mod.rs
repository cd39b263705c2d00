//! Handlers that need no code: commands and HTTP endpoints, given to the library's worker.
//!
//! `fields` is what they are told, `verdict` what they may answer; `command` (over `process`, `capture` and `lines`) and `http` (over `signature`,
//! `retry_after` and `tls`) are the two ways.

mod capture;
mod command;
mod fields;
mod http;
mod lines;
mod process;
mod retry_after;
mod signature;
mod tls;
mod verdict;

use std::sync::Arc;

use anyhow::Context;
use rowlock::{Ctx, Outcome, RawJob, WorkerBuilder};

pub(crate) use process::Processes;

use crate::settings::{Action, CommandSettings, HandlerSettings};

/// What runs jobs.
enum Runner {
    Command(CommandSettings, Option<std::time::Duration>, Processes),
    Http(Box<http::Endpoint>),
}

impl Runner {
    async fn run(&self, job: RawJob, ctx: Ctx) -> Outcome {
        match self {
            Self::Command(settings, timeout, processes) => {
                command::run(settings, *timeout, processes, job, ctx).await
            }
            Self::Http(endpoint) => endpoint.run(&job, &ctx).await,
        }
    }
}

/// Gives the worker its handlers.
pub(crate) fn attach(
    mut builder: WorkerBuilder,
    handlers: &[HandlerSettings],
    processes: &Processes,
) -> anyhow::Result<WorkerBuilder> {
    for handler in handlers {
        let runner = match &handler.action {
            Action::Command(settings) => {
                Runner::Command(settings.clone(), handler.timeout, processes.clone())
            }
            Action::Http(settings) => {
                let doing = || format!("the handler for {:?} cannot be used", handler.kind);
                Runner::Http(Box::new(
                    http::Endpoint::new(settings, handler.timeout).with_context(doing)?,
                ))
            }
        };
        let runner = Arc::new(runner);
        let run = move |job: RawJob, ctx: Ctx| {
            let runner = runner.clone();
            async move { runner.run(job, ctx).await }
        };
        builder = match handler.kind.as_str() {
            "*" => builder.handle_any(run),
            kind => builder.handle_kind(kind, run),
        };
    }
    Ok(builder)
}
