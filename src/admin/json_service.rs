//! Protobuf JSON for `/json`: the same request and response as over gRPC, for clients without gRPC.

use std::sync::Arc;

use http::HeaderMap;
use tollgate_limiter::Code;

use crate::pipeline::{Pipeline, RequestError};
use crate::protobuf_json::Transcoder;
use crate::tracing::TraceParent;

/// Answers requests in JSON.
pub struct JsonService {
    pipeline: Arc<Pipeline>,
    transcoder: Transcoder,
}

/// What came of a request in JSON.
#[derive(Debug)]
pub(super) enum JsonResult {
    /// Decided: may it pass, and the response in JSON.
    Decided { allowed: bool, body: String },
    /// The JSON is not a request.
    Invalid(String),
    /// There is no decision.
    Failed(RequestError),
    /// The response cannot be written as JSON: a defect.
    Unwritable(String),
}

/// Codes of `google.rpc.Status`, as gRPC numbers them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum StatusCode {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    ResourceExhausted = 8,
    Internal = 13,
    Unavailable = 14,
}

/// A `google.rpc.Status` in JSON. The types of it are not among ours, and it has three fields.
pub(super) fn status(code: StatusCode, message: &str) -> String {
    serde_json::json!({ "code": code as i32, "message": message, "details": [] }).to_string()
}

// === impl StatusCode ===

impl StatusCode {
    /// The code with which gRPC would answer.
    pub(super) fn of(error: &RequestError) -> Self {
        match error.grpc_code() {
            "INVALID_ARGUMENT" => Self::InvalidArgument,
            "DEADLINE_EXCEEDED" => Self::DeadlineExceeded,
            "RESOURCE_EXHAUSTED" => Self::ResourceExhausted,
            "UNAVAILABLE" => Self::Unavailable,
            _ => Self::Internal,
        }
    }
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

    /// Answers one request with these HTTP headers and this body.
    pub(super) async fn decide(&self, headers: &HeaderMap, body: &[u8]) -> JsonResult {
        let request = match self.transcoder.decode_request(body) {
            Ok(request) => request,
            Err(error) => return JsonResult::Invalid(error.message),
        };
        let parent = self
            .pipeline
            .is_tracing()
            .then(|| TraceParent::of(headers))
            .flatten();
        match self.pipeline.call(request, None, parent).await {
            Err(error) => JsonResult::Failed(error),
            Ok(response) => match self.transcoder.encode_response(&response.message) {
                Ok(body) => JsonResult::Decided {
                    allowed: response.code == Code::Ok,
                    body,
                },
                Err(error) => JsonResult::Unwritable(error),
            },
        }
    }
}
