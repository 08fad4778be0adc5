//! `/json`: one decision for one body, as the reference answers it.
//!
//! 200 when allowed, 429 when over the limit, 400 when the request is invalid. One status differs
//! from the reference: a store that cannot decide is 503 here, so that a client can tell its own
//! error from ours.
//!
//! What it deliberately does not do: decide (`pipeline`) or know protobuf (`grpc`).

use ::http::{StatusCode, header};
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};

use crate::admin::protobuf_json::{JsonResult, JsonService};
use crate::pipeline::RequestError;

/// Largest request body, in bytes.
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
            tracing::debug!(why, "/json: invalid request");
            refusal(StatusCode::BAD_REQUEST)
        }
        JsonResult::Failed(why @ (RequestError::Store(_) | RequestError::NoRules)) => {
            tracing::debug!(%why, "/json: request failed");
            refusal(StatusCode::SERVICE_UNAVAILABLE)
        }
        JsonResult::Failed(why) => {
            tracing::debug!(%why, "/json: request failed");
            refusal(StatusCode::BAD_REQUEST)
        }
        JsonResult::Unwritable(why) => {
            tracing::error!(why, "/json: cannot encode the response");
            refusal(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

/// The reason phrase of the status and a line end, as the reference sends it.
fn refusal(status: StatusCode) -> Response {
    let words = status.canonical_reason().unwrap_or_default();
    (status, format!("{words}\n")).into_response()
}
