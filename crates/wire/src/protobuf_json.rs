//! Protobuf JSON of requests and responses, as `/json` and files of tests have it.
//!
//! `prost-reflect` implements protobuf's JSON mapping (both spellings of a field name, numbers as
//! strings, enums by name, durations as "37s") from the published descriptors, in which keys and
//! values are text.

use prost::Message as _;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage};
pub use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use crate::proto::PUBLISHED_DESCRIPTORS;

/// Converts requests and responses between JSON and protobuf's wire format.
pub struct Transcoder {
    request: MessageDescriptor,
    response: MessageDescriptor,
    calls: MessageDescriptor,
}

/// Why a text is not the JSON of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JsonError {
    /// What is wrong, and where.
    pub message: String,
    /// The line of the text.
    pub line: usize,
}

// === impl Transcoder ===

impl Transcoder {
    /// A transcoder.
    ///
    /// # Errors
    ///
    /// When the published descriptors do not hold the service: a mistake in the build.
    pub fn new() -> Result<Self, String> {
        let pool = DescriptorPool::decode(PUBLISHED_DESCRIPTORS).map_err(|e| e.to_string())?;
        let message = |name: &str| {
            pool.get_message_by_name(name)
                .ok_or(format!("{name} is not among the published descriptors"))
        };
        Ok(Self {
            request: message("envoy.service.ratelimit.v3.RateLimitRequest")?,
            response: message("envoy.service.ratelimit.v3.RateLimitResponse")?,
            calls: message("tollgate.v1.Call")?,
        })
    }

    /// The descriptor of a call of tollgate's API, whose JSON `/v1` reads.
    pub fn calls(&self) -> &MessageDescriptor {
        &self.calls
    }

    /// The encoded request that this JSON describes.
    ///
    /// # Errors
    ///
    /// When it describes none.
    pub fn decode_request(&self, body: &[u8]) -> Result<Vec<u8>, JsonError> {
        self.request(body).map(|message| message.encode_to_vec())
    }

    fn request(&self, body: &[u8]) -> Result<DynamicMessage, JsonError> {
        if body.trim_ascii().is_empty() {
            let message = "the body is empty; send a RateLimitRequest as JSON".to_owned();
            return Err(JsonError { message, line: 1 });
        }
        let mut json = serde_json::Deserializer::from_slice(body);
        let options = DeserializeOptions::new().deny_unknown_fields(true);
        let message =
            DynamicMessage::deserialize_with_options(self.request.clone(), &mut json, &options)
                .map_err(|error| JsonError::of(&error))?;
        json.end().map_err(|error| JsonError::of(&error))?;
        Ok(message)
    }

    /// An encoded response as JSON.
    ///
    /// # Errors
    ///
    /// When it is no response: a defect.
    pub fn encode_response(&self, message: &[u8]) -> Result<String, String> {
        let message = DynamicMessage::decode(self.response.clone(), message)
            .map_err(|error| error.to_string())?;
        serde_json::to_string(&message).map_err(|error| error.to_string())
    }
}

// === impl JsonError ===

impl JsonError {
    fn of(error: &serde_json::Error) -> Self {
        Self {
            message: error.to_string(),
            line: error.line(),
        }
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
        let message = transcoder.request(body).map_err(|error| error.message)?;
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
