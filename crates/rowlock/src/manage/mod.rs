//! Management: look at jobs, queues and workers, and change what happens to them. All of it are methods of
//! [`Client`]; the types here are what they take and answer.
//!
//! Every answer can be written as JSON, in the same words as the SQL functions and views use. Bad input is refused before
//! anything is sent. Whatever goes by a filter works in rounds of bounded size, each in a transaction of its own: it can be
//! dropped in between, and what was done stays done.
//!
//! Must not: decide anything that the database's functions decide already. They are the same for every language.

mod access;
mod archive;
mod dead;
mod filter;
mod history;
mod jobs;
mod look;
mod queues;
mod rounds;
mod row;
mod settings;
mod stats;
mod why;
mod workers;

pub use access::Access;
pub use archive::{Archive, Archived};
pub use dead::{DeadFilter, DeadReason, Discard, Discarded, Redrive, Redriven};
pub use filter::{JobFilter, Next};
pub use history::{MaintainStep, PartitionStep, Replay, Replayed};
pub use jobs::{
    Cancel, CancelAnswer, Delete, DeleteAnswer, JobError, JobInfo, JobPage, JobState, Place, Retry,
    RetryAnswer,
};
pub use queues::{KindInfo, Purge, Purged, QueueInfo};
pub use settings::{KindSettings, QueueSettings};
pub use stats::QueueStats;
pub use why::{Reason, Why};
pub use workers::WorkerInfo;

use jiff::Timestamp;

use crate::client::Client;
use crate::error::Result;

impl Client {
    /// What time it is by the database's clock, which decides about all times here.
    pub async fn clock(&self) -> Result<Timestamp> {
        let rows = self
            .rows("ask for the time", "select rowlock.clock() as clock", &[])
            .await?;
        Ok(row::moment(&rows[0], "clock"))
    }
}

/// An enum whose values are words of the SQL contract.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident ($what:literal, $rule:literal) { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// The word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::Invalid;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err($crate::Invalid::new($what, text, concat!($rule, ": known are ", words!(@list $($text),+)))),
                }
            }
        }
    };
    (@list $last:literal) => { $last };
    (@list $first:literal, $($rest:literal),+) => { concat!($first, ", ", words!(@list $($rest),+)) };
}
use words;
