//! `rowlock enqueue --bulk`: a file of jobs, all or none. It is read twice: once to find everything that is wrong with it, and once to load it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Seek};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rowlock::{Client, NewJob};
use serde::Serialize;

use super::line::{self, Parsed};
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::say;

/// So many bad lines are named; the rest is counted.
const NAMED_MAX: usize = 20;
/// What a queue without settings takes.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// What `rowlock enqueue --bulk` answers with `--json`.
#[derive(Serialize)]
struct Answer {
    loaded: u64,
    skipped: usize,
    errors: Vec<BadLine>,
}

#[derive(Serialize)]
struct BadLine {
    line: usize,
    error: String,
}

/// Loads the file, or says what is wrong with it.
pub(super) async fn load(
    client: &Client,
    path: &Path,
    skip_bad: bool,
    format: Format,
) -> anyhow::Result<Exit> {
    client.check().await?;
    let mut file = open(path)?;
    let bad = check(client, &mut file).await?;
    let refused = !bad.is_empty() && !skip_bad;
    let loaded = if refused {
        0
    } else {
        copy(client, file, &bad).await?
    };
    let answer = Answer {
        loaded,
        skipped: bad.len(),
        errors: bad,
    };
    match format {
        Format::Json => output::json(&answer)?,
        Format::Table => print(&answer, path, refused),
    }
    Ok(if answer.errors.is_empty() {
        Exit::Success
    } else {
        Exit::Failure
    })
}

/// The file; standard input is put aside first, because it can be read only once.
fn open(path: &Path) -> anyhow::Result<File> {
    if path != Path::new("-") {
        return File::open(path).with_context(|| format!("cannot read {}", path.display()));
    }
    let mut file = tempfile::tempfile().context("cannot put standard input aside")?;
    std::io::copy(&mut std::io::stdin().lock(), &mut file)
        .context("cannot put standard input aside")?;
    file.rewind()?;
    Ok(file)
}

/// Reads all lines and returns the bad ones.
async fn check(client: &Client, file: &mut File) -> anyhow::Result<Vec<BadLine>> {
    let bar = bar(file.metadata()?.len(), "checking");
    let mut limits: HashMap<String, usize> = HashMap::new();
    let mut bad = Vec::new();
    for (line, text) in lines(file) {
        let text = text?;
        bar.inc(text.len() as u64);
        let error = match parse(&text) {
            None => continue,
            Some(Err(error)) => error,
            Some(Ok(job)) => {
                let limit = match limits.get(&job.queue) {
                    Some(limit) => *limit,
                    None => {
                        let limit = payload_max(client, &job.queue).await;
                        limits.insert(job.queue.clone(), limit);
                        limit
                    }
                };
                if job.payload_bytes <= limit {
                    continue;
                }
                format!(
                    "payload has {} bytes: at most {limit} are allowed in queue {:?}",
                    job.payload_bytes, job.queue
                )
            }
        };
        bad.push(BadLine { line, error });
    }
    bar.finish_and_clear();
    file.rewind()?;
    Ok(bad)
}

/// Loads all lines but the bad ones, in one transaction.
async fn copy(client: &Client, mut file: File, bad: &[BadLine]) -> anyhow::Result<u64> {
    let bar = bar(file.metadata()?.len(), "loading");
    let mut broken = None;
    let jobs = lines(&mut file)
        .filter(|(line, _)| bad.binary_search_by_key(line, |b| b.line).is_err())
        .filter_map(|(line, text)| {
            let job = match text {
                Ok(text) => {
                    bar.inc(text.len() as u64);
                    parse(&text)?
                }
                Err(e) => Err(e.to_string()),
            };
            match job {
                Ok(parsed) => Some(parsed.job),
                // It was good a moment ago. An iterator cannot fail, but a job without a kind is refused, and the whole load with it.
                Err(e) => {
                    broken = Some(format!("line {line} has changed while it was loaded: {e}"));
                    NewJob::new("", &serde_json::json!({})).ok()
                }
            }
        });
    let loaded = client.bulk(jobs).await;
    bar.finish_and_clear();
    match broken {
        Some(why) => anyhow::bail!("{why}; nothing was loaded"),
        None => Ok(loaded?),
    }
}

type NumberedLine = (usize, std::io::Result<Vec<u8>>);

fn lines(file: &mut File) -> impl Iterator<Item = NumberedLine> {
    let lines = BufReader::with_capacity(1 << 16, file).split(b'\n');
    lines.enumerate().map(|(n, line)| (n + 1, line))
}

/// The job of a line; `None` for an empty one.
fn parse(line: &[u8]) -> Option<Result<Parsed, String>> {
    match std::str::from_utf8(line) {
        Ok(text) if text.trim().is_empty() => None,
        Ok(text) => Some(line::parse(text)),
        Err(_) => Some(Err("is not UTF-8".into())),
    }
}

/// What the queue takes. Whoever may only enqueue may not look; then loading will say it, without the line.
async fn payload_max(client: &Client, queue: &str) -> usize {
    let sql = "select max_payload_bytes::text from rowlock.queue where name = $1";
    match client
        .query_text("read the settings of a queue", sql, &[Some(queue)])
        .await
    {
        Ok(rows) => rows
            .first()
            .and_then(|row| row.first()?.as_deref()?.parse().ok())
            .unwrap_or(PAYLOAD_BYTES_MAX),
        Err(_) => usize::MAX,
    }
}

/// Shown on a terminal only.
fn bar(bytes: u64, doing: &'static str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(bytes), target).with_message(doing);
    let style = ProgressStyle::with_template("{msg:9} {wide_bar} {bytes}/{total_bytes} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn print(answer: &Answer, path: &Path, refused: bool) {
    let name = path.display();
    let mut text = String::new();
    for bad in answer.errors.iter().take(NAMED_MAX) {
        text += &format!("{name}:{}: {}\n", bad.line, bad.error);
    }
    if answer.errors.len() > NAMED_MAX {
        text += &format!("… and {} more\n", answer.errors.len() - NAMED_MAX);
    }
    let (loaded, skipped) = (answer.loaded, answer.skipped);
    text += &if refused {
        format!(
            "nothing was loaded: {} (--skip-bad leaves them out)\n",
            say::count(skipped as u64, "bad line")
        )
    } else if skipped > 0 {
        format!(
            "{} loaded, {} left out\n",
            say::count(loaded, "job"),
            say::count(skipped as u64, "bad line")
        )
    } else {
        format!("{} loaded\n", say::count(loaded, "job"))
    };
    output::text(&text);
}
