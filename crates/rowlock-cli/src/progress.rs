//! Progress of long work, on standard error, so that standard output stays what a script reads. Silent without a terminal.

use std::fmt::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::say;

/// A bar when it is known how much there is to do, else a count that grows.
pub(crate) fn of(doing: &str, total: Option<u64>) -> ProgressBar {
    let bar = match total {
        Some(total) => ProgressBar::new(total).with_style(style(
            "{msg} {wide_bar:.cyan/dim} {human_pos} of {human_len}, {rate}, {eta} left",
        )),
        None => {
            ProgressBar::no_length().with_style(style("{spinner:.cyan} {msg} {human_pos}, {rate}"))
        }
    };
    // Hides itself where there is no terminal.
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    bar.set_message(doing.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants of this file.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}/s", say::number(state.per_sec() as u64));
        })
}
