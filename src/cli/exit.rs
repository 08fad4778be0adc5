//! How a process ends.

use std::process::ExitCode;

/// Every way a command can end, each with a number of its own that scripts may rely on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// Done; for `hit`: may pass.
    Success,
    /// Could not be done: rules are wrong, a port is taken, a file is missing.
    Failure,
    /// The command line was not understood.
    Usage,
    /// `hit`: over limit.
    OverLimit,
    /// `hit`: no service answered, or it answered with an error.
    NoAnswer,
}

// === impl Exit ===

impl Exit {
    /// The number that the shell sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::OverLimit => 3,
            Self::NoAnswer => 4,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
