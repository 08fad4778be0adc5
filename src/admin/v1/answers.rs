//! Bodies of responses. Numbers are numbers, durations are text in seconds, and what does not apply
//! is left out. A call that has no answer has an error: a code, and a sentence.

use ::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tollgate_limiter::{Code, ReservationOutcome};

use crate::admin::query::json_response;
use crate::pipeline::{ApiAnswer, ApiError, ApiLimit, LeaseAnswer, NoLimit, RequestError};
use crate::proto::tollgate::v1 as proto;
use crate::proto::tollgate::v1::call::Call;
use crate::store::StoreError;

/// Whether a call or a limit passes.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Verdict {
    Ok,
    OverLimit,
}

/// The answer to a call.
#[derive(Debug, Serialize)]
pub(super) struct CallAnswer {
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<String>,
    /// What a reservation has taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    hits: Option<u64>,
    /// Of a commit or a release.
    #[serde(flatten)]
    settled: Option<Settled>,
    #[serde(flatten)]
    lease: Option<LeaseFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<String>,
    /// Of a check, a peek or a reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_limit: Option<&'static str>,
    limits: Vec<LimitAnswer>,
}

#[derive(Debug, Serialize)]
struct Settled {
    reserved: u64,
    committed: u64,
    repeated: bool,
}

/// Of a lease.
#[derive(Debug, Serialize)]
struct LeaseFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
    granted: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_leased: Option<&'static str>,
}

/// The answer to the return of a lease.
#[derive(Debug, Serialize)]
pub(super) struct ReturnAnswer {
    returned: u64,
}

#[derive(Debug, Serialize)]
struct LimitAnswer {
    descriptor: usize,
    name: String,
    rule: String,
    requests_per_unit: u64,
    window: String,
    verdict: Verdict,
    remaining: u64,
    reset: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<String>,
}

/// The answer to one call of a batch: one of these, and the status that it would have alone.
#[derive(Debug, Serialize)]
pub(super) struct TaggedAnswer {
    pub(super) tag: u64,
    pub(super) status: u16,
    #[serde(flatten)]
    pub(super) answer: OneAnswer,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OneAnswer {
    Check(CallAnswer),
    Reserve(CallAnswer),
    Settle(CallAnswer),
    Lease(CallAnswer),
    Return(ReturnAnswer),
    Error(CallFailure),
}

/// A call that was not carried out.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(super) struct CallFailure {
    pub(super) code: ErrorCode,
    pub(super) message: String,
}

/// The kinds of errors. Names are those of gRPC where it has one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum ErrorCode {
    /// The body is not understood, or asks for what a limit cannot do.
    InvalidArgument,
    /// The request exceeds a bound of the settings.
    ResourceExhausted,
    /// The id of the reservation or the lease is not known.
    NotFound,
    /// The path is not known.
    Unimplemented,
    /// The path takes another method.
    MethodNotAllowed,
    /// The body is too large.
    TooLarge,
    /// The body is not JSON.
    UnsupportedMediaType,
    /// tollgate has a defect.
    Internal,
    /// There are no rules yet, or the store did not decide.
    Unavailable,
    /// A deadline passed before the decision.
    DeadlineExceeded,
}

#[derive(Debug, Serialize)]
struct FailedBody {
    error: CallFailure,
}

/// A duration as text in seconds, such as `12.5s`.
fn seconds_text(us: u64) -> String {
    let (seconds, rest) = (us / 1_000_000, us % 1_000_000);
    if rest == 0 {
        return format!("{seconds}s");
    }
    let decimals = format!("{rest:06}");
    format!("{seconds}.{}s", decimals.trim_end_matches('0'))
}

// === impl OneAnswer ===

impl OneAnswer {
    pub(super) fn of(call: Call, answer: ApiAnswer) -> Self {
        let passed = answer.verdict == Code::Ok;
        let hits = answer.hits;
        let settled = Settled {
            reserved: answer.settled.reserved,
            committed: answer.settled.committed,
            repeated: answer.reservation == ReservationOutcome::SettledBefore,
        };
        let expires_ms = answer.expires_ms.map(u64::from);
        let expires = expires_ms.map(|ms| seconds_text(ms.saturating_mul(1_000)));
        let checked = CallAnswer {
            verdict: answer.verdict.into(),
            reservation: None,
            hits: None,
            settled: None,
            lease: None,
            expires: None,
            remaining: answer.remaining,
            reset: answer.reset_us.map(seconds_text),
            retry_after: answer.retry_us.map(seconds_text),
            no_limit: answer.no_limit.map(NoLimit::word),
            limits: answer.limits.into_iter().map(LimitAnswer::of).collect(),
        };
        match call {
            Call::Lease(_) => Self::Lease(checked.of_lease(answer.lease)),
            Call::GiveBack(_) => Self::Return(ReturnAnswer {
                returned: match answer.lease {
                    Some(LeaseAnswer::Returned(hits)) => hits,
                    _ => 0,
                },
            }),
            Call::Check(_) | Call::Peek(_) => Self::Check(checked),
            Call::Reserve(call) => Self::Reserve(CallAnswer {
                reservation: passed.then_some(call.reservation),
                hits: Some(hits),
                expires: expires.filter(|_| passed),
                ..checked
            }),
            Call::Extend(call) => Self::Settle(CallAnswer {
                reservation: Some(call.reservation),
                expires,
                no_limit: None,
                ..checked
            }),
            Call::Commit(proto::CommitRequest { reservation, .. })
            | Call::Release(proto::ReleaseRequest { reservation, .. }) => {
                Self::Settle(CallAnswer {
                    reservation: Some(reservation),
                    settled: Some(settled),
                    no_limit: None,
                    ..checked
                })
            }
        }
    }
}

// === impl CallAnswer ===

impl CallAnswer {
    fn of_lease(self, lease: Option<LeaseAnswer>) -> Self {
        let (lease, granted, not_leased, valid_us) = match lease {
            Some(LeaseAnswer::Granted {
                lease,
                hits,
                valid_us,
            }) => (Some(lease), hits, None, Some(valid_us)),
            Some(LeaseAnswer::NotLeased { reason, valid_us }) => {
                (None, 0, Some(reason.word()), Some(valid_us))
            }
            Some(LeaseAnswer::Refused | LeaseAnswer::Returned(_)) | None => (None, 0, None, None),
        };
        Self {
            lease: Some(LeaseFields {
                lease,
                granted,
                not_leased,
            }),
            expires: valid_us.map(seconds_text),
            no_limit: None,
            ..self
        }
    }
}

// === impl LimitAnswer ===

impl LimitAnswer {
    fn of(limit: ApiLimit) -> Self {
        Self {
            descriptor: limit.descriptor,
            name: limit.name,
            rule: limit.rule.to_string(),
            requests_per_unit: limit.requests_per_unit,
            window: limit.window,
            verdict: limit.verdict.into(),
            remaining: limit.remaining,
            reset: seconds_text(limit.reset_us),
            retry_after: limit.retry_us.map(seconds_text),
        }
    }
}

impl From<Code> for Verdict {
    fn from(code: Code) -> Self {
        match code {
            Code::Ok => Self::Ok,
            Code::OverLimit => Self::OverLimit,
        }
    }
}

// === impl ErrorCode ===

impl ErrorCode {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::ResourceExhausted => StatusCode::BAD_REQUEST,
            Self::NotFound | Self::Unimplemented => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

// === impl CallFailure ===

impl CallFailure {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The call is not understood.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }
}

impl From<ApiError> for CallFailure {
    fn from(error: ApiError) -> Self {
        let message = error.to_string();
        let code = match error {
            ApiError::Invalid(_) => ErrorCode::InvalidArgument,
            ApiError::Unknown(_) => ErrorCode::NotFound,
            ApiError::Request(error) => match error {
                RequestError::Malformed(_)
                | RequestError::Invalid(_)
                | RequestError::EmptyDomain
                | RequestError::NoDescriptors => ErrorCode::InvalidArgument,
                RequestError::TooManyDescriptors { .. }
                | RequestError::TooManyEntries { .. }
                | RequestError::TooManyMatchingSteps
                | RequestError::AnswerTooLarge { .. } => ErrorCode::ResourceExhausted,
                RequestError::Store(StoreError::DeadlineExceeded) => ErrorCode::DeadlineExceeded,
                RequestError::NoRules | RequestError::Store(_) => ErrorCode::Unavailable,
            },
        };
        Self { code, message }
    }
}

impl IntoResponse for CallFailure {
    fn into_response(self) -> Response {
        let status = self.code.status();
        tracing::debug!(
            status = status.as_u16(),
            error = self.message,
            "/v1 refused a request"
        );
        json_response(status, &FailedBody { error: self })
    }
}

#[cfg(test)]
mod tests {
    use super::seconds_text;

    #[test]
    fn seconds_have_no_more_decimals_than_they_need() {
        for (us, text) in [
            (0, "0s"),
            (1, "0.000001s"),
            (12_500_000, "12.5s"),
            (60_000_000, "60s"),
            (u64::MAX, "18446744073709.551615s"),
        ] {
            assert_eq!(seconds_text(us), text);
        }
    }
}
