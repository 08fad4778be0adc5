//! The same question and answer as protobuf's own JSON, for people and programs without gRPC.
//!
//! Why `prost-reflect`: protobuf JSON has a specification (both spellings of a field name, numbers as strings, enums by
//! name, durations as "37s"), and that crate follows it from the published descriptors, in which keys and values are
//! text. What it costs does not matter here.
//!
//! What it deliberately does not do: HTTP (`admin/json`).

use http::HeaderMap;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor};

use crate::pipeline::rate_limit::{RateLimit, Unanswered};
use crate::proto::PUBLISHED_DESCRIPTORS;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response as response;
use crate::tracing::TraceParent;

/// Answers questions in JSON.
pub struct JsonRateLimit {
    service: std::sync::Arc<RateLimit>,
    language: Language,
}

/// Questions and answers as JSON.
struct Language {
    request: MessageDescriptor,
    response: MessageDescriptor,
}

/// What became of a question in JSON.
#[derive(Debug)]
pub enum JsonAnswer {
    /// Decided: may it pass, and the whole answer.
    Decided {
        /// Whether the overall code is OK.
        allowed: bool,
        /// The answer as JSON.
        body: String,
    },
    /// Not understood, in the caller's words.
    NotUnderstood(String),
    /// Understood and not answered.
    Unanswered(Unanswered),
    /// The answer cannot be written as JSON.
    Unwritable(String),
}

// === impl JsonRateLimit ===

impl JsonRateLimit {
    /// Answers through `service`.
    ///
    /// # Errors
    ///
    /// When the published descriptors do not hold the service: a mistake in the build.
    pub fn new(service: std::sync::Arc<RateLimit>) -> Result<Self, String> {
        Ok(Self {
            service,
            language: Language::new()?,
        })
    }

    /// Answers one question, which came with these headers.
    pub async fn ask(&self, headers: &HeaderMap, body: &[u8]) -> JsonAnswer {
        let request = match self.language.read(body) {
            Ok(request) => request,
            Err(why) => return JsonAnswer::NotUnderstood(why),
        };
        let parent = self.service.traces().then(|| TraceParent::of(headers));
        let answer = self
            .service
            .should_rate_limit(&request, None, parent.flatten());
        match answer.await {
            Err(unanswered) => JsonAnswer::Unanswered(unanswered),
            Ok(answer) => match Language::write(&self.language.response, &answer) {
                Ok(body) => JsonAnswer::Decided {
                    allowed: answer.overall_code() == response::Code::Ok,
                    body,
                },
                Err(why) => JsonAnswer::Unwritable(why),
            },
        }
    }
}

// === impl Language ===

impl Language {
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

    fn read<M: prost::Message + Default>(&self, body: &[u8]) -> Result<M, String> {
        let mut json = serde_json::Deserializer::from_slice(body);
        let options = DeserializeOptions::new().deny_unknown_fields(true);
        let message =
            DynamicMessage::deserialize_with_options(self.request.clone(), &mut json, &options)
                .map_err(|error| error.to_string())?;
        json.end().map_err(|error| error.to_string())?;
        M::decode(message.encode_to_vec().as_slice()).map_err(|error| error.to_string())
    }

    fn write(kind: &MessageDescriptor, message: &impl prost::Message) -> Result<String, String> {
        let bytes = message.encode_to_vec();
        let message = DynamicMessage::decode(kind.clone(), bytes.as_slice())
            .map_err(|error| error.to_string())?;
        serde_json::to_string(&message).map_err(|error| error.to_string())
    }
}

/// Reads any bytes as a question, for the fuzz target `json`: one that is understood is understood alike when we write it.
/// Says whether it was.
///
/// # Errors
///
/// The words in which it was not.
#[cfg(fuzzing)]
pub fn understand(body: &[u8]) -> Result<bool, String> {
    use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

    thread_local! {
        static LANGUAGE: Result<Language, String> = Language::new();
    }
    LANGUAGE.with(|language| {
        let language = language.as_ref().map_err(Clone::clone)?;
        let Ok(question) = language.read::<RateLimitRequest>(body) else {
            return Ok(false);
        };
        let written = Language::write(&language.request, &question)?;
        let again: RateLimitRequest = language.read(written.as_bytes())?;
        if again == question {
            Ok(true)
        } else {
            Err(format!("{question:?} is written as {written}"))
        }
    })
}
