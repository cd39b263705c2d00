//! A lane: one queue that the worker serves.

use std::sync::{Arc, Mutex};

use super::cursor::Cursor;
use super::telemetry::LaneMeters;

/// One queue that the worker serves.
pub(crate) struct Lane {
    /// Its number among the worker's slots.
    pub(crate) number: usize,
    pub(crate) queue: Arc<str>,
    /// Where the next claim starts to look.
    pub(super) cursor: Mutex<Cursor>,
    pub(super) meters: LaneMeters,
}

impl Lane {
    pub(super) fn new(number: usize, queue: &str) -> Self {
        Self {
            number,
            queue: queue.into(),
            cursor: Mutex::default(),
            meters: LaneMeters::new(queue),
        }
    }
}
