//! What a job carries: its number, and where large payloads are measured a text beside it.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// For all jobs the same: no database compresses one row by what is in another.
static FILLER: OnceLock<String> = OnceLock::new();

/// For peers whose jobs are types of their own: `struct Noop(Payload)` has the same JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Payload {
    pub n: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filler: Option<Cow<'static, str>>,
}

impl Payload {
    pub fn of(n: u64) -> Self {
        Self {
            n,
            filler: filler().map(Cow::Borrowed),
        }
    }
}

/// The same as text.
pub fn payload(n: u64) -> String {
    match filler() {
        None => format!("{{\"n\":{n}}}"),
        Some(filler) => format!("{{\"n\":{n},\"filler\":\"{filler}\"}}"),
    }
}

/// Payloads are to be about so large.
pub(crate) fn set_bytes(bytes: usize) {
    let _ = FILLER.set(incompressible(bytes));
}

fn filler() -> Option<&'static str> {
    FILLER.get().map(String::as_str).filter(|f| !f.is_empty())
}

/// Letters and digits in which nothing comes twice.
fn incompressible(bytes: usize) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
    // The generator of Knuth's MMIX; its upper bits are good enough.
    let mut state = 1_u64;
    let sign = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(SIGNS[(state >> 58) as usize])
    };
    (0..bytes).map(sign).collect()
}
