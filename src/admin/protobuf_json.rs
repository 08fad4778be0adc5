//! Protobuf JSON for `/json`: the same request and response as over gRPC, for clients without gRPC.
//!
//! `prost-reflect` implements protobuf's JSON mapping (both spellings of a field name, numbers as
//! strings, enums by name, durations as "37s") from the published descriptors, in which keys and
//! values are text.

use std::sync::Arc;

use http::HeaderMap;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor};
use tollgate_limiter::Code;

use crate::pipeline::{Pipeline, RequestError};
use crate::proto::PUBLISHED_DESCRIPTORS;
use crate::tracing::TraceParent;

/// Answers requests in JSON.
pub struct JsonService {
    pipeline: Arc<Pipeline>,
    transcoder: Transcoder,
}

/// Converts requests and responses between JSON and protobuf's wire format.
struct Transcoder {
    request: MessageDescriptor,
    response: MessageDescriptor,
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
            Ok(request) => request.encode_to_vec(),
            Err(error) => return JsonResult::Invalid(error),
        };
        let parent = self
            .pipeline
            .is_tracing()
            .then(|| TraceParent::of(headers))
            .flatten();
        match self.pipeline.call(&request, None, parent).await {
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

// === impl Transcoder ===

impl Transcoder {
    fn new() -> Result<Self, String> {
        let pool = DescriptorPool::decode(PUBLISHED_DESCRIPTORS).map_err(|e| e.to_string())?;
        let message = |name: &str| {
            let name = format!("envoy.service.ratelimit.v3.{name}");
            pool.get_message_by_name(&name)
                .ok_or(format!("{name} is not among the published descriptors"))
        };
        Ok(Self {
            request: message("RateLimitRequest")?,
            response: message("RateLimitResponse")?,
        })
    }

    fn decode_request(&self, body: &[u8]) -> Result<DynamicMessage, String> {
        if body.trim_ascii().is_empty() {
            return Err("the body is empty; send a RateLimitRequest as JSON".to_owned());
        }
        let mut json = serde_json::Deserializer::from_slice(body);
        let options = DeserializeOptions::new().deny_unknown_fields(true);
        let message =
            DynamicMessage::deserialize_with_options(self.request.clone(), &mut json, &options)
                .map_err(|error| error.to_string())?;
        json.end().map_err(|error| error.to_string())?;
        Ok(message)
    }

    fn encode_response(&self, message: &[u8]) -> Result<String, String> {
        let message = DynamicMessage::decode(self.response.clone(), message)
            .map_err(|error| error.to_string())?;
        serde_json::to_string(&message).map_err(|error| error.to_string())
    }
}

/// Decodes any bytes as a request, for the fuzz target `json`, and says whether they are one. A
/// request that is written as JSON again must be the same request.
///
/// # Errors
///
/// When it is not.
#[cfg(fuzzing)]
pub fn round_trip(body: &[u8]) -> Result<bool, String> {
    use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

    thread_local! {
        static TRANSCODER: Result<Transcoder, String> = Transcoder::new();
    }
    let request = |transcoder: &Transcoder, body: &[u8]| {
        let message = transcoder.decode_request(body)?;
        let request = RateLimitRequest::decode(message.encode_to_vec().as_slice());
        let request = request.map_err(|error| error.to_string())?;
        Ok::<_, String>((message, request))
    };
    TRANSCODER.with(|transcoder| {
        let transcoder = transcoder.as_ref().map_err(Clone::clone)?;
        let Ok((message, first)) = request(transcoder, body) else {
            return Ok(false);
        };
        let written = serde_json::to_string(&message).map_err(|error| error.to_string())?;
        let (_, second) = request(transcoder, written.as_bytes())?;
        if first == second {
            Ok(true)
        } else {
            Err(format!("{first:?} is written as {written}"))
        }
    })
}
