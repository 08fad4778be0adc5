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

use std::error::Error as _;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, Method, StatusCode, header};
use axum::Router;
use axum::body::to_bytes;
use axum::error_handling::HandleErrorLayer;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http_body_util::LengthLimitError;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::timeout::error::Elapsed;
use tower::{BoxError, ServiceBuilder};

use self::failure::{CallFailure, ErrorCode};
use self::service::{CallService, respond};
use super::AdminState;
use super::failure::JSON_HEADERS;
use crate::metrics::Counter;
use crate::pipeline::Pipeline;

/// Most requests in progress; further ones get 503 at once.
const REQUESTS_MAX: usize = 128;

/// Timeout of a request, including its body.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(10);

/// Largest request body, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The description of the API.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

/// Endpoints of the API.
pub(super) fn router(pipeline: Arc<Pipeline>, shed: Counter) -> Router<AdminState> {
    let calls = Arc::new(CallService::new(pipeline));
    let bounds = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(move |error: BoxError| {
            shed.inc();
            ready(refuse(&error).into_response())
        }))
        .load_shed()
        .layer(GlobalConcurrencyLimitLayer::new(REQUESTS_MAX))
        .timeout(REQUEST_WAIT_MAX);
    let handle = move |request| {
        let calls = Arc::clone(&calls);
        async move { answer(&calls, request).await }
    };
    Router::new()
        .route("/v1/openapi.json", any(openapi))
        .route("/v1/{call}", any(handle))
        .layer(bounds)
}

/// The response to a request that is shed, or that took too long.
fn refuse(error: &BoxError) -> CallFailure {
    if error.is::<Elapsed>() {
        let seconds = REQUEST_WAIT_MAX.as_secs();
        return CallFailure::new(
            ErrorCode::DeadlineExceeded,
            format!("the request took longer than {seconds} s; what it did is unknown"),
        );
    }
    let why = "too many requests are in progress; try again later";
    CallFailure::new(ErrorCode::Unavailable, why)
}

async fn openapi(request: Request) -> Response {
    match *request.method() {
        Method::GET | Method::HEAD => (StatusCode::OK, JSON_HEADERS, OPENAPI).into_response(),
        _ => wrong_method("GET"),
    }
}

async fn answer(calls: &CallService, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let name = head.uri.path().trim_start_matches("/v1/");
    let Some(endpoint) = service::endpoint(name) else {
        return service::unknown_endpoint(name).into_response();
    };
    if head.method != Method::POST {
        return wrong_method("POST");
    }
    if let Err(failure) = require_json(&head.headers) {
        return failure.into_response();
    }
    let body = match to_bytes(body, BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(error)
            if error
                .source()
                .is_some_and(|why| why.is::<LengthLimitError>()) =>
        {
            let why = format!("the body is larger than {BODY_BYTES_MAX} bytes; send fewer calls");
            return CallFailure::new(ErrorCode::TooLarge, why).into_response();
        }
        Err(_) => {
            let why = "the body is incomplete; send it whole";
            return CallFailure::invalid(why).into_response();
        }
    };
    respond(calls.answer(endpoint, &head.headers, &body).await)
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
