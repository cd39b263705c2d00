//! The settings of a worker.

use std::time::Duration;

use super::slots::Order;
use crate::error::{Error, Invalid, Result};
use crate::validate;

/// Which queues a subscription means.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Selector {
    Name(String),
    /// With `*` for any text.
    Pattern(String),
}

/// Queues that a worker serves, and how.
///
/// ```
/// use rowlock::Queue;
/// let mail = Queue::named("mail").concurrency(20);
/// let tenants = Queue::matching("tenant-*").concurrency(2).weight(3);
/// let rest = Queue::all();
/// ```
#[derive(Debug, Clone)]
#[must_use = "give it to WorkerBuilder::queue"]
pub struct Queue {
    selector: Selector,
    pub(super) concurrency: Option<usize>,
    pub(super) weight: usize,
}

impl Queue {
    /// The queue of this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self::new(Selector::Name(name.into()))
    }

    /// All queues whose names match, now or later; `*` stands for any text.
    pub fn matching(pattern: impl Into<String>) -> Self {
        Self::new(Selector::Pattern(pattern.into()))
    }

    /// All queues, now or later.
    pub fn all() -> Self {
        Self::matching("*")
    }

    fn new(selector: Selector) -> Self {
        Self {
            selector,
            concurrency: None,
            weight: 1,
        }
    }

    /// How many jobs of each of these queues this worker runs at once; as many as the worker may in all, by default.
    pub fn concurrency(mut self, at_once: usize) -> Self {
        self.concurrency = Some(at_once);
        self
    }

    /// Its share when several queues have jobs waiting (see [`Order::Weighted`]).
    pub fn weight(mut self, weight: usize) -> Self {
        self.weight = weight;
        self
    }

    /// The name, if it is one and not a pattern.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.selector {
            Selector::Name(name) => Some(name),
            Selector::Pattern(_) => None,
        }
    }

    pub(super) fn means(&self, queue: &str) -> bool {
        match &self.selector {
            Selector::Name(name) => name == queue,
            Selector::Pattern(pattern) => matches(pattern, queue),
        }
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        match &self.selector {
            Selector::Name(text) | Selector::Pattern(text) => validate::name("queue", text)?,
        }
        if self.concurrency == Some(0) {
            return Err(Invalid::new(
                "concurrency",
                0,
                "means that nothing runs: leave the queue out, or pause it",
            ));
        }
        if !(1..=1000).contains(&self.weight) {
            return Err(Invalid::new(
                "weight",
                self.weight,
                "must be from 1 to 1000",
            ));
        }
        Ok(())
    }

    /// As people wrote it.
    pub(super) fn text(&self) -> &str {
        match &self.selector {
            Selector::Name(text) | Selector::Pattern(text) => text,
        }
    }
}

impl From<&str> for Queue {
    /// A pattern if there is a `*` in it, else a name.
    fn from(text: &str) -> Self {
        if text.contains('*') {
            Self::matching(text)
        } else {
            Self::named(text)
        }
    }
}

/// Whether the text is what the pattern means; `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(head) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        // The earliest place leaves the most for what follows.
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(tail)
}

/// The settings of a worker.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) name: String,
    pub(super) queues: Vec<Queue>,
    pub(super) concurrency: usize,
    pub(super) order: Order,
    /// `None`: the queue's.
    pub(super) lease: Option<Duration>,
    pub(super) poll: Duration,
    pub(super) poll_only: bool,
    /// Most jobs claimed beyond the free slots.
    pub(super) ahead_max: usize,
    pub(super) grace: Duration,
    /// How long a statement may take before its connection counts as broken.
    pub(super) statement_timeout: Duration,
    pub(super) maintain: bool,
}

impl Config {
    pub(super) fn check(&self) -> Result<()> {
        validate::name("worker", &self.name)?;
        if self.queues.is_empty() {
            return Err(Error::Setup(
                "the worker has no queues: add .queue(\"default\"), or .queue(Queue::all())".into(),
            ));
        }
        self.queues.iter().try_for_each(Queue::check)?;
        if !(1..=100_000).contains(&self.concurrency) {
            return Err(
                Invalid::new("concurrency", self.concurrency, "must be from 1 to 100000").into(),
            );
        }
        if self
            .lease
            .is_some_and(|l| !(Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&l))
        {
            let lease = self.lease.unwrap_or_default();
            return Err(Invalid::new(
                "lease",
                format_args!("{lease:?}"),
                "must be from 1 s to 1 day",
            )
            .into());
        }
        if !(Duration::from_millis(10)..=Duration::from_secs(3600)).contains(&self.poll) {
            return Err(Invalid::new(
                "poll",
                format_args!("{:?}", self.poll),
                "must be from 10 ms to 1 h",
            )
            .into());
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(3600))
            .contains(&self.statement_timeout)
        {
            return Err(Invalid::new(
                "statement_timeout",
                format_args!("{:?}", self.statement_timeout),
                "must be from 100 ms to 1 h",
            )
            .into());
        }
        if self.ahead_max > 100_000 {
            return Err(Invalid::new("ahead", self.ahead_max, "must be at most 100000").into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns() {
        for (pattern, text, means) in [
            ("mail", "mail", true),
            ("mail", "mails", false),
            ("*", "", true),
            ("tenant-*", "tenant-7", true),
            ("tenant-*", "tenants", false),
            ("*-low", "mail-low", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXcYb", false),
            ("a*a", "a", false),
            ("a**a", "aa", true),
            ("*ab", "aab", true),
        ] {
            assert_eq!(matches(pattern, text), means, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn a_star_takes_anything(head in "[a-c]{0,3}", middle in "[a-c*]{0,5}", tail in "[a-c]{0,3}") {
            let text = format!("{head}{}{tail}", middle.replace('*', ""));
            let pattern = format!("{head}*{tail}");
            prop_assert!(matches(&pattern, &text));
        }
    }
}
