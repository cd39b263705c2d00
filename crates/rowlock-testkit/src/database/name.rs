//! The names of the databases: they tell when and by which process each was made.
//!
//! Promises: two names are never the same; a name that somebody else made is never taken for one of these. Must not do any I/O.

use std::time::SystemTime;

/// All names start with it.
pub(super) const PREFIX: &str = "rowlock_test_";

/// No test takes longer than this; a database that is older and that nobody uses was left behind.
const LEFTOVER_AGE_S: u64 = 3600;

/// Names are all lower case letters, digits and `_`, so that they need no quotes.
pub(super) fn new_name() -> String {
    format!(
        "{PREFIX}{}_{}_{:08x}",
        now_s(),
        std::process::id(),
        rand::random::<u32>()
    )
}

/// What the name of a database of ours tells about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Birth {
    at_s: u64,
    process: i32,
}

impl Birth {
    /// Reads a name made by [`new_name`]; others are nobody's business here.
    pub(super) fn of(name: &str) -> Option<Birth> {
        if !name
            .chars()
            .all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
        {
            return None;
        }
        let mut parts = name.strip_prefix(PREFIX)?.split('_');
        let birth = Birth {
            at_s: parts.next()?.parse().ok()?,
            process: parts.next()?.parse().ok()?,
        };
        (parts.next()?.len() == 8 && parts.next().is_none()).then_some(birth)
    }

    pub(super) fn is_long_ago(self, now_s: u64) -> bool {
        self.at_s.saturating_add(LEFTOVER_AGE_S) < now_s
    }

    pub(super) fn process_is_gone(self) -> bool {
        let process = rustix::process::Pid::from_raw(self.process.max(0));
        process.is_some_and(|process| {
            rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
        })
    }
}

pub(super) fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_when_and_by_whom_it_was_made() {
        let (name, now) = (new_name(), now_s());
        let birth = Birth::of(&name).unwrap();
        assert!(!birth.is_long_ago(now));
        assert!(birth.is_long_ago(now + LEFTOVER_AGE_S + 10));
        assert!(!birth.process_is_gone());
        assert_ne!(name, new_name());

        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let process = i32::try_from(ended.id()).unwrap();
        ended.wait().unwrap();
        assert!(Birth { process, ..birth }.process_is_gone());
    }

    #[test]
    fn names_that_others_made_tell_nothing() {
        let foreign = [
            "postgres",
            "rowlock_test_",
            "rowlock_test_production",
            "rowlock_test_1_2",
            "rowlock_test_1_2_\"; drop",
            "rowlock_test_1_2_0000000A",
            "rowlock_test_1_2_00000000_mine",
            "my_rowlock_test_1_2_00000000",
        ];
        for name in foreign {
            assert_eq!(Birth::of(name), None, "{name}");
        }
    }
}
