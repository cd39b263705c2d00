//! Exit codes that scripts can trust. They are documented in `rowlock --help`.

use std::process::ExitCode;

use crate::settings::Refused;

/// How a command ended, beyond success and error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: it did what was asked.
    Success,
    /// 1: it did not, or what was compared differs.
    Failure,
    /// 2: what was asked makes no sense, and never will; nothing was changed.
    Mistake,
    /// 3: there was nothing that it could have been done to.
    NothingFound,
    /// 10: `doctor` found something to look at.
    Warning,
    /// 20: `doctor` found something that hurts now.
    Critical,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Mistake => 2,
            Exit::NothingFound => 3,
            Exit::Warning => 10,
            Exit::Critical => 20,
        })
    }
}

/// A mistake in what was asked, as opposed to something that went wrong on the way: trying again does not help.
#[derive(Debug)]
pub(crate) struct Mistake(String);

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mistake {}

/// An error that ends the program with 2.
pub(crate) fn mistake(text: impl Into<String>) -> anyhow::Error {
    Mistake(text.into()).into()
}

/// Whether an error is about what was asked: said by the program itself, by the library about a value, or about a configuration. What happened
/// while something else was being done, and says so, is a failure of that.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    let Some(outermost) = error.chain().next() else {
        return Exit::Failure;
    };
    let refused = matches!(
        outermost.downcast_ref::<rowlock::Error>(),
        Some(rowlock::Error::Invalid(_) | rowlock::Error::ConnInfo(_))
    );
    if refused
        || outermost.is::<rowlock::Invalid>()
        || outermost.is::<rowlock::ConnInfoError>()
        || outermost.is::<Refused>()
        || outermost.is::<Mistake>()
    {
        Exit::Mistake
    } else {
        Exit::Failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_from_failures() {
        assert_eq!(of(&mistake("say which jobs")), Exit::Mistake);
        let bad: rowlock::Invalid = "x".parse::<rowlock::manage::JobState>().unwrap_err();
        let bad = anyhow::Error::from(bad);
        assert_eq!(of(&bad), Exit::Mistake);
        assert_eq!(of(&bad.context("cannot start")), Exit::Failure);
        assert_eq!(of(&anyhow::anyhow!("the disk is full")), Exit::Failure);
    }
}
