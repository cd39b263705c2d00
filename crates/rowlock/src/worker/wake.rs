//! Wake-up: hears the doorbell and the other messages, and finds out whether it can hear at all.
//!
//! A pooler in transaction mode swallows LISTEN without a word. So after each connect the worker sends itself a message; if it does
//! not arrive, it says so and goes on by polling alone.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio_postgres::types::Type;

use super::attempt::CancelReason;
use super::core::{Core, lock};
use super::message::Message;
use crate::db::{
    ConnectOptions, Connection, HookFuture, Link, LinkSpec, Micros, Notification, OnConnect,
};

/// How long a message to oneself may take.
const PING_WITHIN: Duration = Duration::from_secs(5);

/// What one connection hears.
type Ear = UnboundedReceiver<Notification>;

/// A link that listens, and where its ears come out: a new one with each connection.
pub(super) fn listening_link(core: &Core) -> (Link, UnboundedReceiver<Ear>) {
    let (ears, received) = mpsc::unbounded_channel();
    let listen = format!("listen {}", core.schema);
    let silent = core.config.poll_only;
    let on_connect = hook(move |connection| {
        let (listen, ears) = (listen.clone(), ears.clone());
        Box::pin(async move {
            if silent {
                return Ok(());
            }
            if !connection.direct {
                tracing::warn!(
                    server = connection.server,
                    "a pooler is in the way, so new jobs are found by polling only: give the worker a direct connection for wake-ups at once"
                );
                return Ok(());
            }
            connection.client.batch_execute(&listen).await?;
            if let Some(ear) = connection.notifications.take() {
                let _ = ears.send(ear);
            }
            Ok(())
        })
    });
    let spec = LinkSpec {
        name: "listen",
        info: core.client.conninfo().clone(),
        options: ConnectOptions {
            notifications: true,
        },
        on_connect: Some(on_connect),
    };
    (Link::start(spec, &core.stopped), received)
}

/// Helps the compiler see that the hook works for a connection of any lifetime.
fn hook<F>(f: F) -> OnConnect
where
    F: for<'a> Fn(&'a mut Connection) -> HookFuture<'a> + Send + Sync + 'static,
{
    Arc::new(f)
}

/// Listens until the worker is stopped.
pub(super) async fn wake_loop(core: Arc<Core>, link: Arc<Link>, mut ears: UnboundedReceiver<Ear>) {
    // Whatever was said while nobody listened is unknown: from the second connection on, look once at everything. Who has just
    // started has nothing to look at again.
    let mut look: fn(&Core) = Core::wake;
    loop {
        let ear = tokio::select! {
            ear = ears.recv() => ear,
            () = core.stopped.cancelled() => return,
        };
        let Some(ear) = ear else { return };
        look(&core);
        look = Core::wake_all;
        tokio::select! {
            () = core.listen(&link, ear) => {
                // Whatever is armed, it is not heard any more.
                core.listening.store(false, Relaxed);
                core.disarmed.store(true, Relaxed);
                core.wake();
            }
            () = core.stopped.cancelled() => return,
        }
    }
}

impl Core {
    /// Hears one connection out. Returns when it ends.
    async fn listen(&self, link: &Link, mut ear: Ear) {
        let ping = format!("{:016x}", rand::random::<u64>());
        let heard = Mutex::new(false);
        let hear = async {
            while let Some(message) = ear.recv().await {
                match Message::parse(&message.payload) {
                    Some(Message::Ping(word)) if word == ping => {
                        *lock(&heard) = true;
                        self.listening.store(true, Relaxed);
                    }
                    Some(message) => self.heed(&message),
                    None => {}
                }
            }
        };
        let test = async {
            let word = format!("ping {ping}");
            let channel = self.schema.as_str();
            let sent = self
                .rows(
                    link,
                    "test the bell",
                    "select pg_notify($1, $2)",
                    &[(&channel, Type::TEXT), (&word, Type::TEXT)],
                )
                .await;
            tokio::time::sleep(PING_WITHIN).await;
            if sent.is_ok() && !*lock(&heard) {
                tracing::warn!(
                    "LISTEN is swallowed on the way to the database, so new jobs are found by polling only"
                );
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = hear => {}
            () = test => {}
        }
    }

    fn heed(&self, message: &Message<'_>) {
        match *message {
            Message::Ring(queue) => {
                if let Some(number) = self.lane_of(queue) {
                    self.rings.fetch_add(1, Relaxed);
                    self.rung_for.store(number, Relaxed);
                    self.bell.notify_waiters();
                }
            }
            Message::Schedule(queue) => {
                if self.lane_of(queue).is_some() {
                    self.rings.fetch_add(1, Relaxed);
                    self.rescheduled.store(true, Relaxed);
                    self.bell.notify_waiters();
                }
            }
            Message::Disarm(queue) => {
                if self.lane_of(queue).is_some() {
                    self.disarmed.store(true, Relaxed);
                    self.bell.notify_waiters();
                }
            }
            Message::Rewind(queue) => self.look_from(queue, Micros::NEG_INFINITY),
            Message::Since(queue, at) => self.look_from(queue, at),
            Message::Queue(name) => {
                if self.subscribe(name) {
                    self.bell.notify_waiters();
                }
            }
            Message::Cancel(id) => {
                if let Some(attempt) = lock(&self.held).get(&id) {
                    attempt.touched();
                    attempt.cancel(CancelReason::Cancelled);
                }
            }
            Message::Ping(_) => {}
        }
    }

    /// Makes the claim loop look at what is due since then in this queue, at once.
    fn look_from(&self, queue: &str, at: Micros) {
        if let Some(number) = self.lane_of(queue) {
            self.rewind(&self.lane(number), at);
            self.bell.notify_waiters();
        }
    }

    /// Makes the claim loop look at once.
    pub(super) fn wake(&self) {
        self.bell.notify_waiters();
    }

    /// Makes the claim loop look at once, from the start of every queue.
    pub(super) fn wake_all(&self) {
        for lane in self.lanes() {
            self.rewind(&lane, Micros::NEG_INFINITY);
        }
        self.wake();
    }
}
