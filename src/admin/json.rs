//! `/json`: one decision for one body, as the reference answers it.
//!
//! 200 when it may pass, 429 when over limit, 400 when the question is not understood. One thing is different: a store
//! that cannot decide is 503 here, so that a caller can tell its own mistake from ours.
//!
//! What it deliberately does not do: decide, or know protobuf (`service`).

use ::http::{StatusCode, header};
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};

use crate::admin::protobuf_json::{JsonResult, JsonService};
use crate::pipeline::RequestError;

/// The largest question, in bytes.
const BODY_BYTES_MAX: usize = 256 << 10;

pub(super) async fn decide(json: Arc<JsonService>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        return refusal(StatusCode::BAD_REQUEST);
    };
    match json.decide(&head.headers, &body).await {
        JsonResult::Decided { allowed, body } => {
            let status = if allowed {
                StatusCode::OK
            } else {
                StatusCode::TOO_MANY_REQUESTS
            };
            (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        JsonResult::Invalid(why) => {
            tracing::debug!(why, "/json: question not understood");
            refusal(StatusCode::BAD_REQUEST)
        }
        JsonResult::Failed(why @ (RequestError::Store(_) | RequestError::NoRules)) => {
            tracing::debug!(%why, "/json: question not answered");
            refusal(StatusCode::SERVICE_UNAVAILABLE)
        }
        JsonResult::Failed(why) => {
            tracing::debug!(%why, "/json: question not answered");
            refusal(StatusCode::BAD_REQUEST)
        }
        JsonResult::Unwritable(why) => {
            tracing::error!(why, "/json: answer cannot be written");
            refusal(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

/// The status's own words and a line end: what the reference sends.
fn refusal(status: StatusCode) -> Response {
    let words = status.canonical_reason().unwrap_or_default();
    (status, format!("{words}\n")).into_response()
}
