//! Why a call has no answer: a status, a code, and a sentence.

use ::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::admin::query::json_response;
use crate::pipeline::{ApiError, RequestError};
use crate::store::StoreError;

/// A call that was not carried out.
#[derive(Clone, Debug, Eq, PartialEq)]
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
    /// The id of the reservation is not known.
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

/// The error in a body.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ErrorBody {
    pub(super) code: ErrorCode,
    pub(super) message: String,
}

#[derive(Debug, Serialize)]
struct FailedBody {
    error: ErrorBody,
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

    pub(super) fn into_body(self) -> ErrorBody {
        ErrorBody {
            code: self.code,
            message: self.message,
        }
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
        let error = self.into_body();
        json_response(status, &FailedBody { error })
    }
}
