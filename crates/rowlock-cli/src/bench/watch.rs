//! A progress bar that looks for itself how far things are, so that what is measured need not tell it.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::progress;

/// Stays until it is dropped.
pub(super) struct Watch {
    bar: ProgressBar,
    looking: tokio::task::JoinHandle<()>,
}

/// Looks ten times a second; without a terminal never.
pub(super) fn bar(doing: &str, total: u64, look: impl Fn() -> u64 + Send + 'static) -> Watch {
    let bar = progress::of(doing, Some(total));
    follow(bar, move || look().min(total))
}

fn follow(bar: ProgressBar, look: impl Fn() -> u64 + Send + 'static) -> Watch {
    let shown = bar.clone();
    let looking = tokio::spawn(async move {
        if shown.is_hidden() {
            return;
        }
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        loop {
            tick.tick().await;
            shown.set_position(look());
        }
    });
    Watch { bar, looking }
}

/// For what takes a time that is known.
pub(super) fn time(doing: &str, takes: Duration) -> Watch {
    let seconds = takes.as_secs_f64().ceil() as u64;
    let style = ProgressStyle::with_template("{msg} {wide_bar:.cyan/dim} {pos} of {len} seconds");
    let bar = ProgressBar::new(seconds)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(doing.to_owned());
    let began = Instant::now();
    follow(bar, move || began.elapsed().as_secs().min(seconds))
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
