//! How a request ended: one value, made once, that every observer reads.

use std::sync::Arc;

use tollgate_limiter::{Code, Decision, MATCHING_STEPS_MAX, Outcome, Plan, Request, RuleSet};

use tollgate_admin_api::{Reason, Verdict};
use tollgate_store::{CheckStamp, StoreError};

/// A request that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended<'a> {
    /// The request, decoded; empty if no observer reads it.
    pub(crate) request: &'a Request<'a>,
    /// Its message; empty if no observer reads it.
    pub(crate) message: &'a [u8],
    /// Microseconds from its arrival.
    pub(crate) took_us: u64,
    /// How it ended.
    pub(crate) end: End<'a>,
    /// The answer, where this is the decision of a candidate.
    pub(crate) live_verdict: Option<Verdict>,
}

/// How a request ended.
#[derive(Clone, Copy)]
pub(crate) enum End<'a> {
    /// It was matched against rules and decided.
    Decided(&'a Matched<'a>),
    /// It was matched against rules, and the store did not decide.
    Undecided(&'a Matched<'a>, &'a RequestError),
    /// It was matched against rules, and its caller left before the answer. Nothing is counted.
    Left(&'a Matched<'a>),
    /// It exceeds a bound, and a setting answered.
    Bound(Code),
    /// It was not matched against rules.
    Failed(&'a RequestError),
}

/// A request that was matched against rules, and what became of its checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matched<'a> {
    /// The number of the generation of the rules.
    pub(crate) generation: i64,
    /// The rules.
    pub(crate) rules: &'a RuleSet,
    /// The names of the rules, by their index.
    pub(crate) names: &'a [Arc<str>],
    /// The plan by these rules.
    pub(crate) plan: &'a Plan<'a>,
    /// The decision. Where there was none, the one by the checks that were decided.
    pub(crate) decision: &'a Decision<'a>,
    /// The answers to the plan's checks; none for a check that was not decided.
    pub(crate) outcomes: &'a [Option<Outcome>],
    /// Whether the denial cache answered.
    pub(crate) from_denial_cache: bool,
    /// The positions of checks that the fallback decided.
    pub(crate) local: &'a [usize],
    /// Why checks without an outcome were answered as they were; none if that is an error.
    pub(crate) undecided: Option<Reason>,
    /// When checks were decided, while a recording runs. Else empty.
    pub(crate) stamps: &'a [CheckStamp],
}

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

/// The verdict of a code.
pub(crate) fn verdict(code: Code) -> Verdict {
    match code {
        Code::Ok => Verdict::Ok,
        Code::OverLimit => Verdict::OverLimit,
    }
}

// === impl End ===

impl<'a> End<'a> {
    /// The answer.
    pub(crate) fn verdict(&self) -> Verdict {
        self.code().map_or(Verdict::Error, verdict)
    }

    /// What it was matched against; none where it was not.
    #[inline]
    pub(crate) fn matched(&self) -> Option<&'a Matched<'a>> {
        match *self {
            Self::Decided(matched) | Self::Undecided(matched, _) | Self::Left(matched) => {
                Some(matched)
            }
            Self::Bound(_) | Self::Failed(_) => None,
        }
    }

    /// The code of the answer; none without one.
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Self::Decided(matched) => Some(matched.decision.code),
            Self::Bound(code) => Some(*code),
            Self::Undecided(..) | Self::Left(_) | Self::Failed(_) => None,
        }
    }
}

// === impl RequestError ===

impl RequestError {
    /// The name of its gRPC status code.
    pub fn grpc_code(&self) -> &'static str {
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
