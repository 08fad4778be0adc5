//! Bodies of requests, read before a request counts as in progress, so that slow ones do not stop
//! others; and bodies of responses, which hold memory until the client has read them.
//!
//! A body that arrives takes memory as it grows. A connection has one at a time, and may hold as
//! much as is free (`answer_memory`).

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderValue, StatusCode, header};
use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use super::http::Client;
use super::streamed::{PIECE_BYTES, in_pieces};
use crate::answer_memory::{AnswerMemory, AnswerMemoryFull, AnswerPermit, RequestPermit};

/// Why a body was not read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BodyFault {
    TooLarge,
    Incomplete,
    /// Other bodies hold the memory.
    NoMemory,
}

/// The error message when there is no memory for a body.
pub(super) const NO_MEMORY: &str =
    "too many bodies are arriving; try again later, or raise --answer-memory-max";

/// Reads a body. Its memory is held by the permit.
pub(super) async fn read(
    body: &mut Body,
    bytes_max: usize,
    memory: &mut RequestPermit,
) -> Result<Vec<u8>, BodyFault> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyFault::Incomplete)?;
        if let Some(data) = frame.data_ref() {
            if bytes.len().saturating_add(data.len()) > bytes_max {
                return Err(BodyFault::TooLarge);
            }
            if !memory.grow(data.len() as u64) {
                return Err(BodyFault::NoMemory);
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

/// Reads what is left of a body and drops it: where a response comes before the body was sent, the
/// client can see a reset instead. A body that is longer, or does not end in time, is left.
pub(super) async fn drain(mut body: Body, bytes_max: usize, wait: Duration) {
    let all = async {
        let mut left = bytes_max;
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(bytes) else {
                return;
            };
            left = rest;
        }
    };
    // Nothing depends on whether it ended.
    let _ = timeout(wait, all).await;
}

/// Sends a long response piece by piece. It holds memory until it is sent, and is refused if there
/// is none.
pub(super) async fn send_long_in_pieces(
    State(memory): State<Arc<AnswerMemory>>,
    request: Request,
    next: Next,
) -> Response {
    let client = request.extensions().get::<Client>().cloned();
    let (mut head, body) = next.run(request).await.into_parts();
    let counted: Option<Arc<AnswerPermit>> = head.extensions.remove();
    let bytes = body.size_hint().exact().unwrap_or_default();
    if bytes <= PIECE_BYTES as u64 {
        return Response::from_parts(head, body);
    }
    let permit = match counted.and_then(Arc::into_inner) {
        Some(mut permit) => {
            permit.resize(bytes);
            permit
        }
        None => {
            if let Some(permit) = memory.connection().take(bytes) {
                permit
            } else {
                memory.count_refused();
                let why = format!("{AnswerMemoryFull}\n");
                return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
            }
        }
    };
    // It is whole already.
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    head.headers
        .insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    let body = in_pieces(body, client.unwrap_or_default(), permit);
    Response::from_parts(head, body)
}
