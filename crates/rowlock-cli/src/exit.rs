//! Exit codes that scripts can trust. They are documented in `rowlock --help`.

use std::process::ExitCode;

/// How a command ended, beyond success and error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: it did what was asked.
    Success,
    /// 1: it did not, or what was compared differs. (2 is a mistake in the command line.)
    Failure,
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
            Exit::NothingFound => 3,
            Exit::Warning => 10,
            Exit::Critical => 20,
        })
    }
}
