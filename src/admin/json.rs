//! `/json`: one decision for one body.
//!
//! 200 when allowed, 429 when over the limit, 400 when the request is invalid, as the reference
//! answers. One status differs: a store that cannot decide is 503 here, so that a client can tell
//! its own error from ours. The body of an error says why: a `google.rpc.Status` in protobuf's
//! JSON, as other gRPC gateways send it.
//!
//! What it deliberately does not do: decide (`pipeline`) or know protobuf (`json_service`).

use ::http::{StatusCode, header};
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};

use crate::admin::json_service::{JsonResult, JsonService, StatusCode as RpcCode, status};
use crate::pipeline::RequestError;

/// Largest request body, in bytes.
const BODY_BYTES_MAX: usize = 256 << 10;

/// Path of the endpoint.
pub(super) const PATH: &str = "/json";

pub(super) async fn decide(json: Arc<JsonService>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        let why = format!("the body is incomplete or larger than {BODY_BYTES_MAX} bytes");
        return refusal(StatusCode::BAD_REQUEST, RpcCode::InvalidArgument, &why);
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
            refusal(StatusCode::BAD_REQUEST, RpcCode::InvalidArgument, &why)
        }
        JsonResult::Failed(why @ (RequestError::Store(_) | RequestError::NoRules)) => {
            let code = RpcCode::of(&why);
            refusal(StatusCode::SERVICE_UNAVAILABLE, code, &why.to_string())
        }
        JsonResult::Failed(why) => {
            refusal(StatusCode::BAD_REQUEST, RpcCode::of(&why), &why.to_string())
        }
        JsonResult::Unwritable(why) => {
            tracing::error!(error = why, "cannot encode a response of /json");
            let why = "the response cannot be encoded";
            refusal(StatusCode::INTERNAL_SERVER_ERROR, RpcCode::Internal, why)
        }
    }
}

/// The response to a request that is shed: too many are in progress, or it took too long.
pub(super) fn shed() -> Response {
    let why = "too many HTTP requests are in progress, or this one took too long; try again later";
    refusal(StatusCode::SERVICE_UNAVAILABLE, RpcCode::Unavailable, why)
}

fn refusal(http: StatusCode, code: RpcCode, why: &str) -> Response {
    tracing::debug!(
        status = http.as_u16(),
        error = why,
        "/json refused a request"
    );
    let body = status(code, why);
    (http, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
