//! Errors of calls and of options.

use std::fmt;

pub use tonic::Code;
use tonic::Status;

/// Why a call has no answer, or why options are invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An argument or an option that can never be right. No call was made, except with
    /// [`UnknownDomain::Error`](crate::UnknownDomain::Error): the service then answered that no
    /// rules have the domain.
    Argument(String),
    /// The circuit breaker is open. No call was made.
    BreakerOpen,
    /// The client is closed. No call was made, or the call ended with the connection.
    Closed,
    /// The gRPC call ended with a status other than OK.
    Status {
        /// The gRPC status code. `DEADLINE_EXCEEDED` if the deadline passed without an answer.
        code: Code,
        /// The message of the service or of the connection.
        message: String,
    },
}

impl Error {
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::Argument(message.into())
    }

    /// The gRPC status code, if the call ended with one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(message) => f.write_str(message),
            Self::BreakerOpen => f.write_str("no call was made: the circuit breaker is open"),
            Self::Closed => f.write_str("the tollgate client is closed"),
            Self::Status { code, message } => {
                write!(f, "tollgate call failed: {code:?}: {message}")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Status {
            code: status.code(),
            message: status.message().to_owned(),
        }
    }
}

/// Why a call of the client has no answer.
pub(crate) enum CallError {
    /// Too many checks wait for the stream. This is no failure of the service.
    QueueFull,
    Status(Status),
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::QueueFull => Status::unavailable("queue full").into(),
            CallError::Status(status) => status.into(),
        }
    }
}
