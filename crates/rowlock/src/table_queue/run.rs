//! The loops: claim, work, and wait when there is nothing; until stopped, or until nothing is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::batch::{Batch, Found, Pick, Stop, Trouble};
use super::memory::Withdrawal;
use super::name::quote;
use super::stats::{Counters, TableStats};
use super::{Shared, lock};
use crate::db::{
    ConnectOptions, Connection, HookFuture, Link, LinkError, LinkSpec, Live, OnConnect,
};
use crate::error::{Error, Result};

/// How often to look for crashed batches, and for rows to be worked alone.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A look that takes long (because vacuum is held back, and every batch leaves a dead entry behind) is taken less often: it may use
/// this share of the time.
const LOOK_SHARE: u32 = 100;
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// After the handlers were dropped, what is done has this long to be committed.
const COMMIT_WITHIN: Duration = Duration::from_secs(5);
const TROUBLE_WAIT_FIRST: Duration = Duration::from_millis(50);
const TROUBLE_WAIT_LONGEST: Duration = Duration::from_secs(5);

/// When a run ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    Stopped,
    Empty,
}

/// When to do what has to be done now and then.
pub(super) struct Chores {
    look_at: Instant,
    sweep_at: Instant,
    /// The last key that a sweep looked at.
    swept_to: String,
}

impl Default for Chores {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            look_at: now,
            sweep_at: now + SWEEP_EVERY,
            swept_to: String::new(),
        }
    }
}

/// What went wrong in a loop since something went right.
#[derive(Default)]
struct Troubles {
    count: u32,
    /// Whether the table was looked up again.
    inspected: bool,
    /// Whether a row could not be marked.
    careful: bool,
}

/// What the loops of one run share.
struct Run {
    shared: Arc<Shared>,
    counters: Counters,
    stop: Stop,
    until: Until,
    /// Rows that have to be worked alone may be due.
    alone: AtomicBool,
}

/// Works until `stop`, or until nothing is left.
pub(super) async fn run(
    shared: &Arc<Shared>,
    stop: &CancellationToken,
    until: Until,
) -> Result<TableStats> {
    let run = Arc::new(Run {
        shared: shared.clone(),
        counters: Counters::new(&shared.memory.source),
        stop: Stop {
            soft: stop.child_token(),
            hard: shared.settings.stop_now.child_token(),
        },
        until,
        alone: AtomicBool::new(false),
    });
    // Before anything is claimed: what ended the last process must not get the chance to end this one in company.
    lock(&shared.chores).look_at = Instant::now();
    if let Err(error) = run.do_chores().await {
        if !error.is_retryable() {
            return Err(error);
        }
    }
    let (ring, bell) = watch::channel(());
    let ear = (until == Until::Stopped)
        .then(|| listen(shared, ring))
        .flatten();
    let mut loops = JoinSet::new();
    for _ in 0..shared.settings.concurrency {
        let (run, bell) = (run.clone(), bell.clone());
        loops.spawn(async move { run.work_loop(bell).await });
    }
    let grace = async {
        tokio::select! {
            () = run.stop.soft.cancelled() => {}
            () = run.stop.hard.cancelled() => run.stop.soft.cancel(),
        }
        tokio::time::sleep(shared.settings.grace).await;
        run.stop.hard.cancel();
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = join(loops, &run.stop) => ended,
        () = grace => Ok(()),
    };
    drop(ear);
    ended?;
    if until == Until::Empty {
        run.sweep().await?;
    }
    Ok(run.counters.stats())
}

/// Waits for all loops. The first error ends the others, gently.
async fn join(mut loops: JoinSet<Result<()>>, stop: &Stop) -> Result<()> {
    let mut first = Ok(());
    while let Some(ended) = loops.join_next().await {
        let ended = ended.unwrap_or_else(|e| Err(Error::Setup(format!("a loop broke: {e}"))));
        if first.is_ok() && ended.is_err() {
            first = ended;
            stop.soft.cancel();
        }
    }
    first
}

impl Run {
    async fn work_loop(&self, mut bell: watch::Receiver<()>) -> Result<()> {
        let spec = LinkSpec {
            name: "table",
            info: self.shared.memory.client.conninfo().clone(),
            options: ConnectOptions::default(),
            on_connect: None,
        };
        let link = Link::start(spec, &CancellationToken::new());
        let mut last = Pick::Next;
        let mut troubles = Troubles::default();
        loop {
            let live = tokio::select! {
                live = link.get() => live.map_err(no_connection)?,
                () = self.stop.soft.cancelled() => return Ok(()),
            };
            bell.borrow_and_update();
            let found = async {
                self.do_chores().await.map_err(passing)?;
                self.work_some(&live, &mut last, troubles.careful).await
            };
            match found.await {
                Ok(Found::Rows) => troubles = Troubles::default(),
                Ok(Found::Nothing) if self.until == Until::Empty => return Ok(()),
                Ok(Found::Nothing) => {
                    troubles = Troubles::default();
                    self.wait(&mut bell).await;
                }
                Err(trouble) => self.heed(trouble, &link, &live, &mut troubles).await?,
            }
            if self.stop.soft.is_cancelled() {
                return Ok(());
            }
        }
    }

    /// One batch: of the next rows, or of one that has to be alone, by turns if there are both.
    async fn work_some(
        &self,
        live: &Live,
        last: &mut Pick,
        careful: bool,
    ) -> Result<Found, Trouble> {
        let alone_first = self.alone.load(Relaxed) && *last == Pick::Next;
        let picks = match alone_first {
            true => [Pick::Alone, Pick::Next],
            false => [Pick::Next, Pick::Alone],
        };
        for pick in picks {
            let batch = Batch {
                shared: &self.shared,
                inspected: self.shared.inspected(),
                live,
                stop: &self.stop,
                counters: &self.counters,
                id: rand::random(),
                careful,
            };
            let worked = tokio::select! {
                worked = batch.work(pick) => worked?,
                () = self.overdue() => {
                    live.abort();
                    Found::Nothing
                }
            };
            if worked == Found::Rows {
                *last = pick;
                return Ok(Found::Rows);
            }
            if pick == Pick::Alone {
                self.alone.store(false, Relaxed);
            }
        }
        Ok(Found::Nothing)
    }

    /// The handlers were dropped a while ago, and still the batch is not through.
    async fn overdue(&self) {
        self.stop.hard.cancelled().await;
        tokio::time::sleep(COMMIT_WITHIN).await;
    }

    async fn wait(&self, bell: &mut watch::Receiver<()>) {
        // Spread, so that many workers do not ask at the same time.
        let poll = self
            .shared
            .settings
            .poll
            .mul_f64(0.75 + 0.5 * rand::random::<f64>());
        tokio::select! {
            () = tokio::time::sleep(poll) => {}
            Ok(()) = bell.changed() => {}
            () = self.stop.soft.cancelled() => {}
        }
    }

    /// A batch came to nothing. Returns an error if there is no use in going on.
    async fn heed(
        &self,
        trouble: Trouble,
        link: &Link,
        live: &Live,
        troubles: &mut Troubles,
    ) -> Result<()> {
        let table = &*self.shared.memory.source;
        let error = trouble.error;
        troubles.careful |= trouble.careful;
        if trouble.fatal {
            // The table may have been altered since it was looked up; then a fresh look says what does not fit any more.
            if matches!(error, Error::Setup(_)) || troubles.inspected {
                return Err(error);
            }
            match self.shared.inspect().await {
                Err(e) if !e.is_retryable() => return Err(e),
                _ => troubles.inspected = true,
            }
        }
        tracing::warn!(table, %error, "a batch came to nothing; its rows are free again");
        self.counters.batch_lost();
        if let Some(withdrawal) = trouble.unsettled {
            self.settle(&withdrawal, link).await;
        }
        if !live.is_closed() {
            let longest = TROUBLE_WAIT_FIRST.saturating_mul(2_u32.saturating_pow(troubles.count));
            let wait = longest.min(TROUBLE_WAIT_LONGEST).mul_f64(rand::random());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.stop.soft.cancelled() => {}
            }
        }
        troubles.count = troubles.count.saturating_add(1);
        Ok(())
    }

    /// Takes the note of a lost batch back as soon as there is a connection again. If that fails, too, somebody will take it for a
    /// crash, and the rows will be worked one by one for once.
    async fn settle(&self, withdrawal: &Withdrawal, link: &Link) {
        tokio::select! {
            _ = link.get() => {}
            () = self.stop.soft.cancelled() => return,
        }
        if let Err(error) = self.shared.memory.withdraw(withdrawal).await {
            tracing::debug!(%error, "a lost batch could not be withdrawn");
        }
    }

    /// Looks for crashes and forgets what is out of date, if it is time; one loop for all.
    async fn do_chores(&self) -> Result<()> {
        let now = Instant::now();
        let (look, sweep) = {
            let mut chores = lock(&self.shared.chores);
            let due = (now >= chores.look_at, now >= chores.sweep_at);
            if due.0 {
                chores.look_at = now + LOOK_EVERY;
            }
            if due.1 {
                chores.sweep_at = now + SWEEP_EVERY;
            }
            due
        };
        if look {
            self.look().await?;
            let next = Instant::now() + LOOK_EVERY.max(now.elapsed() * LOOK_SHARE);
            lock(&self.shared.chores).look_at = next;
        }
        if sweep {
            self.sweep().await?;
        }
        Ok(())
    }

    async fn look(&self) -> Result<()> {
        let memory = &self.shared.memory;
        let look = memory.look().await?;
        if look.crashed {
            // Somebody may be in the way; it will be tried again.
            match memory.settle_crashes().await {
                Ok(0) => {}
                Ok(batches) => {
                    let table = &*memory.source;
                    tracing::warn!(
                        table,
                        batches,
                        "batches ended with their process or connection: their rows are worked one by one"
                    );
                }
                Err(e) if e.is_retryable() => {}
                Err(e) => return Err(e),
            }
        }
        if look.alone || look.crashed {
            self.alone.store(true, Relaxed);
        }
        Ok(())
    }

    /// Forgets the failures of a page of rows that are gone or not pending any more.
    async fn sweep(&self) -> Result<()> {
        let after = lock(&self.shared.chores).swept_to.clone();
        let to = self.shared.sweep(&after).await?;
        lock(&self.shared.chores).swept_to = to;
        Ok(())
    }
}

/// What goes wrong beside the batches is no reason to stop, unless it will go on being wrong.
fn passing(error: Error) -> Trouble {
    Trouble {
        fatal: !error.is_retryable(),
        error,
        unsettled: None,
        careful: false,
    }
}

fn no_connection(e: LinkError) -> Error {
    match e {
        LinkError::Stopped => Error::Closed {
            doing: "work a table".into(),
        },
        LinkError::Failed(e) => Error::Connect((*e).clone()),
    }
}

/// Rings when somebody notifies, as long as the returned link lives.
fn listen(shared: &Shared, ring: watch::Sender<()>) -> Option<Link> {
    let channel = quote(shared.settings.listen.as_deref()?);
    let ring = Arc::new(ring);
    let on_connect = hook(move |connection| {
        let (listen, ring) = (format!("listen {channel}"), ring.clone());
        Box::pin(async move {
            if !connection.direct {
                tracing::warn!(
                    server = connection.server,
                    "a pooler is in the way, so new rows are found by polling only"
                );
                return Ok(());
            }
            connection.client.batch_execute(&listen).await?;
            // Whatever was sent while nobody listened.
            ring.send_replace(());
            if let Some(mut ear) = connection.notifications.take() {
                tokio::spawn(async move {
                    while ear.recv().await.is_some() {
                        ring.send_replace(());
                    }
                });
            }
            Ok(())
        })
    });
    let spec = LinkSpec {
        name: "table listen",
        info: shared.memory.client.conninfo().clone(),
        options: ConnectOptions {
            notifications: true,
        },
        on_connect: Some(on_connect),
    };
    Some(Link::start(spec, &CancellationToken::new()))
}

/// Helps the compiler see that the hook works for a connection of any lifetime.
fn hook<F>(f: F) -> OnConnect
where
    F: for<'a> Fn(&'a mut Connection) -> HookFuture<'a> + Send + Sync + 'static,
{
    Arc::new(f)
}
