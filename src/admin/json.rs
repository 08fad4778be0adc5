//! `/json`: one decision for one body.
//!
//! 200 when allowed, 429 when over the limit, 400 when the request is invalid, as the reference
//! answers. Two statuses differ: a store that cannot decide is 503 here, so that a client can tell
//! its own error from ours, and a body that is too large is 413. The body of an error says why: a
//! `google.rpc.Status` in protobuf's JSON, as other gRPC gateways send it.
//!
//! What it deliberately does not do: decide (`pipeline`) or know protobuf (`json_service`).

use std::sync::Arc;
use std::time::Duration;

use ::http::{StatusCode, header};
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use crate::admin::bodies::{self, BodyFault, NO_MEMORY};
use crate::admin::json_service::{JsonResult, JsonService, StatusCode as RpcCode, status};
use crate::answer_memory::AnswerMemory;
use crate::metrics::Counter;
use crate::pipeline::RequestError;

/// Largest request body, in bytes.
const BODY_BYTES_MAX: usize = 256 << 10;

/// Path of the endpoint.
pub(super) const PATH: &str = "/json";

/// What a body is read with.
#[derive(Clone)]
pub(super) struct BodyReader {
    pub(super) memory: Arc<AnswerMemory>,
    /// How long a body may take.
    pub(super) wait_max: Duration,
    pub(super) shed: Counter,
}

/// Reads the body of a request for `/json`, which only then counts as in progress.
pub(super) async fn read_body(
    State(reader): State<BodyReader>,
    request: Request,
    next: Next,
) -> Response {
    if request.uri().path() != PATH {
        return next.run(request).await;
    }
    let (head, mut body) = request.into_parts();
    let mut permit = reader.memory.connection().request();
    let read = bodies::read(&mut body, BODY_BYTES_MAX, &mut permit);
    let (http, code, why) = match timeout(reader.wait_max, read).await {
        Ok(Ok(read)) => {
            let answer = next.run(Request::from_parts(head, Body::from(read))).await;
            drop(permit);
            return answer;
        }
        Err(_) => {
            reader.shed.inc();
            return shed();
        }
        Ok(Err(BodyFault::TooLarge)) => {
            bodies::drain(body, BODY_BYTES_MAX, reader.wait_max).await;
            let why = format!("the body is larger than {BODY_BYTES_MAX} bytes");
            let code = RpcCode::ResourceExhausted;
            (StatusCode::PAYLOAD_TOO_LARGE, code, why)
        }
        Ok(Err(BodyFault::Incomplete)) => {
            let why = "the body is incomplete; send it whole".to_owned();
            (StatusCode::BAD_REQUEST, RpcCode::InvalidArgument, why)
        }
        Ok(Err(BodyFault::NoMemory)) => {
            reader.shed.inc();
            let http = StatusCode::SERVICE_UNAVAILABLE;
            (http, RpcCode::Unavailable, NO_MEMORY.to_owned())
        }
    };
    refusal(http, code, &why)
}

pub(super) async fn decide(json: Arc<JsonService>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    // It is whole already.
    let body = to_bytes(body, BODY_BYTES_MAX).await.unwrap_or_default();
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
