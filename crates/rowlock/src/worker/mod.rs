//! The worker: claims jobs, runs them, says what became of them.
//!
//! One file for each step of a job's life: `claim` → `intake` → `slots` → `run` (`handler`, `outcome`, `ctx`) → `ack`; beside it `lease` keeps
//! what runs, `sweep` finds what lies behind the cursors, `wake` and `idle` decide when to look, `bell` asks to be rung for, `spare` is a connection that claims and scans share, `stop` (asked by `signals`, perhaps) ends it all. `core` is what
//! they share. Decisions are pure (`slots`, `pace`, `cursor`, `settled`, `idle`, `rings`, `outcome`, `message`) and tested by themselves.

mod ack;
mod answer;
mod attempt;
mod bell;
mod builder;
mod bundle;
mod claim;
mod company;
mod config;
mod core;
mod ctx;
mod cursor;
mod handler;
mod idle;
mod intake;
mod lane;
mod lease;
mod message;
mod outcome;
mod pace;
mod registry;
mod rings;
mod run;
mod settled;
mod signals;
mod slots;
mod spare;
mod stop;
mod sweep;
mod telemetry;
mod token;
mod wake;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use tokio::sync::watch;

use crate::client::Client;
use crate::db::{ConnectOptions, Link, LinkSpec};
use crate::error::{Error, Result};

pub use attempt::CancelReason;
pub use builder::{Next, WorkerBuilder};
pub use config::Queue;
pub use ctx::Ctx;
pub(crate) use ctx::current_trace;
pub use handler::{
    BatchHandler, BlockingHandler, FromParts, Handler, IntoOutcomes, Item, Parts, RawJob, State,
    States,
};
pub use outcome::{Done, Fail, IntoOutcome, Outcome};
pub use slots::Order;
pub use stop::Stopped;

use self::core::Core;
use self::signals::Signals;
use self::spare::Spare;

/// A worker that is put together and not started yet. See [`Worker::builder`].
///
/// ```no_run
/// # use rowlock::{Client, Job, Worker};
/// # #[derive(serde::Serialize, serde::Deserialize, Job)]
/// # #[job(kind = "email")]
/// # struct Email { to: String }
/// # async fn send_email(job: Email) -> std::io::Result<()> { Ok(()) }
/// # async fn f() -> rowlock::Result<()> {
/// let client = Client::connect("postgres://localhost/app").await?;
/// let worker = Worker::builder(client).queue("default").handle(send_email).build()?;
/// worker.run_until_signal().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a worker does nothing until it is started"]
pub struct Worker {
    core: Arc<Core>,
}

impl Worker {
    /// Begins to put a worker together.
    pub fn builder(client: Client) -> WorkerBuilder {
        WorkerBuilder::new(client)
    }

    /// Starts it in the background. Fails if the database cannot be reached now, or is not migrated; later breaks of the
    /// connection are waited out.
    pub async fn start(self) -> Result<WorkerHandle> {
        let core = self.core;
        core.client.check().await?;
        let link = |name| {
            let spec = LinkSpec {
                name,
                info: core.client.conninfo().clone(),
                options: ConnectOptions::default(),
                on_connect: None,
            };
            Link::start(spec, &core.stopped)
        };
        let (claim, ack) = (Arc::new(link("claim")), Arc::new(link("ack")));
        let spare = Spare::new(link("sweep"));
        let (listen, ears) = wake::listening_link(&core);
        let listen = Arc::new(listen);
        core.register(&listen).await?;
        core.discover(&listen).await?;
        tracing::info!(worker = core.worker_id(), name = core.config.name, queues = ?core.queue_names(), "worker started");

        tokio::spawn(ack::ack_loop(core.clone(), ack));
        tokio::spawn(lease::lease_loop(core.clone(), listen.clone()));
        tokio::spawn(wake::wake_loop(core.clone(), listen.clone(), ears));
        core.looking
            .spawn(sweep::sweep_loop(core.clone(), spare.clone()));
        core.looking
            .spawn(claim::claim_loop(core.clone(), claim, spare));

        let (told, stopped) = watch::channel(None);
        tokio::spawn(end(core.clone(), listen, told));
        Ok(WorkerHandle { core, stopped })
    }

    /// Starts it and runs until SIGINT or SIGTERM, then shuts down: softly at first, at once with a second signal.
    pub async fn run_until_signal(self) -> Result<Stopped> {
        // Before anything runs, so that no signal finds nobody listening, and none is lost between the two.
        let mut signals = Signals::listen();
        let handle = self.start().await?;
        tokio::select! {
            () = signals.next() => {}
            stopped = handle.stopped() => return Ok(stopped),
        }
        tracing::info!("stopping: finishing what runs; another signal stops at once");
        tokio::select! {
            stopped = handle.shutdown() => Ok(stopped),
            () = signals.next() => Ok(handle.shutdown_now().await),
        }
    }

    /// Starts it, works until nothing is ready any more, and stops. Jobs that are scheduled for later stay where they are.
    pub async fn drain(self) -> Result<Stopped> {
        let handle = self.start().await?;
        handle.drained().await;
        Ok(handle.shutdown().await)
    }
}

/// The end of a worker, whoever asks for it.
async fn end(core: Arc<Core>, link: Arc<Link>, told: watch::Sender<Option<Stopped>>) {
    core.stopping.cancelled().await;
    let report = stop::stop(&core, core.config.grace).await;
    let goodbye = tokio::time::timeout(Duration::from_secs(2), core.unregister(&link)).await;
    if let Ok(Err(e)) = goodbye {
        tracing::debug!(error = %e, "cannot say that the worker has ended");
    }
    core.stopped.cancel();
    tracing::info!(worker = core.worker_id(), ?report, "worker stopped");
    told.send_replace(Some(report));
}

/// A running worker. Dropping it does not stop the worker.
#[derive(Clone)]
pub struct WorkerHandle {
    core: Arc<Core>,
    stopped: watch::Receiver<Option<Stopped>>,
}

impl WorkerHandle {
    /// Stops claiming, lets what runs finish within the grace period, then tells it to stop and gives it back. May be called any
    /// number of times; all get the same report.
    pub async fn shutdown(&self) -> Stopped {
        self.core.stopping.cancel();
        self.stopped().await
    }

    /// As [`shutdown`](Self::shutdown), without a grace period, or ending it.
    pub async fn shutdown_now(&self) -> Stopped {
        self.core.hurry.cancel();
        self.shutdown().await
    }

    /// Waits until the worker has stopped.
    pub async fn stopped(&self) -> Stopped {
        let mut stopped = self.stopped.clone();
        match stopped.wait_for(Option::is_some).await {
            Ok(report) => report.unwrap_or_default(),
            // The task that ends the worker is gone, which only the end of the runtime does.
            Err(_) => Stopped::default(),
        }
    }

    /// Waits until a look at every queue found nothing ready while no job was running or waiting to be acknowledged.
    pub async fn drained(&self) {
        let _waiting = Draining::new(&self.core);
        // A claim that was under way when it was asked for may end a look: only what ends the one after it was surely sent since. And a cursor may have fooled both, so the third
        // looks from the start of every queue, which may take a while where vacuum is held back.
        for look in [Core::wake, Core::wake, Core::wake_all, Core::wake] {
            let drained = self.core.drained.notified();
            tokio::pin!(drained);
            drained.as_mut().enable();
            look(&self.core);
            tokio::select! {
                () = drained => {}
                _ = self.stopped() => return,
            }
        }
    }

    /// The id of the worker in the database.
    pub fn id(&self) -> i64 {
        self.core.worker_id()
    }

    /// How many jobs it has handled so far.
    pub fn handled(&self) -> u64 {
        self.core.finished.load(Relaxed)
    }

    /// How many handlers are running.
    pub fn running(&self) -> usize {
        self::core::lock(&self.core.slots).running()
    }

    /// Whether a new job wakes it at once. False while it has no connection, in poll-only mode, and behind a pooler that swallows
    /// LISTEN: then it looks about once a second.
    pub fn is_listening(&self) -> bool {
        self.core.listening.load(Relaxed)
    }
}

/// Somebody waits for the queues to be drained.
struct Draining<'a>(&'a Core);

impl<'a> Draining<'a> {
    fn new(core: &'a Core) -> Self {
        core.draining.fetch_add(1, SeqCst);
        Self(core)
    }
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        self.0.draining.fetch_sub(1, SeqCst);
    }
}

impl std::fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerHandle")
            .field("id", &self.id())
            .field("handled", &self.handled())
            .finish_non_exhaustive()
    }
}

fn no_handlers() -> Error {
    Error::Setup("the worker has no handlers: add .handle(...) for each kind of job".into())
}
