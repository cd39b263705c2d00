//! Worker processes: this program, started again. Each is told on its standard input where the queue is and when to begin, works until nothing is
//! left, and writes down what it did.
//!
//! The connection string may hold a password, so it travels through the pipe and not on the command line.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rowlock::{Client, ConnInfo, Worker, WorkerHandle};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::ledger::Ledger;
use super::patience::{self, PATIENCE};
use super::stage::{QUEUE, SCHEMA, Stage, counting};
use super::{cpu, signals};

/// In the environment of such a process. No option: nobody should be offered it.
const MARK: &str = "ROWLOCK_BENCH_WORKER_PROCESS";

/// How often the memory of a process is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How often a process says how far it is.
const TELL: Duration = Duration::from_secs(1);
/// A process that says nothing for so long is frozen: one that only gets no further ends by itself before that, and says why.
const SILENCE: Duration = PATIENCE.saturating_add(Duration::from_secs(30));

/// What a process is told.
#[derive(Serialize, Deserialize)]
struct Task {
    url: String,
    jobs: u64,
}

/// What a process says when it is done.
#[derive(Serialize, Deserialize)]
struct Did {
    /// When its last acknowledgement was answered, in microseconds since 1970; `None` if it had none.
    last_us: Option<u64>,
    cpu_us: u64,
    unsettled: usize,
    interrupted: usize,
    /// A bit for each job that it ran: little-endian words.
    ran: String,
    again: u64,
    strays: u64,
}

/// Whether this process was started as such.
pub(super) fn is_one() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The other side: what such a process does.
pub(super) async fn be_one() -> anyhow::Result<()> {
    let task: Task = serde_json::from_str(&heard().await?)?;
    let signals = signals::hear()?;
    let ledger = Arc::new(Ledger::new(task.jobs));
    let client = Client::builder()
        .schema(SCHEMA)
        .lazy(ConnInfo::parse(&task.url)?)?;
    let worker = counting(Worker::builder(client).queue(QUEUE), &ledger).build()?;
    let worker = worker.start().await?;
    say("ready")?;
    heard().await?;
    let before = cpu::client_us();
    tokio::select! {
        drained = patience::drained(&worker) => drained?,
        never = tell_how_far(&worker) => never?,
    }
    let cpu_us = cpu::client_us() - before;
    let last_us = signals.last_answer().map(|at| {
        let ago = at.elapsed();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let at = now.unwrap_or_default().saturating_sub(ago);
        u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
    });
    say("drained")?;
    // The server's processes must still be there when somebody looks at what they used.
    heard().await?;
    let stopped = worker.shutdown().await;
    let (words, again, strays) = ledger.parts();
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let did = Did {
        last_us,
        cpu_us,
        unsettled: stopped.unsettled,
        interrupted: stopped.interrupted,
        ran: BASE64.encode(bytes),
        again,
        strays,
    };
    say(&serde_json::to_string(&did)?)
}

/// Says every second how many jobs were handled, so that whoever waits knows that this process is alive.
async fn tell_how_far(worker: &WorkerHandle) -> anyhow::Result<()> {
    loop {
        tokio::time::sleep(TELL).await;
        say(&worker.handled().to_string())?;
    }
}

async fn heard() -> anyhow::Result<String> {
    let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await?;
    Ok(line.context("whoever started this process is gone")??)
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    Ok(out.flush()?)
}

/// Worker processes, started while the queue was paused.
pub(super) struct Crew(Vec<Hand>);

struct Hand {
    process: Child,
    pid: u32,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// What a crew did together.
pub(super) struct Done {
    pub(super) ledger: Ledger,
    /// When the last acknowledgement of all was answered.
    pub(super) end: Instant,
    /// CPU of all processes.
    pub(super) cpu_us: u64,
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) start: u64,
    pub(super) max: u64,
}

impl Crew {
    /// Starts the processes. They find nothing to do until the queue is opened.
    pub(super) async fn start(stage: &Stage, processes: usize, jobs: u64) -> anyhow::Result<Self> {
        let mut crew = Vec::new();
        for _ in 0..processes {
            crew.push(Hand::start(stage, jobs).await?);
        }
        for hand in &mut crew {
            hand.hear("ready").await?;
        }
        Ok(Self(crew))
    }

    /// Opens the queue, and waits until none finds anything more to do. Answers with the memory of the first.
    pub(super) async fn work(&mut self, stage: &Stage) -> anyhow::Result<Option<Memory>> {
        let looking = self.0.first().map(|hand| watch_memory(hand.pid));
        stage.resume().await?;
        for hand in &mut self.0 {
            hand.tell("go").await?;
        }
        // All at once, so that none has to wait until it is heard.
        futures_util::future::try_join_all(self.0.iter_mut().map(Hand::drained)).await?;
        match looking {
            Some((stop, looking)) => {
                drop(stop);
                Ok(looking.await?)
            }
            None => Ok(None),
        }
    }

    /// Ends the processes and collects what they did.
    pub(super) async fn end(self, jobs: u64) -> anyhow::Result<Done> {
        let ledger = Ledger::new(jobs);
        let (mut last_us, mut cpu_us) = (0, 0);
        for mut hand in self.0 {
            hand.tell("end").await?;
            let did: Did = serde_json::from_str(&hand.line().await?)?;
            anyhow::ensure!(
                did.unsettled == 0 && did.interrupted == 0,
                "{} jobs of a worker process were not settled, {} were interrupted",
                did.unsettled,
                did.interrupted
            );
            let bytes = BASE64.decode(did.ran)?;
            let words: Vec<u64> = bytes
                .chunks_exact(8)
                .map(|b| u64::from_le_bytes(std::array::from_fn(|n| b[n])))
                .collect();
            ledger.add(&words, did.again, did.strays)?;
            last_us = last_us.max(did.last_us.unwrap_or(0));
            cpu_us += did.cpu_us;
            let status = hand.process.wait().await?;
            anyhow::ensure!(status.success(), "a worker process ended with {status}");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let ago = now.saturating_sub(Duration::from_micros(last_us));
        Ok(Done {
            ledger,
            end: Instant::now()
                .checked_sub(ago)
                .context("no job was acknowledged")?,
            cpu_us,
        })
    }
}

impl Hand {
    async fn start(stage: &Stage, jobs: u64) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("bench")
            .env(MARK, "1")
            .env_remove("DATABASE_URL")
            .env_remove("ROWLOCK_SCHEMA")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker process")?;
        let pipes = (process.stdin.take(), process.stdout.take(), process.id());
        let (Some(input), Some(output), Some(pid)) = pipes else {
            anyhow::bail!("a worker process ended before it began");
        };
        let mut hand = Self {
            process,
            pid,
            input,
            output: BufReader::new(output).lines(),
        };
        let url = stage.url.clone();
        hand.tell(&serde_json::to_string(&Task { url, jobs })?)
            .await?;
        Ok(hand)
    }

    async fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        self.input
            .write_all(format!("{line}\n").as_bytes())
            .await
            .context("a worker process has ended too early")
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        let line = tokio::time::timeout(SILENCE, self.output.next_line()).await;
        let line = line.with_context(|| {
            format!(
                "a worker process says nothing any more, for {} s",
                SILENCE.as_secs()
            )
        })?;
        line?.context("a worker process has ended too early")
    }

    /// Waits until it finds nothing more to do. Until then it says how far it is.
    async fn drained(&mut self) -> anyhow::Result<()> {
        while self.line().await? != "drained" {}
        Ok(())
    }

    async fn hear(&mut self, wanted: &str) -> anyhow::Result<()> {
        let line = self.line().await?;
        anyhow::ensure!(line == wanted, "a worker process does not say {wanted:?}");
        Ok(())
    }
}

type Looking = tokio::task::JoinHandle<Option<Memory>>;

/// Looks at the memory of a process until the first half is dropped.
fn watch_memory(pid: u32) -> (tokio::sync::oneshot::Sender<()>, Looking) {
    let (stop, mut stopped) = tokio::sync::oneshot::channel();
    let looking = tokio::spawn(async move {
        let mut memory: Option<Memory> = None;
        loop {
            if let Some(now) = cpu::rss_bytes(pid) {
                let seen = memory.get_or_insert(Memory {
                    start: now,
                    max: now,
                });
                seen.max = seen.max.max(now);
            }
            tokio::select! {
                _ = &mut stopped => return memory,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    });
    (stop, looking)
}
