//! Asking a running service, in our words: what `tollgate hit` is made of.
//!
//! What it deliberately does not do: retry, keep a connection, print (`cli/hit`).

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use super::proto::envoy::extensions::common::ratelimit::v3 as common;
use super::proto::envoy::service::ratelimit::v3 as rls;
use super::proto::envoy::service::ratelimit::v3::rate_limit_response as response;
use super::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

/// A connection to a service.
#[derive(Debug)]
pub struct Client(RateLimitServiceClient<Channel>);

/// A question, owned.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The domain.
    pub domain: String,
    /// Each descriptor's entries, keys and values.
    pub descriptors: Vec<Vec<(String, String)>>,
    /// Hits of each descriptor; 0 only looks.
    pub hits: u64,
    /// The hits are given back.
    pub refund: bool,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// Whether the request may pass.
    pub allowed: bool,
    /// One a descriptor, in order.
    pub statuses: Vec<AnswerStatus>,
}

/// The answer for one descriptor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AnswerStatus {
    /// Whether this descriptor is within its limit.
    pub allowed: bool,
    /// The limit, if one applies.
    pub limit: Option<AnswerLimit>,
    /// Hits left; `u32::MAX` without a limit means unlimited.
    pub remaining: u32,
    /// Seconds until another try may pass, or until the limit is fresh again.
    pub until_seconds: Option<i64>,
}

/// The limit that an answer speaks of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AnswerLimit {
    /// Its name, often empty.
    pub name: String,
    /// Requests per window.
    pub requests_per_unit: u32,
    /// The unit's name, in lower case.
    pub unit: String,
    /// How many units make the window.
    pub unit_multiplier: u32,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Not an address.
    #[error("{address:?} is not an address; write HOST:PORT, such as 127.0.0.1:8081")]
    Address {
        /// What was given.
        address: String,
    },
    /// Nobody there.
    #[error(
        "no service answers at {address}; start one with `tollgate serve RULES`, or name the right port"
    )]
    Connect {
        /// Where it was looked for.
        address: String,
    },
    /// The service answered with an error.
    #[error("the service answered {code}: {words}")]
    Status {
        /// gRPC's name of the code.
        code: String,
        /// The service's words.
        words: String,
    },
}

// === impl Client ===

impl Client {
    /// Connects to `address`, HOST:PORT.
    ///
    /// # Errors
    ///
    /// When it is no address, or nobody answers within `timeout`.
    pub async fn connect(address: &str, timeout: Duration) -> Result<Self, ClientError> {
        let owned = || address.to_owned();
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .ok()
            .filter(|endpoint| endpoint.uri().port().is_some())
            .ok_or_else(|| ClientError::Address { address: owned() })?;
        let channel = endpoint
            .connect_timeout(timeout)
            .timeout(timeout)
            .connect()
            .await
            .map_err(|_| ClientError::Connect { address: owned() })?;
        Ok(Self(RateLimitServiceClient::new(channel)))
    }

    /// Asks once.
    ///
    /// # Errors
    ///
    /// When the service answers with an error.
    pub async fn ask(&mut self, question: &Question) -> Result<Answer, ClientError> {
        let response = self.0.should_rate_limit(question.message()).await;
        match response {
            Ok(response) => Ok(Answer::of(response.get_ref())),
            Err(status) => Err(ClientError::Status {
                code: format!("{:?}", status.code()),
                words: status.message().to_owned(),
            }),
        }
    }
}

// === impl Question ===

impl Question {
    fn message(&self) -> rls::RateLimitRequest {
        let descriptors = self.descriptors.iter().map(|entries| {
            let entries = entries
                .iter()
                .map(|(key, value)| common::rate_limit_descriptor::Entry {
                    key: key.clone().into(),
                    value: value.clone().into(),
                });
            common::RateLimitDescriptor {
                entries: entries.collect(),
                limit: None,
                hits_addend: Some(self.hits),
                is_negative_hits: self.refund,
            }
        });
        rls::RateLimitRequest {
            domain: self.domain.clone().into(),
            descriptors: descriptors.collect(),
            hits_addend: 0,
        }
    }
}

// === impl Answer ===

impl Answer {
    fn of(response: &rls::RateLimitResponse) -> Self {
        Self {
            allowed: response.overall_code() != response::Code::OverLimit,
            statuses: response.statuses.iter().map(AnswerStatus::of).collect(),
        }
    }
}

// === impl AnswerStatus ===

impl AnswerStatus {
    fn of(status: &response::DescriptorStatus) -> Self {
        Self {
            allowed: status.code() != response::Code::OverLimit,
            limit: status.current_limit.as_ref().map(|limit| AnswerLimit {
                name: limit.name.clone(),
                requests_per_unit: limit.requests_per_unit,
                unit: limit.unit().as_str_name().to_ascii_lowercase(),
                unit_multiplier: limit.unit_multiplier.unwrap_or(1),
            }),
            remaining: status.limit_remaining,
            until_seconds: status.duration_until_reset.map(|until| until.seconds),
        }
    }
}
