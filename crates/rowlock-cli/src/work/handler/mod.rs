//! Handlers that need no code: commands and HTTP endpoints, given to the library's worker and to tables that are queues.
//!
//! `task` is what they are told, of a job (`job`) or a row (`row`); `verdict` is what they may answer; `command` (over `process`,
//! `capture` and `lines`) and `http` (over `signature` and `retry_after`) are the two ways.

mod capture;
mod command;
mod http;
mod job;
mod lines;
mod process;
mod retry_after;
mod row;
mod signature;
mod task;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rowlock::{Ctx, Outcome, RawJob, TableQueueBuilder, TableRow, WorkerBuilder};
use serde_json::value::RawValue;

pub(crate) use process::Processes;

use crate::settings::{Action, CommandSettings, HandlerSettings, TableSettings};
use crate::traces::AttemptSpan;
use job::JobTask;
use row::{RowTask, TableFacts};
use task::Task;

/// What runs jobs and rows.
enum Runner {
    Command(CommandSettings, Option<Duration>, Processes),
    Http(Box<http::Endpoint>),
}

impl Runner {
    fn new(
        action: &Action,
        timeout: Option<Duration>,
        processes: &Processes,
    ) -> anyhow::Result<Self> {
        Ok(match action {
            Action::Command(settings) => {
                Self::Command(settings.clone(), timeout, processes.clone())
            }
            Action::Http(settings) => Self::Http(Box::new(http::Endpoint::new(settings, timeout)?)),
        })
    }

    async fn run(&self, task: &impl Task) -> Outcome {
        let span = AttemptSpan::begin(|| task.facts(), task.trace());
        let outcome = match self {
            Self::Command(settings, timeout, processes) => {
                command::run(settings, *timeout, processes, task, &span).await
            }
            Self::Http(endpoint) => endpoint.run(task, &span).await,
        };
        span.end(&outcome, task.is_given_back());
        outcome
    }
}

/// Gives the worker its handlers.
pub(crate) fn attach(
    mut builder: WorkerBuilder,
    handlers: &[HandlerSettings],
    processes: &Processes,
) -> anyhow::Result<WorkerBuilder> {
    for handler in handlers {
        let runner = Runner::new(&handler.action, handler.timeout, processes)
            .with_context(|| format!("the handler for {:?} cannot be used", handler.kind))?;
        let runner = Arc::new(runner);
        let run = move |job: RawJob, ctx: Ctx| {
            let runner = runner.clone();
            async move { runner.run(&JobTask { job, ctx }).await }
        };
        builder = match handler.kind.as_str() {
            "*" => builder.handle_any(run),
            kind => builder.handle_kind(kind, run),
        };
    }
    Ok(builder)
}

/// How much longer than its own time limit a handler may take: a command that was told to stop, then killed. The library's limit would
/// free the row before the process is gone.
const BEYOND: Duration = Duration::from_secs(10);

/// A table as the library takes it, with its handler.
pub(crate) fn for_table(
    table: &TableSettings,
    schema: &str,
    processes: &Processes,
) -> anyhow::Result<TableQueueBuilder> {
    let runner = Arc::new(Runner::new(&table.action, Some(table.timeout), processes)?);
    let beyond = match &table.action {
        Action::Command(command) => BEYOND + command.kill_grace,
        Action::Http(_) => BEYOND,
    };
    let facts = Arc::new(TableFacts {
        table: table.name.clone(),
        schema: schema.to_owned(),
        park_after: table.park_after(),
    });
    let run = move |row: TableRow<Box<RawValue>>| {
        let (runner, facts) = (runner.clone(), facts.clone());
        async move { runner.run(&RowTask { facts, row }).await }
    };
    Ok(table.builder(beyond).handler(run))
}
