//! `/v1`: tollgate's own API as JSON, on the port of `/json` and under the same switches.
//!
//! | file | what |
//! | --- | --- |
//! | `strict_json` | JSON without repeated fields |
//! | `fields`, `duration` | fields of an object, with errors that say what to change |
//! | `calls` | bodies of requests |
//! | `answers` | bodies of responses |
//! | `failure` | why a call has no answer |
//! | `service` | carries out calls, one or many |
//!
//! `openapi.json` describes it. `docs/api.md` explains it.
//!
//! What it deliberately does not do: decide (`pipeline`).

mod answers;
mod calls;
mod duration;
mod failure;
mod fields;
mod service;
mod strict_json;

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, Method, StatusCode, header};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use self::failure::{CallFailure, ErrorCode};
use self::service::{Answered, CallService, Endpoint, respond};
use super::AdminState;
use super::http::{self, BodyFault, NO_MEMORY};
use super::query::JSON_HEADERS;
use crate::answer_memory::AnswerMemory;
use crate::metrics::Counter;
use crate::pipeline::Pipeline;

/// Most requests in progress, whose bodies have arrived; further ones get 503 at once.
const REQUESTS_MAX: usize = 128;

/// Timeout of a request, including its body.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(10);

/// Largest request body, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Most bytes of large bodies that are JSON values at once; further ones wait. Values can take 90
/// times the memory of their text.
const PARSED_BYTES_MAX: usize = BODY_BYTES_MAX;

/// Bodies up to this length never wait: the bound on requests is enough for them.
const SMALL_BODY_BYTES: usize = 4 << 10;

/// The description of the API.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

/// Requests in progress, and what carries them out.
struct Endpoints {
    calls: CallService,
    memory: Arc<AnswerMemory>,
    in_progress: Semaphore,
    parsed: ParsedBytes,
    shed: Counter,
}

/// The bytes of the large bodies that are JSON values now.
struct ParsedBytes(Semaphore);

/// Endpoints of the API.
pub(super) fn router(pipeline: Arc<Pipeline>, shed: Counter) -> Router<AdminState> {
    let endpoints = Arc::new(Endpoints {
        memory: Arc::clone(pipeline.answer_memory()),
        calls: CallService::new(pipeline),
        in_progress: Semaphore::new(REQUESTS_MAX),
        parsed: ParsedBytes::new(),
        shed,
    });
    let answer = move |request| {
        let endpoints = Arc::clone(&endpoints);
        async move { endpoints.answer(request).await }
    };
    Router::new()
        .route("/v1/openapi.json", any(openapi))
        .route("/v1", any(answer.clone()))
        .route("/v1/", any(answer.clone()))
        .route("/v1/{*call}", any(answer))
}

async fn openapi(request: Request) -> Response {
    let method = request.method().clone();
    drain(request.into_body()).await;
    match method {
        Method::GET | Method::HEAD => (StatusCode::OK, JSON_HEADERS, OPENAPI).into_response(),
        _ => wrong_method("GET"),
    }
}

// === impl Endpoints ===

impl Endpoints {
    /// Answers one request. The body of one that is refused is read all the same: where a response
    /// comes before the body was sent, the client can see a reset instead.
    async fn answer(&self, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let name = path.strip_prefix("/v1").unwrap_or(path);
        let name = name.strip_prefix('/').unwrap_or(name);
        let Some(endpoint) = service::endpoint(name) else {
            drain(body).await;
            return service::unknown_endpoint(name).into_response();
        };
        if head.method != Method::POST {
            drain(body).await;
            return wrong_method("POST");
        }
        if let Err(failure) = require_json(&head.headers) {
            drain(body).await;
            return failure.into_response();
        }
        let carried_out = self.carry_out(endpoint, &head.headers, body);
        let answered = timeout(REQUEST_WAIT_MAX, carried_out).await;
        respond(answered.unwrap_or_else(|_| {
            self.shed.inc();
            Err(took_too_long())
        }))
    }

    async fn carry_out(
        &self,
        endpoint: Endpoint,
        headers: &HeaderMap,
        mut body: Body,
    ) -> Result<Answered, CallFailure> {
        let connection = self.memory.connection();
        let unavailable = |why| {
            self.shed.inc();
            Err(CallFailure::new(ErrorCode::Unavailable, why))
        };
        let mut arriving = connection.request();
        let body = match http::read_body(&mut body, BODY_BYTES_MAX, &mut arriving).await {
            Ok(body) => body,
            Err(BodyFault::Incomplete) => {
                let why = "the body is incomplete; send it whole";
                return Err(CallFailure::invalid(why));
            }
            Err(BodyFault::NoMemory) => {
                drain(body).await;
                return unavailable(NO_MEMORY);
            }
            Err(BodyFault::TooLarge) => {
                drain(body).await;
                let why =
                    format!("the body is larger than {BODY_BYTES_MAX} bytes; send fewer calls");
                return Err(CallFailure::new(ErrorCode::TooLarge, why));
            }
        };
        let Ok(_permit) = self.in_progress.try_acquire() else {
            return unavailable("too many requests are in progress; try again later");
        };
        let _parsed = self.parsed.take(body.len()).await;
        let memory = &connection;
        self.calls.answer(endpoint, headers, &body, memory).await
    }
}

// === impl ParsedBytes ===

impl ParsedBytes {
    fn new() -> Self {
        Self(Semaphore::new(PARSED_BYTES_MAX))
    }

    /// Waits until a body of this length may become a value. None for a small one.
    async fn take(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        if bytes <= SMALL_BODY_BYTES {
            return None;
        }
        let permits = u32::try_from(bytes.min(PARSED_BYTES_MAX)).ok()?;
        // Fails only when it is closed, which it never is.
        self.0.acquire_many(permits).await.ok()
    }
}

/// Reads what is left of a body and drops it, within the bounds of a body.
async fn drain(body: Body) {
    http::drain(body, BODY_BYTES_MAX, REQUEST_WAIT_MAX).await;
}

/// The failure of a request that did not end in time.
fn took_too_long() -> CallFailure {
    let seconds = REQUEST_WAIT_MAX.as_secs();
    CallFailure::new(
        ErrorCode::DeadlineExceeded,
        format!("the request took longer than {seconds} s; what it did is unknown"),
    )
}

fn wrong_method(allowed: &'static str) -> Response {
    let why = format!("this path takes {allowed} only");
    let failure = CallFailure::new(ErrorCode::MethodNotAllowed, why);
    ([(header::ALLOW, allowed)], failure).into_response()
}

/// Refuses bodies that say they are no JSON. Without a content type, and with the one that curl
/// sends by itself, a body is read as JSON.
fn require_json(headers: &HeaderMap) -> Result<(), CallFailure> {
    let encoding = headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        let why = "the body is compressed; send it without content-encoding";
        return Err(CallFailure::new(ErrorCode::UnsupportedMediaType, why));
    }
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let text = content_type.to_str().unwrap_or_default();
    let media = text.split(';').next().unwrap_or_default().trim();
    let media = media.to_ascii_lowercase();
    match media.as_str() {
        "application/json" | "application/x-www-form-urlencoded" => Ok(()),
        media if media.ends_with("+json") => Ok(()),
        _ => {
            let why = "a body is JSON; send the header `content-type: application/json`";
            Err(CallFailure::new(ErrorCode::UnsupportedMediaType, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use ::http::StatusCode;

    use super::failure::CallFailure;
    use super::{PARSED_BYTES_MAX, ParsedBytes, SMALL_BODY_BYTES, took_too_long};
    use crate::pipeline::{ApiError, RequestError};
    use crate::store::StoreError;

    #[tokio::test]
    async fn a_large_body_waits_while_others_are_values_and_a_small_one_does_not() {
        let parsed = ParsedBytes::new();
        let held = parsed.take(PARSED_BYTES_MAX).await;
        assert!(held.is_some());
        assert!(parsed.take(SMALL_BODY_BYTES).await.is_none());
        let mut waiting = Box::pin(parsed.take(SMALL_BODY_BYTES + 1));
        let is_waiting = tokio::select! {
            biased;
            _ = &mut waiting => false,
            () = std::future::ready(()) => true,
        };
        assert!(is_waiting);
        drop(held);
        assert!(waiting.await.is_some());
    }

    #[test]
    fn deadlines_are_504_and_other_faults_of_the_store_503() {
        for (error, status) in [
            (StoreError::DeadlineExceeded, StatusCode::GATEWAY_TIMEOUT),
            (StoreError::Stopped, StatusCode::SERVICE_UNAVAILABLE),
            (
                StoreError::Full { bytes_max: 1 },
                StatusCode::SERVICE_UNAVAILABLE,
            ),
        ] {
            let why = error.to_string();
            let failure = CallFailure::from(ApiError::Request(RequestError::Store(error)));
            assert_eq!((failure.code.status(), failure.message), (status, why));
        }
        let status = took_too_long().code.status();
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    }
}
