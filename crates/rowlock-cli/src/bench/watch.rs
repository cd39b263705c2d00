//! A progress bar that looks for itself how far things are, so that what is measured need not tell it.

use std::time::Duration;

use indicatif::ProgressBar;

use crate::progress;

/// Stays until it is dropped.
pub(super) struct Watch {
    bar: ProgressBar,
    looking: tokio::task::JoinHandle<()>,
}

/// Looks ten times a second; without a terminal never.
pub(super) fn bar(doing: &str, total: u64, look: impl Fn() -> u64 + Send + 'static) -> Watch {
    let bar = progress::of(doing, Some(total));
    let shown = bar.clone();
    let looking = tokio::spawn(async move {
        if shown.is_hidden() {
            return;
        }
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        loop {
            tick.tick().await;
            shown.set_position(look().min(total));
        }
    });
    Watch { bar, looking }
}

/// For what cannot be looked at without disturbing it.
pub(super) fn spinner(doing: &'static str) -> Watch {
    let bar = ProgressBar::new_spinner().with_message(doing);
    bar.enable_steady_tick(Duration::from_millis(200));
    Watch {
        bar,
        looking: tokio::spawn(async {}),
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.looking.abort();
        self.bar.finish_and_clear();
    }
}
