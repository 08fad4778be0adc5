//! Why a request has no answer.

use tollgate_limiter::MATCHING_STEPS_MAX;

use crate::store::StoreError;

/// Why a request has no answer. The sentences are the reference's where it has one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// The bytes are no `RateLimitRequest`, for this reason.
    #[error("{0}")]
    Malformed(String),
    /// The request names no domain.
    #[error("rate limit domain must not be empty")]
    EmptyDomain,
    /// The request has no descriptor.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// The request has more descriptors than it may, and the setting says that is an error.
    #[error("a request may have {max} descriptors; raise --descriptors-max")]
    TooManyDescriptors {
        /// How many it may have.
        max: usize,
    },
    /// A descriptor has more entries than it may, and the setting says that is an error.
    #[error("a descriptor may have {max} entries; raise --entries-max")]
    TooManyEntries {
        /// How many it may have.
        max: usize,
    },
    /// The answer has more bytes than it may.
    #[error(
        "the answer may have {max} bytes; send fewer descriptors or calls at once, or raise --answer-size-max"
    )]
    AnswerTooLarge {
        /// How many it may have.
        max: usize,
    },
    /// Matching the request against patterns takes more steps than it may, and the setting says
    /// that is an error.
    #[error(
        "matching this request against the patterns of its keys takes more than {MATCHING_STEPS_MAX} steps; send shorter values"
    )]
    TooManyMatchingSteps,
    /// The call asks for what a limit cannot do, and this says which.
    #[error("{0}")]
    Invalid(String),
    /// No rules were ever loaded.
    #[error("no rate limit configuration loaded")]
    NoRules,
    /// The store did not decide, and the setting says that is an error.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl RequestError ===

impl RequestError {
    /// The name of its gRPC status code.
    pub(crate) fn grpc_code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "INTERNAL",
            Self::EmptyDomain | Self::NoDescriptors | Self::Invalid(_) => "INVALID_ARGUMENT",
            Self::TooManyDescriptors { .. }
            | Self::TooManyEntries { .. }
            | Self::TooManyMatchingSteps
            | Self::AnswerTooLarge { .. } => "RESOURCE_EXHAUSTED",
            Self::Store(StoreError::DeadlineExceeded) => "DEADLINE_EXCEEDED",
            Self::NoRules | Self::Store(_) => "UNAVAILABLE",
        }
    }
}
