//! The front door: gRPC, by tonic.
//!
//! Three services share the port: Envoy's rate limit service, `grpc.health.v1` (for "" and "ratelimit") and reflection.
//! All that is decided is decided in [`ratelimit`]; here requests come in, deadlines are read off, and errors become
//! gRPC statuses.
//!
//! Bounds are chosen so that a real Envoy never meets one: it opens up to 1,024 streams a connection before it has read
//! what we allow, so [`STREAMS_MAX`] is above that; and it resets streams in crowds when its 20 ms are over, so
//! [`RESET_STREAMS_MAX`] lets it.
//!
//! What it deliberately does not do: TLS (a later issue), accept connections (`accept`), keep rules or buckets.

pub mod client;
mod generation;
mod json;
pub mod proto;
pub mod ratelimit;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

pub use self::generation::{Generation, Generations};
pub use self::json::{JsonAnswer, JsonRateLimit};
use self::proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use self::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use self::ratelimit::{RateLimit, Unanswered};
use crate::accept::Connection;
use crate::store::StoreError;

/// Streams that one connection may have open.
pub const STREAMS_MAX: u32 = 4_096;

/// Streams that one connection may have reset before they were taken up.
pub const RESET_STREAMS_MAX: usize = 4_096;

/// The largest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// How often a silent connection is asked whether it is still there, and how long it may take to say so.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The service names that health answers for.
const HEALTH_NAMES: [&str; 2] = ["", "ratelimit"];

/// The health that gRPC clients see.
#[derive(Clone)]
pub struct Health(HealthReporter);

/// The rate limit service as tonic wants it.
struct Door(Arc<RateLimit>);

/// Serves gRPC on `connections` until `shutdown`, then says GOAWAY and waits for what is under way.
///
/// # Errors
///
/// When the descriptors for reflection cannot be read, or the transport fails as a whole.
pub async fn serve(
    service: Arc<RateLimit>,
    connections: mpsc::Receiver<Connection>,
    health: Health,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::PUBLISHED_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let rate_limit =
        RateLimitServiceServer::new(Door(service)).max_decoding_message_size(MESSAGE_BYTES_MAX);
    Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_max_pending_accept_reset_streams(Some(RESET_STREAMS_MAX))
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(rate_limit)
        .add_service(HealthServer::new(HealthService::from_health_reporter(
            health.0,
        )))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .serve_with_incoming_shutdown(
            ReceiverStream::new(connections).map(Ok::<_, std::convert::Infallible>),
            shutdown,
        )
        .await?;
    Ok(())
}

// === impl Health ===

impl Health {
    /// Health that says "not serving" until told otherwise.
    pub async fn new() -> Self {
        let health = Self(HealthReporter::new());
        health.set_serving(false).await;
        health
    }

    /// Says whether requests should come here.
    pub async fn set_serving(&self, serving: bool) {
        let status = if serving {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for name in HEALTH_NAMES {
            self.0.set_service_status(name, status).await;
        }
    }
}

// === impl Door ===

#[tonic::async_trait]
impl RateLimitService for Door {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let timeout_us = request
            .metadata()
            .get("grpc-timeout")
            .and_then(|header| wire::grpc_timeout_us(header.to_str().ok()?));
        let answer = self
            .0
            .should_rate_limit(request.get_ref(), timeout_us)
            .await?;
        Ok(Response::new(answer))
    }
}

impl From<Unanswered> for Status {
    fn from(unanswered: Unanswered) -> Self {
        let words = unanswered.to_string();
        match unanswered {
            Unanswered::EmptyDomain | Unanswered::NoDescriptors => Self::invalid_argument(words),
            Unanswered::Store(StoreError::DeadlineExceeded) => Self::deadline_exceeded(words),
            Unanswered::NoRules | Unanswered::Store(_) => Self::unavailable(words),
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        TcpConnectInfo {
            local_addr: None,
            remote_addr: Some(self.peer),
        }
    }
}
