//! What the worker in this process says about itself: when its acknowledgements were answered. It is said through the `metrics` facade, once for each
//! statement; what would be counted for each job is turned off, so that listening costs nothing.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct Signals {
    /// How many flushes of acknowledgements the database has answered.
    flushes: AtomicU64,
    last: Mutex<Option<Instant>>,
    answered: Notify,
}

/// Hears from now on. Once for each process, before a worker is made; a second time is the same as once.
pub(super) fn hear() -> anyhow::Result<&'static Signals> {
    static HEARD: OnceLock<Arc<Signals>> = OnceLock::new();
    if let Some(signals) = HEARD.get() {
        return Ok(signals);
    }
    let signals = HEARD.get_or_init(Arc::default);
    metrics::set_global_recorder(AckRecorder(signals.clone()))
        .map_err(|_| anyhow::anyhow!("somebody else listens to this process's metrics"))?;
    Ok(signals)
}

impl Signals {
    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(SeqCst)
    }

    /// When the database answered last. What was asked before that is durable.
    pub(super) fn last_answer(&self) -> Option<Instant> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the database has answered more flushes than so many; `None` if it takes too long.
    pub(super) async fn answer_after(&self, flushes: u64, within: Duration) -> Option<Instant> {
        let answer = async {
            loop {
                let answered = self.answered.notified();
                tokio::pin!(answered);
                // Before the look, so that no answer falls between the two.
                answered.as_mut().enable();
                if self.flushes() > flushes {
                    return self.last_answer();
                }
                answered.await;
            }
        };
        tokio::time::timeout(within, answer).await.ok().flatten()
    }
}

impl HistogramFn for Signals {
    fn record(&self, _seconds: f64) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.flushes.fetch_add(1, SeqCst);
        self.answered.notify_waiters();
    }
}

struct AckRecorder(Arc<Signals>);

impl Recorder for AckRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            // Recorded when a flush has come back.
            "rowlock_ack_seconds" => Histogram::from_arc(self.0.clone()),
            _ => Histogram::noop(),
        }
    }
}
