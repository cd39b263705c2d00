//! Waiting for a worker, but not for ever: a job that is stuck in a worker that lives is a finding, and nobody should have to find out by himself.

use std::time::{Duration, Instant};

use rowlock::WorkerHandle;

/// Jobs of a benchmark take milliseconds: where none was finished for so long, something is broken.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);

const LOOK: Duration = Duration::from_secs(1);

/// Waits until the worker finds nothing more to do. Fails if it goes on with nothing for too long.
pub(super) async fn drained(worker: &WorkerHandle) -> anyhow::Result<()> {
    while_it_goes_on(worker.drained(), || worker.handled(), PATIENCE).await
}

/// Waits for the end of what counts how far it is.
pub(super) async fn while_it_goes_on(
    end: impl Future<Output = ()>,
    count: impl Fn() -> u64,
    patience: Duration,
) -> anyhow::Result<()> {
    tokio::pin!(end);
    let (mut last, mut since) = (count(), Instant::now());
    loop {
        tokio::select! {
            () = &mut end => return Ok(()),
            () = tokio::time::sleep(LOOK.min(patience)) => {}
        }
        let now = count();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        anyhow::ensure!(
            since.elapsed() < patience,
            "nothing goes on any more: the worker has handled {now} jobs and for {} s none of those that are left",
            patience.as_secs()
        );
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn what_stands_still_ends_with_an_error() {
        let stuck = while_it_goes_on(pending(), || 7, SHORT).await;
        let stuck = stuck.unwrap_err().to_string();
        assert!(stuck.contains("the worker has handled 7 jobs"), "{stuck}");
        while_it_goes_on(ready(()), || 7, SHORT).await.unwrap();
    }

    #[tokio::test]
    async fn what_goes_on_may_take_long() {
        let looks = Cell::new(0);
        let count = || {
            looks.set(looks.get() + 1);
            looks.get().min(5)
        };
        assert!(while_it_goes_on(pending(), count, SHORT).await.is_err());
        assert!(looks.get() > 5, "it stood still only then");
    }
}
