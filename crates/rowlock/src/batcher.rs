//! The batcher: single enqueues that are under way at the same time travel in one statement and share its commit.
//!
//! It sets no timer for more to come. A job that finds nothing under way goes at once, by its caller's own task, and so does one that finds only a lone job under way.
//! Who finds a few under way together waits for them: a commit costs the same for one job and for a hundred. And those who were answered together
//! are about to come again, so the first of them lets the others catch up, for microseconds. So batches size themselves, and a lone enqueue pays nothing.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use crate::db::{Connection, Pool};
use crate::enqueue::{BATCH_JOBS_MAX, DOING, send};
use crate::error::{Error, Result};
use crate::job::{Enqueued, NewJob};
use crate::schema::Schema;

/// Most bytes of payload in one batch.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Batches under way at once: one is committed while the next is written.
const TOGETHER_MAX: usize = 2;
/// From so many jobs on a batch is large: others go beside it. So they do beside a lone job, but not beside anything between.
const LARGE: usize = BATCH_JOBS_MAX / 2;
/// What takes longer than this keeps nobody any more: it may wait for a lock on a unique key.
const PATIENCE: Duration = Duration::from_millis(5);
/// Batches under way at most, those that take long included.
const UNDER_WAY_MAX: usize = 4;
/// How often, and for how long, those who were answered together are let go first.
const YIELDS_MAX: usize = 10;
const YIELDS_TIME: Duration = Duration::from_micros(100);

/// An enqueue that waits for its statement.
struct Request {
    job: NewJob,
    reply: oneshot::Sender<Result<Enqueued>>,
}

/// Gathers enqueues into batches. Its task starts with the first one that finds another under way.
pub(crate) struct Batcher {
    pool: Pool,
    schema: Schema,
    sender: Mutex<Option<mpsc::Sender<Request>>>,
    /// How many wait for their answer.
    waiting: AtomicUsize,
    /// How many travelled together the last time that any did.
    last: Arc<AtomicUsize>,
}

/// One who waits for an answer, until dropped.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    /// With how many there were before.
    fn begin(waiting: &'a AtomicUsize) -> (Self, usize) {
        let before = waiting.fetch_add(1, Relaxed);
        (Self(waiting), before)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Batcher {
    pub(crate) fn new(pool: Pool, schema: Schema) -> Self {
        Self {
            pool,
            schema,
            sender: Mutex::default(),
            waiting: AtomicUsize::new(0),
            last: Arc::default(),
        }
    }

    /// The way to the task, which is started if there is none: the runtime that the last one ran in may be gone.
    fn sender(&self) -> mpsc::Sender<Request> {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        match &*sender {
            Some(sender) if !sender.is_closed() => sender.clone(),
            _ => {
                let (new, receiver) = mpsc::channel(4 * BATCH_JOBS_MAX);
                let (pool, schema) = (self.pool.clone(), self.schema.clone());
                tokio::spawn(gather(pool, schema, receiver, self.last.clone()));
                sender.insert(new).clone()
            }
        }
    }

    pub(crate) async fn enqueue(&self, job: NewJob) -> Result<Enqueued> {
        let (_waits, others) = Waits::begin(&self.waiting);
        // Those who were answered together come again together.
        if others == 0 && self.last.load(Relaxed) <= 1 {
            self.alone(&job).await
        } else {
            self.together(job).await
        }
    }

    /// By the caller's own task: one more on the way would cost as much as all else that the client does.
    async fn alone(&self, job: &NewJob) -> Result<Enqueued> {
        let connection = self.pool.get().await?;
        let mut answers = send(&connection, &self.schema, &[job]).await?;
        Ok(answers.swap_remove(0))
    }

    async fn together(&self, job: NewJob) -> Result<Enqueued> {
        let closed = || Error::Closed {
            doing: DOING.into(),
        };
        let (reply, answer) = oneshot::channel();
        self.sender()
            .send(Request { job, reply })
            .await
            .map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

async fn gather(
    pool: Pool,
    schema: Schema,
    mut requests: mpsc::Receiver<Request>,
    last_jobs: Arc<AtomicUsize>,
) {
    // Enqueues that wait for locks must not take all connections from everything else.
    let half = pool.connections_max().div_ceil(2);
    let mut under_way = UnderWay::new(half.clamp(TOGETHER_MAX, UNDER_WAY_MAX));
    let mut last = 0;
    while let Some(first) = requests.recv().await {
        // Wait for room first, then see who else has come meanwhile.
        under_way.room().await;
        let came = Instant::now();
        for yields in 0.. {
            if !awaits_others(1 + requests.len(), last, yields, came.elapsed()) {
                break;
            }
            tokio::task::yield_now().await;
        }
        let mut bytes = first.job.payload.get().len();
        let mut batch = vec![first];
        while batch.len() < BATCH_JOBS_MAX && bytes < BATCH_BYTES_MAX {
            let Ok(next) = requests.try_recv() else { break };
            bytes += next.job.payload.get().len();
            batch.push(next);
        }
        last = batch.len();
        last_jobs.store(last, Relaxed);
        let (pool, schema) = (pool.clone(), schema.clone());
        under_way.start(last, async move { flush(&pool, &schema, batch).await });
    }
    under_way.end().await;
}

/// Whether those who travelled the last time are still to come, as far as one can wait for that.
fn awaits_others(here: usize, last: usize, yields: usize, waited: Duration) -> bool {
    here < last && yields < YIELDS_MAX && waited < YIELDS_TIME
}

/// Batches under way.
struct UnderWay {
    at_most: usize,
    tasks: JoinSet<()>,
    batches: Vec<Batch>,
}

struct Batch {
    task: Id,
    started: Instant,
    /// It holds more than one job, but is not large.
    of_a_few: bool,
}

/// Whether another batch may start.
#[derive(Debug, PartialEq)]
enum Room {
    Now,
    /// At this time, or when one of those under way has ended.
    At(Instant),
    /// Not before one has.
    Later,
}

impl UnderWay {
    fn new(at_most: usize) -> Self {
        Self {
            at_most,
            tasks: JoinSet::new(),
            batches: Vec::new(),
        }
    }

    fn room_at(&self, now: Instant) -> Room {
        if self.batches.len() >= self.at_most {
            return Room::Later;
        }
        let old_at = |b: &Batch| b.started + PATIENCE;
        let young: Vec<&Batch> = self.batches.iter().filter(|b| now < old_at(b)).collect();
        if young.len() < TOGETHER_MAX && !young.iter().any(|b| b.of_a_few) {
            return Room::Now;
        }
        let next = young.into_iter().map(old_at).min();
        next.map_or(Room::Now, Room::At)
    }

    /// Waits until another may start.
    async fn room(&mut self) {
        loop {
            while let Some(ended) = self.tasks.try_join_next_with_id() {
                self.ended(ended);
            }
            let room = self.room_at(Instant::now());
            let at = match room {
                Room::Now => return,
                Room::At(at) => Some(at),
                Room::Later => None,
            };
            tokio::select! {
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
                () = tokio::time::sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => {}
            }
        }
    }

    fn start(&mut self, jobs: usize, batch: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(batch).id();
        self.batches.push(Batch {
            task,
            started: Instant::now(),
            of_a_few: (2..LARGE).contains(&jobs),
        });
    }

    fn ended(&mut self, task: std::result::Result<(Id, ()), tokio::task::JoinError>) {
        let task = task.map_or_else(|e| e.id(), |(id, ())| id);
        self.batches.retain(|b| b.task != task);
    }

    /// Lets them all end: who asked may have gone, but what is under way is not taken back.
    async fn end(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Sends a batch, queue by queue; each queue's jobs are durable or refused on their own.
async fn flush(pool: &Pool, schema: &Schema, batch: Vec<Request>) {
    let mut queues: HashMap<String, Vec<Request>> = HashMap::new();
    for request in batch {
        queues
            .entry(request.job.queue.to_string())
            .or_default()
            .push(request);
    }
    let flushes = queues.into_values().map(|requests| async {
        match pool.get().await {
            Ok(connection) => deliver(&connection, schema, requests).await,
            Err(e) => refuse(requests, &e),
        }
    });
    futures_util::future::join_all(flushes).await;
}

/// Sends the requests of one queue. If the data of one is at fault, the batch is halved until the culprit stands alone.
fn deliver<'a>(
    connection: &'a Connection,
    schema: &'a Schema,
    mut requests: Vec<Request>,
) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
    Box::pin(async move {
        let jobs: Vec<&NewJob> = requests.iter().map(|r| &r.job).collect();
        match send(connection, schema, &jobs).await {
            Ok(answers) => {
                for (request, answer) in requests.into_iter().zip(answers) {
                    let _ = request.reply.send(Ok(answer));
                }
            }
            Err(e) if requests.len() > 1 && e.is_bad_data() => {
                let rest = requests.split_off(requests.len() / 2);
                deliver(connection, schema, requests).await;
                deliver(connection, schema, rest).await;
            }
            Err(e) => refuse(requests, &e),
        }
    })
}

fn refuse(requests: Vec<Request>, error: &Error) {
    for request in requests {
        let _ = request.reply.send(Err(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of so many jobs that ends when the sender is dropped.
    fn start(under_way: &mut UnderWay, jobs: usize) -> oneshot::Sender<()> {
        let (sender, ended) = oneshot::channel();
        under_way.start(jobs, async { _ = ended.await });
        sender
    }

    fn waits(room: &Room) -> bool {
        *room != Room::Now
    }

    /// Else nobody would be taken for the first any more.
    #[test]
    fn who_gave_up_waits_no_more() {
        let waiting = AtomicUsize::new(0);
        let (first, before) = Waits::begin(&waiting);
        assert_eq!(before, 0);
        let gave_up = async {
            let (_waits, before) = Waits::begin(&waiting);
            assert_eq!(before, 1);
            std::future::pending::<()>().await;
        };
        let mut gave_up = Box::pin(gave_up);
        assert!(futures_util::FutureExt::now_or_never(gave_up.as_mut()).is_none());
        assert_eq!(waiting.load(Relaxed), 2);
        drop(gave_up);
        drop(first);
        assert_eq!(Waits::begin(&waiting).1, 0);
    }

    #[tokio::test]
    async fn lone_and_large_ones_go_beside_each_other_in_twos() {
        for jobs in [1, LARGE, BATCH_JOBS_MAX] {
            let (mut under_way, now) = (UnderWay::new(UNDER_WAY_MAX), Instant::now());
            let _first = start(&mut under_way, jobs);
            assert_eq!(under_way.room_at(now), Room::Now, "beside {jobs}");
            let second = start(&mut under_way, jobs);
            assert!(waits(&under_way.room_at(now)), "beside two times {jobs}");
            drop(second);
            under_way.room().await;
        }
    }

    #[tokio::test]
    async fn who_finds_a_few_under_way_together_waits_for_them() {
        for jobs in [2, LARGE - 1] {
            let (mut under_way, now) = (UnderWay::new(UNDER_WAY_MAX), Instant::now());
            let few = start(&mut under_way, jobs);
            assert!(waits(&under_way.room_at(now)), "{jobs}");
            drop(few);
            under_way.room().await;
        }
    }

    /// Who came after them waited each time.
    #[tokio::test]
    async fn what_takes_long_keeps_nobody() {
        let mut under_way = UnderWay::new(UNDER_WAY_MAX);
        let stuck: Vec<_> = [2, 1, 1].map(|n| start(&mut under_way, n)).into();
        let late = Instant::now() + PATIENCE;
        for _ in 0..3 {
            assert_eq!(under_way.room_at(late), Room::Now);
            let lone = start(&mut under_way, 1);
            assert_eq!(
                under_way.room_at(late),
                Room::Later,
                "there is an end to it"
            );
            drop(lone);
            under_way.room().await;
        }
        assert_eq!(under_way.batches.len(), stuck.len());
    }

    #[test]
    fn those_who_travelled_together_are_waited_for_a_moment() {
        let soon = Duration::ZERO;
        assert!(awaits_others(1, 8, 0, soon));
        assert!(!awaits_others(8, 8, 1, soon), "all are here");
        assert!(!awaits_others(1, 1, 0, soon), "a lone one goes at once");
        assert!(!awaits_others(1, 8, YIELDS_MAX, soon));
        assert!(!awaits_others(1, 8, 1, YIELDS_TIME));
    }
}
