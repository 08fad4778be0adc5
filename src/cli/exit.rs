//! Exit codes.

use std::process::ExitCode;

/// Every way a command can end. Scripts may rely on the codes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// Success; for `hit`: allowed.
    Success,
    /// Failure: invalid rules, a port in use, a missing file.
    Failure,
    /// Invalid command line.
    Usage,
    /// `hit`: over limit.
    OverLimit,
    /// No service answered, or it answered with an error.
    NoAnswer,
    /// `hit --expect-limit`: no limit matched a descriptor.
    NoLimit,
    /// Only a part was done: `convert` left out what has no equal, or some replicas of `top --once`,
    /// `reset` or `shadow` did not answer.
    Partial,
}

// === impl Exit ===

impl Exit {
    /// Exit code of the process.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::OverLimit => 3,
            Self::NoAnswer => 4,
            Self::NoLimit => 5,
            Self::Partial => 6,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
