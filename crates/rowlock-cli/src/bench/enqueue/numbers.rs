//! The numbers of the jobs, handed out to producers until there are enough or the time is up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::super::watch;

/// A few seconds of it are enough, however slow the disk is.
const TIME_MAX: Duration = Duration::from_secs(5);

pub(super) struct Numbers {
    next: AtomicU64,
    most: u64,
    until: Instant,
}

impl Numbers {
    /// The next job to enqueue. Whoever takes a number enqueues that job.
    pub(super) fn next(&self) -> Option<u64> {
        if Instant::now() >= self.until && self.next.load(Relaxed) > 0 {
            return None;
        }
        let n = self.next.fetch_add(1, Relaxed);
        (n < self.most).then_some(n)
    }

    fn taken(&self) -> u64 {
        self.next.load(Relaxed).min(self.most)
    }
}

/// Lets producers take numbers until they end. Answers how many jobs there are now, and gives the connections back: they must stay open until
/// the meter was read.
pub(super) async fn hand_out<F>(
    doing: &str,
    most: u64,
    producers: impl IntoIterator<Item = impl FnOnce(Arc<Numbers>) -> F>,
) -> anyhow::Result<(u64, Vec<F::Kept>)>
where
    F: Producer,
{
    let numbers = Arc::new(Numbers {
        next: AtomicU64::new(0),
        most,
        until: Instant::now() + TIME_MAX,
    });
    // By the time, which most of them run into; who is done before that is done.
    let _bar = watch::time(doing, TIME_MAX);
    let mut tasks = JoinSet::new();
    for producer in producers {
        tasks.spawn(producer(numbers.clone()));
    }
    let mut kept = Vec::new();
    while let Some(done) = tasks.join_next().await {
        kept.push(done??);
    }
    Ok((numbers.taken(), kept))
}

/// A task that ends with what it used.
pub(super) trait Producer:
    Future<Output = anyhow::Result<Self::Kept>> + Send + 'static
{
    type Kept: Send + 'static;
}

impl<F, K> Producer for F
where
    F: Future<Output = anyhow::Result<K>> + Send + 'static,
    K: Send + 'static,
{
    type Kept = K;
}
