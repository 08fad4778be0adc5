//! `/json`: one decision for one body, in protobuf JSON: the same request and response as over
//! gRPC, for clients without gRPC.
//!
//! 200 when allowed, 429 when over the limit, 400 when the request is invalid, as the reference
//! answers. Two statuses differ: a store that cannot decide is 503 here, so that a client can tell
//! its own error from ours, and a body that is too large is 413. The body of an error says why: a
//! `google.rpc.Status` in protobuf's JSON, as other gRPC gateways send it.
//!
//! What it deliberately does not do: decide (`pipeline`).

use std::sync::Arc;
use std::time::Duration;

use ::http::{StatusCode, header};
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;
use tollgate_limiter::Code;

use super::http::{self, BodyFault, NO_MEMORY};
use crate::answer_memory::AnswerMemory;
use crate::metrics::Counter;
use crate::pipeline::{Pipeline, RequestError};
use crate::protobuf_json::Transcoder;
use crate::tracing::TraceParent;

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

/// Answers requests in JSON.
pub struct JsonService {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) transcoder: Transcoder,
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
    let read = http::read_body(&mut body, BODY_BYTES_MAX, &mut permit);
    match timeout(reader.wait_max, read).await {
        Ok(Ok(read)) => {
            let answer = next.run(Request::from_parts(head, Body::from(read))).await;
            drop(permit);
            answer
        }
        Err(_) => {
            reader.shed.inc();
            shed()
        }
        Ok(Err(BodyFault::TooLarge)) => {
            http::drain(body, BODY_BYTES_MAX, reader.wait_max).await;
            let why = format!("the body is larger than {BODY_BYTES_MAX} bytes");
            refusal(StatusCode::PAYLOAD_TOO_LARGE, "RESOURCE_EXHAUSTED", &why)
        }
        Ok(Err(BodyFault::Incomplete)) => invalid("the body is incomplete; send it whole"),
        Ok(Err(BodyFault::NoMemory)) => {
            reader.shed.inc();
            unavailable(NO_MEMORY)
        }
    }
}

pub(super) async fn decide(json: Arc<JsonService>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    // It is whole already.
    let body = to_bytes(body, BODY_BYTES_MAX).await.unwrap_or_default();
    let request = match json.transcoder.decode_request(&body) {
        Ok(request) => request,
        Err(error) => return invalid(&error.message),
    };
    let is_tracing = json.pipeline.is_tracing();
    let parent = is_tracing.then(|| TraceParent::of(&head.headers)).flatten();
    let response = match json.pipeline.call(request, None, parent).await {
        Ok(response) => response,
        Err(error) => {
            let status = match error {
                RequestError::Store(_) | RequestError::NoRules => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::BAD_REQUEST,
            };
            return refusal(status, error.grpc_code(), &error.to_string());
        }
    };
    let status = match response.code {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
    };
    match json.transcoder.encode_response(&response.message) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => {
            tracing::error!(error, "cannot encode a response of /json");
            let why = "the response cannot be encoded";
            refusal(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", why)
        }
    }
}

/// The response to a request that is shed: too many are in progress, or it took too long.
pub(super) fn shed() -> Response {
    unavailable(
        "too many HTTP requests are in progress, or this one took too long; try again later",
    )
}

fn invalid(why: &str) -> Response {
    refusal(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", why)
}

fn unavailable(why: &str) -> Response {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", why)
}

/// A `google.rpc.Status` with the code of this name. Its type is not among ours, and it has three
/// fields.
fn refusal(http: StatusCode, code: &str, why: &str) -> Response {
    tracing::debug!(
        status = http.as_u16(),
        error = why,
        "/json refused a request"
    );
    let code = match code {
        "INVALID_ARGUMENT" => 3,
        "DEADLINE_EXCEEDED" => 4,
        "RESOURCE_EXHAUSTED" => 8,
        "UNAVAILABLE" => 14,
        // INTERNAL.
        _ => 13,
    };
    let body = serde_json::json!({ "code": code, "message": why, "details": [] }).to_string();
    (http, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

// === impl JsonService ===

impl JsonService {
    /// Answers through `pipeline`.
    ///
    /// # Errors
    ///
    /// When the published descriptors do not hold the service: a mistake in the build.
    pub fn new(pipeline: Arc<Pipeline>) -> Result<Self, String> {
        Ok(Self {
            pipeline,
            transcoder: Transcoder::new()?,
        })
    }
}
