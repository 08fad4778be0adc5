//! Rules from an xDS server: a client of its aggregated service (ADS), state of the world.
//!
//! How: one stream at a time. Each answer holds all rules there are; it is loaded as files are, by
//! the same loader, within the same bounds, and the next request says that it was taken (ACK) or
//! why not (NACK), in the loader's own sentences. When the stream is lost the rules in use stay,
//! and it is tried again after a while.
//!
//! On a new stream nothing is said of what an earlier one brought: a server that was started anew
//! may count its versions anew, and would take ours for its own.
//!
//! What it deliberately does not do: count, log or keep rules (`app` is told), ask for less than
//! everything, speak the incremental variant.

mod backoff;
mod document;
mod endpoint;
mod error;
#[doc(hidden)]
pub mod proto;
mod resources;

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::time::Duration;

use prost_types::{Struct, Value};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::Channel;
use tonic::{Code, Request};

use self::backoff::Backoff;
use self::endpoint::XdsEndpoint;
pub use self::error::XdsError;
use self::proto::envoy::config::core::v3::Node;
use self::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use self::proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use self::proto::google::rpc::Status;
use self::resources::TYPE_URL;
#[doc(hidden)] // for fuzzing
pub use self::resources::load_bytes;
use crate::grpc_client::error_chain;
use crate::rules::file::Options;
use crate::rules::reload::{LoadError, RulesUpdate};
use crate::settings::XdsSettings;

/// How large an answer may be unless said: gRPC's own default.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// How much of why rules were refused is sent to the server, in bytes.
const REASON_BYTES_MAX: usize = 8 << 10;

/// A client of an xDS server.
#[derive(Debug)]
pub struct XdsClient {
    endpoint: XdsEndpoint,
    node: Node,
    headers: MetadataMap,
    message_bytes_max: usize,
    options: Options,
    /// Waits for a connection.
    connecting: Backoff,
    /// Waits after a stream that ended.
    streaming: Backoff,
}

/// What happened.
#[derive(Debug)]
pub enum XdsEvent {
    /// There is a connection to this server, and a stream on it.
    Connected(String),
    /// Rules came, or what was sent is none.
    Update(RulesUpdate),
    /// There is no stream, and none will be tried for so long.
    Disconnected {
        /// Why.
        error: XdsError,
        /// How long.
        retry_in: Duration,
    },
}

// === impl XdsClient ===

impl XdsClient {
    /// A client as the settings say. It connects when it runs.
    ///
    /// # Errors
    ///
    /// When a setting cannot be understood.
    pub fn new(settings: &XdsSettings, options: Options) -> Result<Self, XdsError> {
        let share = if settings.xds_client_backoff_jitter {
            f64::from(settings.xds_client_backoff_random_factor)
        } else {
            0.0
        };
        let backoff = |first| Backoff::new(first, settings.xds_client_backoff_max_interval, share);
        let message_bytes_max = match settings.xds_client_max_msg_size_in_bytes {
            0 => MESSAGE_BYTES_MAX,
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        Ok(Self {
            endpoint: XdsEndpoint::new(settings)?,
            node: node(settings)?,
            headers: headers(&settings.config_grpc_xds_client_additional_headers)?,
            message_bytes_max,
            options,
            connecting: backoff(settings.config_grpc_xds_server_connect_retry_interval),
            streaming: backoff(settings.xds_client_backoff_initial_interval),
        })
    }

    /// Brings rules for ever, and tells what happens.
    pub async fn run(mut self, mut emit: impl FnMut(XdsEvent)) {
        loop {
            let (why, backoff) = match self.endpoint.connect().await {
                Err(why) => (why, &mut self.connecting),
                Ok((channel, seen)) => {
                    self.connecting.reset();
                    emit(XdsEvent::Connected(self.endpoint.words()));
                    let mut brought = false;
                    let why = self.stream(channel, &mut emit, &mut brought).await;
                    if brought {
                        self.streaming.reset();
                    }
                    // The reason beneath, which what is above may have lost.
                    let why = match (why, seen.words()) {
                        (XdsError::Ended(words), Some(seen)) if !words.contains(&seen) => {
                            XdsError::Ended(format!("{words}: {seen}"))
                        }
                        (why, _) => why,
                    };
                    (why, &mut self.streaming)
                }
            };
            let chance = f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX);
            let wait = backoff.wait(chance);
            emit(XdsEvent::Disconnected {
                error: why,
                retry_in: wait,
            });
            tokio::time::sleep(wait).await;
        }
    }

    /// Brings rules until the stream ends; says why it did, and whether any were taken.
    async fn stream(
        &self,
        channel: Channel,
        emit: &mut impl FnMut(XdsEvent),
        brought: &mut bool,
    ) -> XdsError {
        let mut client = AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(self.message_bytes_max);
        let (requests, outgoing) = mpsc::channel(1);
        if requests.send(self.request()).await.is_err() {
            return XdsError::Ended("before it began".to_owned());
        }
        let mut call = Request::new(ReceiverStream::new(outgoing));
        *call.metadata_mut() = self.headers.clone();
        // A server that has nothing for us yet may say nothing for as long as that is so.
        let mut answers = match client.stream_aggregated_resources(call).await {
            Ok(answers) => answers.into_inner(),
            Err(status) => return stream_error(&status),
        };
        let mut accepted_version = String::new();
        loop {
            let answer = match answers.message().await {
                Ok(Some(answer)) => answer,
                Ok(None) => return XdsError::Ended("without a word".to_owned()),
                Err(status) => return stream_error(&status),
            };
            let (version, nonce) = (answer.version_info.clone(), answer.nonce.clone());
            let change = self.load(answer).await;
            let refused = change.as_ref().err().map(|error| Status {
                code: Code::InvalidArgument.into(),
                message: truncate(error.to_string()),
            });
            if refused.is_none() {
                accepted_version = version;
                *brought = true;
            }
            emit(XdsEvent::Update(change));
            let request = DiscoveryRequest {
                version_info: accepted_version.clone(),
                response_nonce: nonce,
                error_detail: refused,
                ..self.request()
            };
            if requests.send(request).await.is_err() {
                return XdsError::Ended("it no longer listens".to_owned());
            }
        }
    }

    /// Loads an answer, off the tasks that must not wait.
    async fn load(&self, answer: DiscoveryResponse) -> RulesUpdate {
        let options = self.options;
        tokio::task::spawn_blocking(move || resources::load(&answer, options))
            .await
            .unwrap_or_else(|panic| Err(LoadError::Defect(panic.to_string())))
    }

    /// The first request of a stream.
    fn request(&self) -> DiscoveryRequest {
        DiscoveryRequest {
            node: Some(self.node.clone()),
            type_url: TYPE_URL.to_owned(),
            ..DiscoveryRequest::default()
        }
    }
}

fn stream_error(status: &tonic::Status) -> XdsError {
    let words = match status.message() {
        "" => status.code().to_string(),
        message => format!("{}: {message}", status.code()),
    };
    let behind = std::error::Error::source(status).map(error_chain);
    XdsError::Ended(match behind {
        Some(behind) if !words.contains(&behind) => format!("{words}: {behind}"),
        _ => words,
    })
}

/// As much of a text as is sent.
fn truncate(mut text: String) -> String {
    if text.len() > REASON_BYTES_MAX {
        let boundary = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=REASON_BYTES_MAX).rev().find(boundary);
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}

/// Who we are.
fn node(settings: &XdsSettings) -> Result<Node, XdsError> {
    let mut fields = BTreeMap::new();
    for pair in pairs(&settings.config_grpc_xds_node_metadata) {
        let Some((name, value)) = pair.split_once('=') else {
            let words =
                "CONFIG_GRPC_XDS_NODE_METADATA: write NAME=VALUE, several with commas between";
            return Err(XdsError::Settings(words.to_owned()));
        };
        fields.insert(name.to_owned(), Value::from(value));
    }
    Ok(Node {
        id: settings.config_grpc_xds_node_id.clone(),
        metadata: (!fields.is_empty()).then_some(Struct { fields }),
        user_agent_name: "tollgate".to_owned(),
        user_agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Node::default()
    })
}

/// What is sent along. What cannot be read is not repeated: it may be a secret.
fn headers(text: &str) -> Result<MetadataMap, XdsError> {
    let mut headers = MetadataMap::new();
    for (position, pair) in pairs(text).enumerate() {
        let parsed = pair.split_once(':').and_then(|(name, value)| {
            let name = AsciiMetadataKey::from_str(&name.trim().to_ascii_lowercase()).ok()?;
            let mut value = AsciiMetadataValue::try_from(value.trim()).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        let Some((name, value)) = parsed else {
            let number = position.saturating_add(1);
            let words = format!(
                "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: number {number} cannot be read; write NAME:VALUE, several with commas between"
            );
            return Err(XdsError::Settings(words));
        };
        headers.append(name, value);
    }
    Ok(headers)
}

fn pairs(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
}
