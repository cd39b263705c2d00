//! The jobs of a benchmark: numbered, and filled up with noise.

use rowlock::NewJob;
use serde_json::value::RawValue;

use super::{KIND, QUEUE, Stage};

impl Stage {
    /// The payload of the `n`-th job.
    pub(in crate::bench) fn payload(&self, n: u64) -> String {
        payload(n, &self.padding)
    }

    /// What each payload is filled up with.
    pub(in crate::bench) fn padding(&self) -> &str {
        &self.padding
    }

    /// The `n`-th job.
    pub(in crate::bench) fn job(&self, n: u64) -> NewJob {
        job_of(self.payload(n)).queue(QUEUE)
    }
}

/// A text that does not get smaller by compression.
pub(in crate::bench) fn noise(bytes: usize) -> String {
    use rand::Rng;
    use rand::distr::Alphanumeric;
    let letters = rand::rng().sample_iter(Alphanumeric);
    letters.take(bytes).map(char::from).collect()
}

/// As the database counts. There are never so many that it matters.
pub(in crate::bench) fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(in crate::bench) fn payload(n: u64, padding: &str) -> String {
    if padding.is_empty() {
        format!("{{\"n\":{n}}}")
    } else {
        format!("{{\"n\":{n},\"x\":\"{padding}\"}}")
    }
}

/// A job of the kind that only counts, with this payload.
pub(in crate::bench) fn job_of(payload: String) -> NewJob {
    let payload = RawValue::from_string(payload).unwrap_or_default();
    NewJob::new(KIND, &payload).unwrap_or_else(|e| unreachable!("an object is fine: {e}"))
}

/// The number of a job, without a JSON parser in what is measured.
pub(in crate::bench) fn number(payload: &str) -> u64 {
    let Some((_, rest)) = payload.split_once("\"n\":") else {
        return u64::MAX;
    };
    rest.trim_start()
        .bytes()
        .map_while(|b| b.is_ascii_digit().then(|| u64::from(b - b'0')))
        .fold(0, |n, d| n * 10 + d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        assert_eq!(number(r#"{"n": 42}"#), 42);
        assert_eq!(number(r#"{"n":7,"x":"xxx"}"#), 7);
        assert_eq!(number(r#"{"x": "a:b", "n": 9}"#), 9);
        assert_eq!(number("{}"), u64::MAX, "a stray, for the ledger");
    }
}
