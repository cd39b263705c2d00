//! The batcher: single enqueues that are under way at the same time travel in one statement and share its commit.
//!
//! It never waits for more to come. A job that finds nothing under way goes at once, and so does one that finds only a lone job under way.
//! Who finds several under way together waits for them: a commit costs the same for one job and for a hundred, and those who were
//! answered together come again together. So batches size themselves, and a lone enqueue pays nothing.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::db::{Connection, Pool};
use crate::enqueue::{BATCH_JOBS_MAX, DOING, send};
use crate::error::{Error, Result};
use crate::job::{Enqueued, NewJob};
use crate::schema::Schema;

/// Most bytes of payload in one statement.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Statements under way at once: one is committed while the next is written. But who comes while a few jobs are under way
/// together, fewer than this, waits for them.
const TOGETHER_MAX: usize = 2;
const FEW: usize = BATCH_JOBS_MAX / 2;
/// Statements under way at once if they take longer than this: one may wait for a lock on a unique key, and the others need not wait with it.
const UNDER_WAY_MAX: usize = 4;
const PATIENCE: Duration = Duration::from_millis(5);
/// How often, and how long, the others who were answered together are let go first.
const YIELDS_MAX: usize = 10;
const YIELDS_TIME: Duration = Duration::from_micros(100);

/// An enqueue that waits for its statement.
struct Request {
    job: NewJob,
    reply: oneshot::Sender<Result<Enqueued>>,
}

/// Gathers enqueues into statements. Its task starts with the first one.
pub(crate) struct Batcher {
    pool: Pool,
    schema: Schema,
    sender: Mutex<Option<mpsc::Sender<Request>>>,
}

impl Batcher {
    pub(crate) fn new(pool: Pool, schema: Schema) -> Self {
        Self {
            pool,
            schema,
            sender: Mutex::default(),
        }
    }

    /// The way to the task, which is started if there is none: the runtime that the last one ran in may be gone.
    fn sender(&self) -> mpsc::Sender<Request> {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        match &*sender {
            Some(sender) if !sender.is_closed() => sender.clone(),
            _ => {
                let (new, receiver) = mpsc::channel(4 * BATCH_JOBS_MAX);
                tokio::spawn(gather(self.pool.clone(), self.schema.clone(), receiver));
                sender.insert(new).clone()
            }
        }
    }

    pub(crate) async fn enqueue(&self, job: NewJob) -> Result<Enqueued> {
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

async fn gather(pool: Pool, schema: Schema, mut requests: mpsc::Receiver<Request>) {
    let mut under_way = UnderWay::new();
    let mut last = 0;
    while let Some(first) = requests.recv().await {
        // Wait for room first, then see who else has come meanwhile.
        under_way.room().await;
        let came = Instant::now();
        for _ in 0..YIELDS_MAX {
            if 1 + requests.len() >= last || came.elapsed() > YIELDS_TIME {
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
        let (pool, schema) = (pool.clone(), schema.clone());
        under_way.start(last, async move { flush(&pool, &schema, batch).await });
    }
    under_way.end().await;
}

/// Statements under way.
struct UnderWay {
    /// Of a few jobs,
    few: JoinSet<()>,
    /// and of one or many.
    others: JoinSet<()>,
    /// When the last of them started.
    started: Instant,
}

impl UnderWay {
    fn new() -> Self {
        Self {
            few: JoinSet::new(),
            others: JoinSet::new(),
            started: Instant::now(),
        }
    }

    /// Waits until another may start.
    async fn room(&mut self) {
        loop {
            while self.others.try_join_next().is_some() {}
            while self.few.try_join_next().is_some() {}
            if self.few.is_empty() && self.others.len() < TOGETHER_MAX {
                return;
            }
            let room = self.others.len() + self.few.len() < UNDER_WAY_MAX;
            tokio::select! {
                Some(_) = self.others.join_next() => {}
                Some(_) = self.few.join_next() => {}
                () = tokio::time::sleep_until(self.started + PATIENCE), if room => return,
            }
        }
    }

    fn start(&mut self, jobs: usize, statement: impl Future<Output = ()> + Send + 'static) {
        self.started = Instant::now();
        match jobs {
            2..FEW => self.few.spawn(statement),
            _ => self.others.spawn(statement),
        };
    }

    /// Lets them all end: who asked may have gone, but what is under way is not taken back.
    async fn end(mut self) {
        while self.others.join_next().await.is_some() {}
        while self.few.join_next().await.is_some() {}
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
    use futures_util::FutureExt;

    use super::*;

    /// A statement of so many jobs that ends when the sender is dropped.
    fn start(under_way: &mut UnderWay, jobs: usize) -> oneshot::Sender<()> {
        let (sender, ended) = oneshot::channel();
        under_way.start(jobs, async { _ = ended.await });
        sender
    }

    fn may_start(under_way: &mut UnderWay) -> bool {
        under_way.room().now_or_never().is_some()
    }

    #[tokio::test]
    async fn lone_and_many_jobs_go_beside_each_other_in_twos() {
        for jobs in [1, FEW, BATCH_JOBS_MAX] {
            let mut under_way = UnderWay::new();
            let _first = start(&mut under_way, jobs);
            assert!(may_start(&mut under_way), "beside {jobs}");
            let second = start(&mut under_way, jobs);
            assert!(!may_start(&mut under_way), "beside two times {jobs}");
            drop(second);
            under_way.room().await;
        }
    }

    #[tokio::test]
    async fn who_finds_a_few_under_way_together_waits_for_them() {
        let mut under_way = UnderWay::new();
        let few = start(&mut under_way, 2);
        assert!(!may_start(&mut under_way));
        drop(few);
        under_way.room().await;
        assert!(under_way.few.is_empty());
    }

    #[tokio::test]
    async fn nobody_waits_for_long_for_what_takes_long() {
        let mut under_way = UnderWay::new();
        let mut stuck = Vec::new();
        for _ in 0..UNDER_WAY_MAX {
            under_way.room().await;
            stuck.push(start(&mut under_way, 2));
        }
        under_way.started -= 2 * PATIENCE;
        assert!(!may_start(&mut under_way), "there is an end to it");
        stuck.pop();
        under_way.room().await;
    }
}
