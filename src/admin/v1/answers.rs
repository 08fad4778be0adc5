//! Bodies of responses. Numbers are numbers, durations are text in seconds, and what does not apply
//! is left out. A call that has no answer has an error: a code, and a sentence.

use ::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use tollgate_limiter::Code;

use crate::admin::query::json_response;
use crate::api_calls::{self, verdict_of};
use crate::pipeline::{ApiAnswer, ApiError, RequestError};
use crate::proto::tollgate::v1 as proto;
use crate::proto::tollgate::v1::answer::Answer;
use crate::proto::tollgate::v1::call::Call;
use crate::store::StoreError;

/// A message of tollgate's API as an object.
#[derive(Debug)]
pub(super) struct Json<M>(M);

/// The answer to an extension, a commit or a release, and its verdict.
#[derive(Debug)]
pub(super) struct Settled(Code, proto::SettleResponse);

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
    Check(Json<proto::CheckResponse>),
    Reserve(Json<proto::ReserveResponse>),
    Settle(Settled),
    Lease(Json<proto::LeaseResponse>),
    Return(Json<proto::ReturnResponse>),
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

// === impl Json ===

/// Each field of a message, and the function that writes it.
macro_rules! object {
    ($message:ty; $($write:ident $field:ident),+) => {
        impl Serialize for Json<$message> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut object = serializer.serialize_map(None)?;
                $(entry(&mut object, stringify!($field), $write(&self.0.$field))?;)+
                object.end()
            }
        }
    };
}

object!(proto::CheckResponse;
    verdict verdict, option remaining, time reset, time retry_after, text no_limit, limits limits
);
object!(proto::ReserveResponse;
    verdict verdict, text reservation, plain hits, time expires, option remaining, time reset,
    time retry_after, text no_limit, limits limits
);
object!(proto::LeaseResponse;
    verdict verdict, text lease, plain granted, text not_leased, time expires, option remaining,
    time reset, time retry_after, limits limits
);
object!(proto::ReturnResponse; plain returned);
object!(&proto::LimitStatus;
    plain descriptor, plain name, plain rule, plain requests_per_unit, plain window,
    verdict verdict, plain remaining, time reset, time retry_after
);

fn entry<O: SerializeMap>(
    object: &mut O,
    name: &'static str,
    value: Option<impl Serialize>,
) -> Result<(), O::Error> {
    value.map_or(Ok(()), |value| object.serialize_entry(name, &value))
}

#[allow(clippy::unnecessary_wraps)] // as the other functions that `object` calls
fn plain<T>(value: &T) -> Option<&T> {
    Some(value)
}

#[allow(clippy::ref_option)] // `object` lends each field
fn option<T>(value: &Option<T>) -> Option<&T> {
    value.as_ref()
}

/// A text; none if it is empty.
fn text(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

#[allow(clippy::ref_option)] // `object` lends each field
fn time(time: &Option<prost_types::Duration>) -> Option<String> {
    time.as_ref().map(seconds_text)
}

#[allow(clippy::trivially_copy_pass_by_ref)] // `object` lends each field
fn verdict(verdict: &i32) -> Option<&'static str> {
    let verdict = proto::Verdict::try_from(*verdict).ok()?;
    verdict.as_str_name().strip_prefix("VERDICT_")
}

#[allow(clippy::unnecessary_wraps)] // as the other functions that `object` calls
fn limits(limits: &[proto::LimitStatus]) -> Option<Vec<Json<&proto::LimitStatus>>> {
    Some(limits.iter().map(Json).collect())
}

/// A duration as text in seconds, such as `12.5s`.
fn seconds_text(time: &prost_types::Duration) -> String {
    let decimals = format!(".{:09}", time.nanos);
    let decimals = decimals.trim_end_matches('0').trim_end_matches('.');
    format!("{}{decimals}s", time.seconds)
}

impl Serialize for Settled {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(code, answer) = self;
        let mut object = serializer.serialize_map(None)?;
        entry(&mut object, "verdict", verdict(&verdict_of(*code)))?;
        entry(&mut object, "reservation", Some(&answer.reservation))?;
        // An extension settles nothing.
        if answer.expires.is_none() {
            entry(&mut object, "reserved", Some(answer.reserved))?;
            entry(&mut object, "committed", Some(answer.committed))?;
            entry(&mut object, "repeated", Some(answer.repeated))?;
        }
        entry(&mut object, "expires", time(&answer.expires))?;
        entry(&mut object, "remaining", answer.remaining)?;
        entry(&mut object, "reset", time(&answer.reset))?;
        entry(&mut object, "limits", limits(&answer.limits))?;
        object.end()
    }
}

// === impl OneAnswer ===

impl OneAnswer {
    pub(super) fn of(call: Call, answer: ApiAnswer) -> Self {
        let code = answer.verdict;
        match api_calls::answer(call, answer) {
            Answer::Check(answer) => Self::Check(Json(answer)),
            Answer::Reserve(answer) => Self::Reserve(Json(answer)),
            Answer::Settle(answer) => Self::Settle(Settled(code, answer)),
            Answer::Lease(answer) => Self::Lease(Json(answer)),
            Answer::GiveBack(answer) => Self::Return(Json(answer)),
            Answer::Failure(failure) => {
                Self::Error(CallFailure::new(ErrorCode::Internal, failure.message))
            }
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
        for (seconds, nanos, text) in [
            (0, 0, "0s"),
            (0, 1_000, "0.000001s"),
            (12, 500_000_000, "12.5s"),
            (60, 0, "60s"),
            (18_446_744_073_709, 551_615_000, "18446744073709.551615s"),
        ] {
            let time = prost_types::Duration { seconds, nanos };
            assert_eq!(seconds_text(&time), text);
        }
    }
}
