//! `rowlock enqueue`: one job from the command line, or many from a file.

mod bulk;
mod line;

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use rowlock::{Backoff, NewJob, OnConflict};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Global;
use crate::backoff::parse_backoff;
use crate::exit::{Exit, mistake};
use crate::output::{self, Format};
use crate::units::parse_duration;

/// Enqueue a job, or many from a file.
///
/// The payload is a JSON object: as an argument, or from standard input with `-`. Without one it is {}.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rowlock enqueue email.welcome '{\"user_id\": 7}' --queue mail --delay 10m\n  \
    jq -c .report big.json | rowlock enqueue report - --priority 2 --tag nightly\n  \
    rowlock enqueue sync '{\"account\": 7}' --unique account-7 --replace\n  \
    rowlock enqueue import '{}' --backoff 'exponential 30s, max 1h' --max-attempts 8\n  \
    rowlock enqueue --bulk jobs.ndjson          # one {\"kind\": …, \"payload\": {…}} a line")]
pub(crate) struct Enqueue {
    /// The kind of job.
    #[arg(
        required_unless_present = "bulk",
        conflicts_with = "bulk",
        value_name = "KIND"
    )]
    kind: Option<String>,

    /// The payload as JSON, or - for standard input.
    #[arg(value_name = "JSON")]
    payload: Option<String>,

    /// Load many jobs, one JSON object a line, or - for standard input: all or none. Each has a "kind", and may have what
    /// rowlock.enqueue_many takes: payload, queue, priority, run_at, delay_ms, max_attempts, timeout_ms, expires_at, expires_in_ms, backoff,
    /// tags, metadata, unique_key, on_conflict, trace.
    #[arg(long, value_name = "FILE")]
    bulk: Option<PathBuf>,

    /// With --bulk: load the good lines and leave the bad ones out. They are named, and the exit code is 1.
    #[arg(long, requires = "bulk")]
    skip_bad: bool,

    #[command(flatten)]
    options: Options,
}

/// The options of one job; lines of a file have their own.
#[derive(Args)]
#[group(id = "options", conflicts_with = "bulk", multiple = true)]
struct Options {
    /// The queue to put it in [default: default].
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// From -4 to 4; higher runs first.
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    priority: Option<i32>,

    /// Not before this long from now, such as 10m.
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    delay: Option<Duration>,

    /// Not before this time, such as 2030-01-31T08:00:00Z.
    #[arg(long, conflicts_with = "delay", value_parser = parse_time, value_name = "WHEN")]
    run_at: Option<Timestamp>,

    /// After how many failures it is dead.
    #[arg(long, value_name = "N")]
    max_attempts: Option<u16>,

    /// How long one attempt may run.
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    timeout: Option<Duration>,

    /// An attempt that has not started by then is never started: a time, or how long from now.
    #[arg(long, value_parser = parse_expiry, value_name = "WHEN|TIME")]
    expires: Option<Expires>,

    /// How failed attempts wait: "exponential 1m, max 1h, jitter 0.1", "linear 30s", "fixed 5s", "list 1s 10s 1m".
    #[arg(long, value_parser = parse_backoff, value_name = "POLICY")]
    backoff: Option<Backoff>,

    /// A label to find it by; may be repeated.
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,

    /// An entry to carry along; may be repeated. The value is JSON if it can be read as such, else text.
    #[arg(long, value_parser = parse_pair, value_name = "KEY=VALUE")]
    metadata: Vec<(String, Value)>,

    /// At most one live job with this key in the queue.
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,

    /// If the key is taken by a job that waits, that takes this payload, time and priority.
    #[arg(long, requires = "unique")]
    replace: bool,

    /// The W3C traceparent to carry to the run [env: TRACEPARENT].
    #[arg(long, value_name = "TRACEPARENT")]
    trace: Option<String>,
}

#[derive(Debug, Clone, Copy)]
enum Expires {
    At(Timestamp),
    In(Duration),
}

/// What `rowlock enqueue` answers with `--json`.
#[derive(Serialize)]
struct Answer {
    id: i64,
    duplicate: bool,
}

impl Enqueue {
    pub(crate) async fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let client = global.database.client()?;
        if let Some(file) = &self.bulk {
            return bulk::load(&client, file, self.skip_bad, global.format()).await;
        }
        let payload = read_payload(self.payload.as_deref())?;
        let job = self
            .options
            .apply(NewJob::new(self.kind.unwrap_or_default(), &payload)?);
        let enqueued = client.enqueue_new(job).await?;
        let (id, duplicate) = (enqueued.id, enqueued.duplicate);
        match global.format() {
            Format::Json => output::json(&Answer {
                id: id.0,
                duplicate,
            })?,
            Format::Table if duplicate => {
                output::text(&format!("job {id} was there already with this key\n"));
            }
            Format::Table => output::text(&format!("job {id} is enqueued\n")),
        }
        Ok(Exit::Success)
    }
}

/// The JSON text of the payload, kept as it is: large numbers survive.
fn read_payload(argument: Option<&str>) -> anyhow::Result<Box<RawValue>> {
    let text = match argument {
        None => "{}".to_owned(),
        Some("-") => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .context("cannot read the payload from standard input")?;
            text
        }
        Some(text) => text.to_owned(),
    };
    serde_json::from_str(text.trim()).map_err(|e| mistake(format!("the payload is no JSON: {e}")))
}

impl Options {
    fn apply(self, mut job: NewJob) -> NewJob {
        if let Some(queue) = self.queue {
            job = job.queue(queue);
        }
        if let Some(priority) = self.priority {
            job = job.priority(priority);
        }
        if let Some(delay) = self.delay {
            job = job.delay(delay);
        }
        if let Some(at) = self.run_at {
            job = job.run_at(at);
        }
        if let Some(attempts) = self.max_attempts {
            job = job.max_attempts(attempts);
        }
        if let Some(timeout) = self.timeout {
            job = job.timeout(timeout);
        }
        match self.expires {
            Some(Expires::At(at)) => job = job.expires(at),
            Some(Expires::In(after)) => job = job.expires_in(after),
            None => {}
        }
        if let Some(backoff) = self.backoff {
            job = job.backoff(backoff);
        }
        for tag in self.tag {
            job = job.tag(tag);
        }
        for (key, value) in self.metadata {
            job = job.metadata(key, value);
        }
        if let Some(key) = self.unique {
            job = job.unique(key);
        }
        if self.replace {
            job = job.on_conflict(OnConflict::Replace);
        }
        // Not by clap: with --bulk, a variable that happens to be set would count as a flag that conflicts.
        let trace = self.trace.or_else(|| std::env::var("TRACEPARENT").ok());
        if let Some(trace) = trace.filter(|t| !t.is_empty()) {
            job = job.trace(trace);
        }
        job
    }
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no time: write it as 2030-01-31T08:00:00Z, with a zone"))
}

fn parse_expiry(text: &str) -> Result<Expires, String> {
    if let Ok(after) = parse_duration(text) {
        return Ok(Expires::In(after));
    }
    text.parse().map(Expires::At).map_err(|_| {
        format!("{text:?} is neither a time (2030-01-31T08:00:00Z) nor a duration (10m)")
    })
}

fn parse_pair(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| format!("{text:?} is no KEY=VALUE"))?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((key.to_owned(), value))
}
