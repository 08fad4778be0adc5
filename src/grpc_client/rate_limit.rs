//! A client of the rate limit service, for `tollgate hit` and `tollgate explain`.
//!
//! Connection failures become messages that name the option to change.
//!
//! What it deliberately does not do: retry, print (`cli/hit`).

use std::error::Error as _;
use std::io;
use std::path::Path;
use std::time::Duration;

use http::Uri;
use tonic::transport::Channel;

use crate::grpc_client::{
    ChannelError, ClientTls, ConnectionFailure, ErrorRecord, Reconnect, ServerEndpoint,
};
use crate::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor,
};
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use crate::proto::tollgate::v1::{CheckRequest, Descriptor, Entry};
use crate::tls::{ClientFiles, TlsError};

/// A client of the rate limit service.
#[derive(Debug)]
pub struct RateLimitClient {
    rpc: RateLimitServiceClient<Channel>,
    /// tollgate's own API. Other services do not have it.
    own: RateLimitsClient<Channel>,
    errors: ErrorRecord,
    target: Target,
}

/// The server's address and the TLS files, for messages.
#[derive(Clone, Debug)]
struct Target {
    address: String,
    files: Option<ClientFiles>,
    timeout: Duration,
}

/// A request of descriptors, each of these entries, that takes `hits` of each or refunds them.
pub fn check_request<'d>(
    domain: &str,
    descriptors: impl IntoIterator<Item = &'d [(String, String)]>,
    (hits, is_refund): (u64, bool),
) -> RateLimitRequest {
    let entry = |(key, value): &(String, String)| rate_limit_descriptor::Entry {
        key: key.clone().into(),
        value: value.clone().into(),
    };
    let descriptors = descriptors.into_iter().map(|entries| RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        limit: None,
        hits_addend: Some(hits),
        is_negative_hits: is_refund,
    });
    RateLimitRequest {
        domain: domain.to_owned().into(),
        descriptors: descriptors.collect(),
        hits_addend: 0,
    }
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is invalid.
    #[error("{address:?} is not an address; write HOST:PORT, such as 127.0.0.1:8081, or unix:PATH")]
    Address {
        /// The address as given.
        address: String,
    },
    /// The host has no address.
    #[error("the host of {address} does not resolve ({error}); correct the address")]
    Resolve {
        /// The address.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// The connection failed.
    #[error(
        "no service answers at {address}; start one with `tollgate serve RULES`, or correct the address"
    )]
    Connect {
        /// The address.
        address: String,
    },
    /// The client's own deadline has passed.
    #[error(
        "no {missing} {address} within {}, the deadline of this client (--timeout); the service has not refused",
        humantime::format_duration(*.timeout)
    )]
    Deadline {
        /// What did not happen in time, with its preposition.
        missing: &'static str,
        /// The address.
        address: String,
        /// The deadline.
        timeout: Duration,
    },
    /// A certificate cannot hold the name.
    #[error(
        "{name:?} cannot be the name of a certificate; set --server-name to a DNS name or an IP address"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A TLS file is invalid.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The connection was opened, and the handshake failed.
    #[error("{what}; {advice}")]
    Handshake {
        /// What is wrong, and where.
        what: String,
        /// What to do.
        advice: &'static str,
    },
    /// The service returned an error.
    #[error("the service answered {code}: {words}")]
    Status {
        /// The gRPC status code.
        code: String,
        /// The service's message.
        words: String,
    },
}

// === impl RateLimitClient ===

impl RateLimitClient {
    /// Connects to `address`, HOST:PORT or unix:PATH, with TLS if `tls` is given.
    ///
    /// # Errors
    ///
    /// When the address or a TLS file is invalid, or the connection fails or takes longer than
    /// `timeout`.
    pub async fn connect(
        address: &str,
        tls: Option<ClientTls>,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let owned = || address.to_owned();
        let target = Target {
            address: owned(),
            files: tls.as_ref().map(|tls| tls.files.clone()),
            timeout,
        };
        let server =
            server(address, tls).ok_or_else(|| ClientError::Address { address: owned() })?;
        let connecting = server.connect(Reconnect::OnNextCall, |endpoint| endpoint);
        match tokio::time::timeout(timeout, connecting).await {
            Ok(Ok((channel, errors))) => Ok(Self {
                rpc: RateLimitServiceClient::new(channel.clone()),
                own: RateLimitsClient::new(channel),
                errors,
                target,
            }),
            Ok(Err(error)) => Err(target.connect_error(error)),
            Err(_) => Err(target.deadline("connection to")),
        }
    }

    /// Sends one request.
    ///
    /// # Errors
    ///
    /// When the service returns an error, the timeout passes, or the handshake fails after all.
    pub async fn ask(
        &mut self,
        request: RateLimitRequest,
    ) -> Result<RateLimitResponse, ClientError> {
        // The timeout is not tonic's, whose status cannot be told from one of the service.
        let call = self.rpc.should_rate_limit(request);
        let status = match tokio::time::timeout(self.target.timeout, call).await {
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(status)) => status,
            Err(_) => return Err(self.target.deadline("answer from")),
        };
        // A status from the service itself has no source.
        let failure = status.source().and_then(|_| self.errors.failure());
        Err(match failure {
            Some(ConnectionFailure::Other { .. }) | None => ClientError::Status {
                code: format!("{:?}", status.code()),
                words: status.message().to_owned(),
            },
            Some(failure) => self.target.handshake_error(failure),
        })
    }

    /// Why no limit applies to descriptors, as `no_limit` of tollgate's own API. It is a peek,
    /// which takes no hits. None of a service without that API.
    pub async fn why_no_limit<'d>(
        &mut self,
        domain: &str,
        descriptors: impl IntoIterator<Item = &'d [(String, String)]>,
    ) -> Option<String> {
        let entry = |(key, value): &(String, String)| Entry {
            key: key.clone(),
            value: value.clone(),
        };
        let descriptors = descriptors.into_iter().map(|entries| Descriptor {
            entries: entries.iter().map(entry).collect(),
            hits: None,
        });
        let peek = self.own.peek(CheckRequest {
            domain: domain.to_owned(),
            descriptors: descriptors.collect(),
            hits: None,
        });
        let answer = tokio::time::timeout(self.target.timeout, peek).await;
        Some(answer.ok()?.ok()?.into_inner().no_limit)
    }
}

/// The server at `HOST:PORT`, or at `unix:PATH`, as gRPC names sockets.
fn server(address: &str, tls: Option<ClientTls>) -> Option<ServerEndpoint> {
    if let Some(path) = address.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return (!path.is_empty()).then(|| ServerEndpoint::at_socket(Path::new(path), tls));
    }
    let uri = Uri::try_from(format!("http://{address}")).ok()?;
    Some(ServerEndpoint::new(uri.host()?, uri.port_u16()?, tls))
}

// === impl Target ===

impl Target {
    fn deadline(&self, missing: &'static str) -> ClientError {
        ClientError::Deadline {
            missing,
            address: self.address.clone(),
            timeout: self.timeout,
        }
    }

    /// Converts an error of the channel.
    fn connect_error(&self, error: ChannelError) -> ClientError {
        let address = self.address.clone();
        match (error.failure(), error) {
            (Some(failure), _) => self.handshake_error(failure),
            (_, ChannelError::Files(error)) => ClientError::Files(error),
            (_, ChannelError::Name(name)) => ClientError::Name { name },
            (_, ChannelError::Resolve(error)) => ClientError::Resolve { address, error },
            (_, ChannelError::Address(_)) => ClientError::Address { address },
            (_, _) => ClientError::Connect { address },
        }
    }

    fn handshake_error(&self, failure: ConnectionFailure) -> ClientError {
        let (what, advice) = failure.describe(&self.address, self.files.as_ref());
        ClientError::Handshake { what, advice }
    }
}
