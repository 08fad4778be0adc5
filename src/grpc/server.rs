//! The gRPC server.
//!
//! Our own HTTP/2 server ([`door`]) answers ShouldRateLimit, which comes a hundred thousand times a second, straight from
//! its connection's bytes. All other calls, and unusual calls of ShouldRateLimit, go to tonic's routes behind it. What is
//! decided is the same.
//!
//! Three services share the port: Envoy's rate limit service, `grpc.health.v1` (for "" and "ratelimit") and reflection.
//! [`ratelimit`] decides; this file reads deadlines and turns errors into gRPC statuses.
//!
//! What it deliberately does not do: accept connections, or know whether they are TLS (`accept`); keep rules or buckets.

use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tollgate_http2::{BodyBudget, grpc};
use tonic::codec::CompressionEncoding;
#[doc(hidden)]
pub use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use prost::Message as _;

use crate::grpc::connection_limits::ConnectionLimits;
use crate::grpc::context::ServerContext;
use crate::grpc::message_size::{Decoded, Excess};
use crate::grpc::streaming::StreamingCalls;
use crate::grpc::worker_threads::Cores;
use crate::metrics::Metrics;
use crate::net::{Connection, serve_each};
use crate::pipeline::{Pipeline, RequestError, on_excess};
use crate::proto;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::settings::Settings;
use crate::settings::memory_limit::MemoryLimit;
use crate::store::{StoreError, Worker};
use crate::tracing::TraceParent;

/// How long a question about health or reflection may be: a name, and many may wait for their end.
const OTHER_MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Which part of the container's memory unfinished request bodies may hold where
/// `--body-memory-max` is not given: one in so many. Buckets have half.
const BODY_MEMORY_DIVISOR: u64 = 8;

/// The same in bytes where the system does not tell how much memory there is.
const BODY_MEMORY_UNKNOWN: u64 = 64 * 1024 * 1024;

/// The service names that health answers for.
const HEALTH_NAMES: [&str; 2] = ["", "ratelimit"];

/// The health that gRPC clients see.
#[derive(Clone)]
pub struct Health(HealthReporter);

/// The rate limit service as tonic wants it.
struct Tonic(Arc<Pipeline>);

/// The gRPC server: its threads run, and it is ready to serve connections.
pub struct GrpcServer {
    cores: Arc<Cores>,
}

/// Why the gRPC server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The descriptors for reflection cannot be read: a mistake in the build.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// Too little memory for one message.
    #[error(
        "--body-memory-max is {bytes} bytes, and the largest message needs {bytes_min}; raise it, or lower --message-size-max"
    )]
    BodyMemory {
        /// What the setting says.
        bytes: u64,
        /// The least that it may say.
        bytes_min: u64,
    },
    /// The system gives no thread, or no way to wait for sockets.
    #[error("no thread for a core: {0}; fewer with --cores")]
    Core(#[from] io::Error),
}

/// How many bytes unfinished request bodies may hold. A connection may hold as much as is free, so
/// anything below two messages would refuse the first one.
///
/// # Errors
///
/// [`OpenError::BodyMemory`] when the setting is below that.
fn body_memory_max(settings: &Settings) -> Result<u64, OpenError> {
    let bytes_min = (settings.message_size_max as u64).saturating_mul(2);
    let Some(bytes) = settings.body_memory_max else {
        let limit = MemoryLimit::of_current_process();
        let share = limit.map_or(BODY_MEMORY_UNKNOWN, |limit| {
            limit.bytes / BODY_MEMORY_DIVISOR
        });
        return Ok(share.max(bytes_min));
    };
    (bytes >= bytes_min)
        .then_some(bytes)
        .ok_or(OpenError::BodyMemory { bytes, bytes_min })
}

// === impl GrpcServer ===

impl GrpcServer {
    /// Starts it as the settings say: `cores` threads run from now on.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(
        service: &Arc<Pipeline>,
        settings: &Settings,
        cores: usize,
        metrics: &Arc<Metrics>,
        health: Health,
    ) -> Result<Self, OpenError> {
        let bytes_max = body_memory_max(settings)?;
        let bodies = Arc::new(BodyBudget::new(bytes_max));
        let held = Arc::clone(&bodies);
        let gauge = &metrics.connections.unfinished_bodies_bytes;
        gauge.read_from(move || held.held_bytes());
        let context = ServerContext {
            service: Arc::clone(service),
            routes: routes(service, settings, metrics, health)?,
            limits: ConnectionLimits::new(settings),
            metrics: Arc::clone(metrics),
            message_size_max: settings.message_size_max,
            bodies,
        };
        let cores = Arc::new(Cores::start(cores, &context)?);
        Ok(Self { cores })
    }

    /// Runs what a store needs to answer, each beside the connections that will ask it.
    pub fn spawn_workers(&self, tasks: &mut JoinSet<()>, workers: Vec<Worker>) {
        let count = workers.len();
        for (number, worker) in workers.into_iter().enumerate() {
            self.cores.spawn(tasks, (number, count), worker);
        }
    }

    /// Serves gRPC on `connections` until `shutdown`, then sends GOAWAY and waits for calls under way. The threads run until
    /// the last owner drops this.
    pub async fn serve(
        self: Arc<Self>,
        connections: mpsc::Receiver<Connection>,
        shutdown: impl Future<Output = ()>,
    ) {
        let serve_one = |connection, stopping| {
            let cores = Arc::clone(&self.cores);
            async move { cores.serve(connection, stopping).await }
        };
        serve_each(connections, shutdown, serve_one).await;
    }
}

/// tonic's routes: health, reflection, and the rate limit service for calls that the fast path does not support.
///
/// Tests drive them without a server, as the oracle for what our own HTTP/2 server answers.
///
/// # Errors
///
/// [`OpenError::Reflection`] when the build's descriptors cannot be read.
#[doc(hidden)]
pub fn routes(
    service: &Arc<Pipeline>,
    settings: &Settings,
    metrics: &Arc<Metrics>,
    health: Health,
) -> Result<Routes, OpenError> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::PUBLISHED_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Responses stay uncompressed: gRPC leaves that to the server, and they are short.
    let rate_limit = RateLimitServiceServer::new(Tonic(Arc::clone(service)))
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(settings.message_size_max);
    let excess = metrics.requests.excess_message_size.clone();
    let streaming = StreamingCalls::new(settings, metrics);
    let routes = Routes::new(Excess::new(rate_limit, on_excess(settings), excess))
        .add_service(
            streaming.bound(
                HealthServer::new(HealthService::from_health_reporter(health.0))
                    .accept_compressed(CompressionEncoding::Gzip)
                    .max_decoding_message_size(OTHER_MESSAGE_BYTES_MAX),
            ),
        )
        .add_service(
            streaming.bound(
                reflection()
                    .build_v1()?
                    .accept_compressed(CompressionEncoding::Gzip)
                    .max_decoding_message_size(OTHER_MESSAGE_BYTES_MAX),
            ),
        )
        .add_service(
            streaming.bound(
                reflection()
                    .build_v1alpha()?
                    .accept_compressed(CompressionEncoding::Gzip)
                    .max_decoding_message_size(OTHER_MESSAGE_BYTES_MAX),
            ),
        )
        .prepare();
    Ok(routes)
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

// === impl Tonic ===

#[tonic::async_trait]
impl RateLimitService for Tonic {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        if let Some(decoded) = request.extensions().get::<Decoded>() {
            decoded.set();
        }
        let timeout_us = request
            .metadata()
            .get("grpc-timeout")
            .and_then(|header| grpc::timeout_us(header.as_bytes()));
        let parent = self
            .0
            .is_tracing()
            .then(|| TraceParent::of(request.metadata().as_ref()));
        let parent = parent.flatten();
        let message = request.get_ref().encode_to_vec();
        let response = self.0.call(&message, timeout_us, parent).await?;
        let response = RateLimitResponse::decode(&*response.message)
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(response))
    }
}

impl From<RequestError> for Status {
    fn from(error: RequestError) -> Self {
        let words = error.to_string();
        match error {
            RequestError::Malformed(_) => Self::internal(words),
            RequestError::EmptyDomain | RequestError::NoDescriptors => {
                Self::invalid_argument(words)
            }
            RequestError::TooManyDescriptors { .. }
            | RequestError::TooManyEntries { .. }
            | RequestError::TooManyMatchingSteps => Self::resource_exhausted(words),
            RequestError::Store(StoreError::DeadlineExceeded) => Self::deadline_exceeded(words),
            RequestError::NoRules | RequestError::Store(_) => Self::unavailable(words),
        }
    }
}
