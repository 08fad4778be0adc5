//! Rules from an xDS server: a client of its aggregated service (ADS), state of the world.
//!
//! One stream at a time. Each response holds all rules. The same loader as for files loads it,
//! within the same bounds, and the next request accepts it (ACK) or rejects it (NACK) with the
//! loader's message. One that is in use for some domains only is rejected, too. A fault of the
//! overlay is no reason to reject it. When the stream is lost, the rules in use stay, and the
//! client reconnects with a backoff.
//!
//! go-control-plane, which Envoy Gateway is built on, sends a rejected response again at once, as
//! often as it is rejected. A repetition is not loaded, and its NACK waits, or both sides would
//! repeat themselves for ever. Without a NACK such a server would not send a later version.
//!
//! A new stream does not repeat the version of an earlier one: a restarted server may count its
//! versions from the beginning, and would take ours for its own.
//!
//! What it deliberately does not do: count, log or keep rules (`app` receives events), subscribe to
//! less than everything, use the incremental variant.

pub(crate) mod backoff;
mod document;
mod endpoint;
mod resources;
mod snapshot;
mod status;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use prost_types::{Struct, Value};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::Channel;
use tonic::{Code, Request, Streaming};

use self::backoff::Backoff;
use self::endpoint::XdsEndpoint;
pub use self::endpoint::XdsError;
use self::proto::envoy::config::core::v3::Node;
use self::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use self::proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use self::proto::google::rpc::Status;
use self::resources::TYPE_URL;
#[doc(hidden)] // for fuzzing
pub use self::resources::load_bytes;
pub use self::snapshot::OverlayWatcher;
use self::snapshot::Snapshot;
pub use self::status::XdsStatus;
use crate::grpc_client::error_chain;
#[doc(hidden)] // for tests that act as the server
pub use crate::proto::xds as proto;
use crate::rules::file::Options;
use crate::rules::reload::RulesUpdate;
use crate::settings::XdsSettings;
use crate::visible_text::beginning;

/// The default maximum size of a response: gRPC's own.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// How much of an error message is sent to the server, in bytes.
const REASON_BYTES_MAX: usize = 8 << 10;

/// How long the NACK of a response waits that the server repeats after it was rejected.
const REPEATED_NACK_DELAY: Duration = Duration::from_secs(1);

/// A client of an xDS server.
#[derive(Debug)]
pub struct XdsClient {
    endpoint: XdsEndpoint,
    node: Node,
    headers: MetadataMap,
    message_bytes_max: usize,
    snapshot: Snapshot,
    status: Arc<XdsStatus>,
    /// The waits after a failed connection.
    connecting: Backoff,
    /// The waits after a stream that ended.
    streaming: Backoff,
}

/// An event of the client.
#[derive(Debug)]
pub enum XdsEvent {
    /// A stream is open on a connection to this server.
    Connected(String),
    /// Rules were received: loaded or rejected.
    Update(Box<RulesUpdate>),
    /// There is no stream.
    Disconnected {
        /// The reason.
        error: XdsError,
        /// The time until the next attempt.
        retry_in: Duration,
    },
}

/// A response that was rejected.
struct Rejected {
    response: Arc<DiscoveryResponse>,
    reason: Status,
}

// === impl XdsClient ===

impl XdsClient {
    /// Creates a client from the settings. It connects when it runs.
    ///
    /// # Errors
    ///
    /// When a setting is invalid.
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
        let endpoint = XdsEndpoint::new(settings)?;
        Ok(Self {
            status: Arc::new(XdsStatus::new(endpoint.words())),
            endpoint,
            node: node(settings)?,
            headers: headers(&settings.config_grpc_xds_client_additional_headers.0)?,
            message_bytes_max,
            snapshot: Snapshot::new(options),
            connecting: backoff(settings.config_grpc_xds_server_connect_retry_interval),
            streaming: backoff(settings.xds_client_backoff_initial_interval),
        })
    }

    /// The state of the connection.
    pub fn status(&self) -> Arc<XdsStatus> {
        Arc::clone(&self.status)
    }

    /// The watcher of the overlay; none without an overlay.
    pub async fn overlay(&self) -> Option<OverlayWatcher> {
        self.snapshot.overlay().await
    }

    /// Runs forever, and emits events.
    pub async fn run(mut self, mut emit: impl FnMut(XdsEvent)) {
        loop {
            let (why, backoff) = match self.endpoint.connect().await {
                Err(why) => (why, &mut self.connecting),
                Ok((channel, seen)) => {
                    self.connecting.reset();
                    self.status.set_connected();
                    emit(XdsEvent::Connected(self.endpoint.words()));
                    let mut brought = false;
                    let Err(why) = self.stream(channel, &mut emit, &mut brought).await;
                    if brought {
                        self.streaming.reset();
                    }
                    // The first error of the connection, which the HTTP/2 client may have lost.
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
            self.status.set_disconnected(&why);
            emit(XdsEvent::Disconnected {
                error: why,
                retry_in: wait,
            });
            tokio::time::sleep(wait).await;
        }
    }

    /// Receives rules until the stream ends. Gives the reason, and sets `brought` when rules were
    /// accepted.
    async fn stream(
        &self,
        channel: Channel,
        emit: &mut impl FnMut(XdsEvent),
        brought: &mut bool,
    ) -> Result<Infallible, XdsError> {
        let mut client = AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(self.message_bytes_max);
        let (requests, outgoing) = mpsc::channel(1);
        send(&requests, self.request()).await?;
        let mut call = Request::new(ReceiverStream::new(outgoing));
        *call.metadata_mut() = self.headers.clone();
        // A server without rules for this node may send nothing for any time.
        let answers = client.stream_aggregated_resources(call).await;
        let mut answers = answers
            .map_err(|status| stream_error(&status))?
            .into_inner();
        let mut accepted_version = String::new();
        let mut rejected: Option<Rejected> = None;
        let mut delayed_nack = None;
        loop {
            let answer = next_answer(&mut answers, &requests, delayed_nack.take()).await?;
            let answer = Arc::new(answer);
            let is_repeated = rejected.as_ref().is_some_and(|it| it.is_repeated(&answer));
            if !is_repeated {
                let loaded = self.snapshot.load(Arc::clone(&answer), |change| {
                    emit(XdsEvent::Update(Box::new(change)));
                });
                rejected = loaded.await.err().map(|why| Rejected::new(&answer, why));
                if rejected.is_none() {
                    accepted_version.clone_from(&answer.version_info);
                    *brought = true;
                }
            }
            let request = DiscoveryRequest {
                version_info: accepted_version.clone(),
                response_nonce: answer.nonce.clone(),
                error_detail: rejected.as_ref().map(|rejected| rejected.reason.clone()),
                ..self.request()
            };
            if is_repeated {
                delayed_nack = Some(request);
            } else {
                send(&requests, request).await?;
            }
        }
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

// === impl Rejected ===

impl Rejected {
    fn new(response: &Arc<DiscoveryResponse>, why: String) -> Self {
        Self {
            response: Arc::clone(response),
            reason: Status {
                code: Code::InvalidArgument.into(),
                message: truncate(why),
            },
        }
    }

    /// Whether a response is this one again. Its resources may have another order.
    fn is_repeated(&self, response: &DiscoveryResponse) -> bool {
        fn sorted(response: &DiscoveryResponse) -> Vec<(&str, &[u8])> {
            let resources = response.resources.iter();
            let mut sorted: Vec<_> = resources
                .map(|resource| (&*resource.type_url, &*resource.value))
                .collect();
            sorted.sort_unstable();
            sorted
        }
        let of = |it: &DiscoveryResponse| (it.version_info.clone(), it.type_url.clone());
        of(&self.response) == of(response) && sorted(&self.response) == sorted(response)
    }
}

/// The next response. If none comes in time, a delayed NACK is sent first.
async fn next_answer(
    answers: &mut Streaming<DiscoveryResponse>,
    requests: &mpsc::Sender<DiscoveryRequest>,
    delayed_nack: Option<DiscoveryRequest>,
) -> Result<DiscoveryResponse, XdsError> {
    let early = match delayed_nack {
        None => None,
        Some(nack) => tokio::select! {
            answer = answers.message() => Some(answer),
            () = tokio::time::sleep(REPEATED_NACK_DELAY) => {
                send(requests, nack).await?;
                None
            }
        },
    };
    let answer = match early {
        Some(answer) => answer,
        None => answers.message().await,
    };
    let answer = answer.map_err(|status| stream_error(&status))?;
    answer.ok_or_else(|| XdsError::Ended("no error was sent".to_owned()))
}

async fn send(
    requests: &mpsc::Sender<DiscoveryRequest>,
    request: DiscoveryRequest,
) -> Result<(), XdsError> {
    let sent = requests.send(request).await;
    sent.map_err(|_| XdsError::Ended("it no longer listens".to_owned()))
}

fn stream_error(status: &tonic::Status) -> XdsError {
    let words = match status.message() {
        "" => status.code().to_string(),
        message => format!("{}: {message}", status.code()),
    };
    let words = if status.code() == Code::OutOfRange && words.contains("length too large") {
        format!("{words}; raise XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES")
    } else {
        words
    };
    let behind = std::error::Error::source(status).map(error_chain);
    XdsError::Ended(match behind {
        Some(behind) if !words.contains(&behind) => format!("{words}: {behind}"),
        _ => words,
    })
}

/// A prefix of a text, as long as is sent.
fn truncate(mut text: String) -> String {
    if text.len() > REASON_BYTES_MAX {
        text.truncate(beginning(&text, REASON_BYTES_MAX).len());
        text.push('…');
    }
    text
}

/// The node of requests.
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

/// The additional headers. An error does not repeat a header: it may hold a secret.
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

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use http_body_util::Full;
    use prost::bytes::Bytes;
    use tonic::codec::{Codec as _, Streaming};
    use tonic_prost::ProstCodec;

    use super::proto::envoy::service::discovery::v3::DiscoveryResponse;
    use super::*;

    /// The error of a response that begins with a message of this length and ends.
    async fn error_of_length(length: usize) -> String {
        let length = u32::try_from(length).unwrap().to_be_bytes();
        let body = [&[0], &length[..]].concat();
        let decoder = ProstCodec::<(), DiscoveryResponse>::default().decoder();
        let mut stream = Streaming::new_response(
            decoder,
            Full::new(Bytes::from(body)),
            StatusCode::OK,
            None,
            Some(MESSAGE_BYTES_MAX),
        );
        stream_error(&stream.message().await.unwrap_err()).to_string()
    }

    #[tokio::test]
    async fn the_error_of_a_response_that_is_too_large_names_the_setting() {
        let setting = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES";
        let error = error_of_length(MESSAGE_BYTES_MAX + 1).await;
        assert!(error.ends_with(&format!("; raise {setting}")), "{error}");
        let error = error_of_length(MESSAGE_BYTES_MAX).await;
        assert!(!error.contains(setting), "{error}");
    }
}
