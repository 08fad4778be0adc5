//! Asking a running service, in our words: what `tollgate hit` is made of.
//!
//! How: over a channel as rules come by (`config/channel`), bare or under TLS. What went wrong
//! below is told apart there, and said here by the options that mend it.
//!
//! What it deliberately does not do: retry, print (`cli/hit`).

use std::error::Error as _;
use std::time::Duration;

use http::Uri;
use tonic::transport::Channel;

use crate::grpc_client::{
    ChannelError, ClientTls, ConnectionFailure, ErrorRecord, Reconnect, ServerEndpoint,
};
use crate::proto::envoy::extensions::common::ratelimit::v3 as common;
use crate::proto::envoy::service::ratelimit::v3 as rls;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response as response;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use crate::tls::{ClientFiles, TlsError};

/// A connection to a service.
#[derive(Debug)]
pub struct RateLimitClient {
    rpc: RateLimitServiceClient<Channel>,
    errors: ErrorRecord,
    target: Target,
}

/// Where a service was looked for, and by which certificates.
#[derive(Clone, Debug)]
struct Target {
    address: String,
    files: Option<ClientFiles>,
}

/// A request, owned.
#[derive(Clone, Debug, Default)]
pub struct CheckRequest {
    /// The domain.
    pub domain: String,
    /// Each descriptor's entries, keys and values.
    pub descriptors: Vec<Vec<(String, String)>>,
    /// Hits of each descriptor; 0 only looks.
    pub hits: u64,
    /// The hits are given back.
    pub refund: bool,
}

/// The answer to a [`CheckRequest`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckResponse {
    /// Whether the request may pass.
    pub allowed: bool,
    /// One a descriptor, in order.
    pub statuses: Vec<DescriptorStatus>,
}

/// The answer for one descriptor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DescriptorStatus {
    /// Whether this descriptor is within its limit.
    pub allowed: bool,
    /// The limit, if one applies.
    pub limit: Option<LimitStatus>,
    /// Hits left; `u32::MAX` without a limit means unlimited.
    pub remaining: u32,
    /// Seconds until another try may pass, or until the limit is fresh again.
    pub until_seconds: Option<i64>,
}

/// The limit that an answer speaks of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LimitStatus {
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
    /// A name that no certificate can bear.
    #[error(
        "{name:?} is no name that a certificate can bear; give a DNS name or an address by --server-name"
    )]
    Name {
        /// Which.
        name: String,
    },
    /// A file of ours is not good.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// There is a port, and no understanding.
    #[error("{what}; {advice}")]
    Handshake {
        /// What is wrong, and where.
        what: String,
        /// What to change.
        advice: &'static str,
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

// === impl RateLimitClient ===

impl RateLimitClient {
    /// Connects to `address`, HOST:PORT; by TLS, if `tls` says how.
    ///
    /// # Errors
    ///
    /// When it is no address, a file of TLS is not good, or nobody is there within `timeout` with
    /// whom to speak.
    pub async fn connect(
        address: &str,
        tls: Option<ClientTls>,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let owned = || address.to_owned();
        let target = Target {
            address: owned(),
            files: tls.as_ref().map(|tls| tls.files.clone()),
        };
        let uri = Uri::try_from(format!("http://{address}")).ok();
        let parts = uri
            .as_ref()
            .and_then(|uri| Some((uri.host()?, uri.port_u16()?)));
        let (host, port) = parts.ok_or_else(|| ClientError::Address { address: owned() })?;
        let server = ServerEndpoint::new(host, port, tls);
        let connecting =
            server.connect(Reconnect::OnNextCall, |endpoint| endpoint.timeout(timeout));
        match tokio::time::timeout(timeout, connecting).await {
            Ok(Ok((channel, errors))) => Ok(Self {
                rpc: RateLimitServiceClient::new(channel),
                errors,
                target,
            }),
            Ok(Err(error)) => Err(target.connect_error(error)),
            Err(_) => Err(ClientError::Connect { address: owned() }),
        }
    }

    /// Asks once.
    ///
    /// # Errors
    ///
    /// When the service answers with an error, or does not after all speak as we do.
    pub async fn ask(&mut self, request: &CheckRequest) -> Result<CheckResponse, ClientError> {
        let status = match self.rpc.should_rate_limit(request.message()).await {
            Ok(response) => return Ok(CheckResponse::of(response.get_ref())),
            Err(status) => status,
        };
        // What the service itself has answered has nothing behind it.
        let failure = status.source().and_then(|_| self.errors.failure());
        Err(match failure {
            Some(ConnectionFailure::Other { .. }) | None => ClientError::Status {
                code: format!("{:?}", status.code()),
                words: status.message().to_owned(),
            },
            Some(failure) => self.target.handshake_error(failure),
        })
    }
}

// === impl Target ===

impl Target {
    /// Why there is no channel.
    fn connect_error(&self, error: ChannelError) -> ClientError {
        let address = self.address.clone();
        match (error.failure(), error) {
            (Some(failure), _) => self.handshake_error(failure),
            (_, ChannelError::Files(error)) => ClientError::Files(error),
            (_, ChannelError::Name(name)) => ClientError::Name { name },
            (_, ChannelError::Address(_)) => ClientError::Address { address },
            (_, _) => ClientError::Connect { address },
        }
    }

    /// What is wrong between us and the service, and what to change.
    fn handshake_error(&self, failure: ConnectionFailure) -> ClientError {
        let address = &self.address;
        let authorities = self.files.as_ref().map(|files| files.ca_bundle.as_deref());
        let ours = self
            .files
            .as_ref()
            .and_then(|files| files.identity.as_ref());
        let (what, advice) = match failure {
            ConnectionFailure::PeerSpeaksTls => (
                format!("{address} seems to speak TLS"),
                "name who signs its certificate by --cacert FILE, or give --tls if this system knows",
            ),
            ConnectionFailure::PeerSpeaksPlaintext => (
                format!("{address} seems to speak no TLS"),
                "leave out --cacert and --tls, or name the right port",
            ),
            ConnectionFailure::Closed if authorities.is_some() => (
                format!("{address} closed the connection in the middle of a TLS handshake"),
                "see whether it is TLS's port, and what its log says",
            ),
            ConnectionFailure::Closed => (
                format!("{address} closed the connection without a word"),
                "if it speaks TLS name who signs its certificate by --cacert FILE, else name the right port",
            ),
            ConnectionFailure::UnknownIssuer => match authorities.flatten() {
                Some(path) => (
                    format!(
                        "the certificate of {address} is signed by nobody in {}",
                        path.display()
                    ),
                    "name those who sign it by --cacert FILE",
                ),
                None => (
                    format!(
                        "the certificate of {address} is signed by nobody whom this system knows"
                    ),
                    "name those who sign it by --cacert FILE",
                ),
            },
            ConnectionFailure::NameMismatch { presented } => (
                format!(
                    "the certificate of {address} is for {}, not for the name asked for",
                    listed(&presented)
                ),
                "say by --server-name which of its names it is asked by",
            ),
            ConnectionFailure::ServerCertificate { words } => (
                format!("the certificate of {address} cannot be used ({words})"),
                "have the service show another",
            ),
            ConnectionFailure::ClientCertificate { words } => {
                match ours.map(|(certificate, _)| certificate) {
                    None => (
                        format!("{address} asks for a certificate of ours ({words})"),
                        "show one by --client-cert FILE and --client-key FILE",
                    ),
                    Some(path) => (
                        format!(
                            "{address} does not take the certificate in {} ({words})",
                            path.display()
                        ),
                        "show one that is good now, signed by those whom it believes, with a name that it lets in",
                    ),
                }
            }
            ConnectionFailure::Other { words } => (
                format!("no TLS with {address}: {words}"),
                "see what its log says",
            ),
        };
        ClientError::Handshake { what, advice }
    }
}

// === impl CheckRequest ===

impl CheckRequest {
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

// === impl CheckResponse ===

impl CheckResponse {
    fn of(response: &rls::RateLimitResponse) -> Self {
        Self {
            allowed: response.overall_code() != response::Code::OverLimit,
            statuses: response.statuses.iter().map(DescriptorStatus::of).collect(),
        }
    }
}

// === impl DescriptorStatus ===

impl DescriptorStatus {
    fn of(status: &response::DescriptorStatus) -> Self {
        Self {
            allowed: status.code() != response::Code::OverLimit,
            limit: status.current_limit.as_ref().map(|limit| LimitStatus {
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

/// Names for people; what the library puts around a DNS name left out.
fn listed(names: &[String]) -> String {
    let bare = |name: &String| {
        let inner = name.strip_prefix("DnsName(\"");
        let inner = inner.and_then(|name| name.strip_suffix("\")"));
        inner.unwrap_or(name).to_owned()
    };
    match names {
        [] => "no name".to_owned(),
        names => names.iter().map(bare).collect::<Vec<_>>().join(", "),
    }
}
