//! Errors of the admin API: a status, and a body that says what is wrong and what to do.

use ::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::admin_api::ApiError;

/// A request that was not carried out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ApiFailure {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

// === impl ApiFailure ===

impl ApiFailure {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// The request is invalid.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// It cannot be done now.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}

impl IntoResponse for ApiFailure {
    fn into_response(self) -> Response {
        let error = ApiError {
            error: self.message,
        };
        json_response(self.status, &error)
    }
}

/// Headers of a response in JSON, which no cache may keep.
pub(super) const JSON_HEADERS: [(HeaderName, &str); 3] = [
    (header::CONTENT_TYPE, "application/json"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// A value as one line of JSON.
pub(super) fn json_bytes(value: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut bytes = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A response in JSON.
pub(super) fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    match json_bytes(value) {
        Ok(body) => (status, JSON_HEADERS, body).into_response(),
        Err(error) => {
            tracing::error!(error, "cannot write a response of the admin listener");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
