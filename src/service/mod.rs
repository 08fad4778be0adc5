//! The front door: gRPC.
//!
//! Two ways in, chosen by a setting: [`door`] takes the one call that comes a hundred thousand times a second, straight from
//! its connection's bytes, and leaves all others to tonic; or tonic takes them all. What is decided is the same.
//!
//! Three services share the port: Envoy's rate limit service, `grpc.health.v1` (for "" and "ratelimit") and reflection.
//! All that is decided is decided in [`ratelimit`]; here requests come in, deadlines are read off, and errors become
//! gRPC statuses.
//!
//! What it deliberately does not do: accept connections, or know whether they are TLS (`accept`); keep rules or buckets.

pub mod client;
mod connections;
mod door;
mod excess;
mod generation;
mod headers;
mod json;
mod metadata;
mod over_limit;
pub mod proto;
pub mod ratelimit;
mod streaming;
mod wire;

use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tollgate_http2::BodyBudget;
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

#[cfg(fuzzing)]
pub use self::door::agreement;
#[doc(hidden)]
pub use self::door::by_hand::ByHand;
use self::door::{Cores, Serving};
use self::excess::{Decoded, Excess};
pub use self::generation::{Generation, Generations};
pub use self::headers::Headers;
#[cfg(fuzzing)]
pub use self::json::understand;
pub use self::json::{JsonAnswer, JsonRateLimit};
use self::proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use self::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use self::ratelimit::{RateLimit, Unanswered, on_excess};
use self::streaming::StreamingCalls;
use crate::accept::{Connection, serve_each};
use crate::config::memory_limit::MemoryLimit;
use crate::config::settings::{Door, Settings};
use crate::metrics::Metrics;
use crate::store::{StoreError, Worker};
use crate::telemetry::TraceParent;

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
struct Tonic(Arc<RateLimit>);

/// The gRPC port's way in, ready to serve.
pub struct FrontDoor {
    serving: connections::Serving,
    /// None where tonic takes every call.
    cores: Option<Arc<Cores>>,
}

/// Why the front door cannot be opened.
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
        let limit = MemoryLimit::of_this_process();
        let share = limit.map_or(BODY_MEMORY_UNKNOWN, |limit| {
            limit.bytes / BODY_MEMORY_DIVISOR
        });
        return Ok(share.max(bytes_min));
    };
    (bytes >= bytes_min)
        .then_some(bytes)
        .ok_or(OpenError::BodyMemory { bytes, bytes_min })
}

// === impl FrontDoor ===

impl FrontDoor {
    /// Opens it as the settings say. Threads of cores run from now on.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(
        service: &Arc<RateLimit>,
        settings: &Settings,
        cores: usize,
        metrics: &Arc<Metrics>,
        health: Health,
    ) -> Result<Self, OpenError> {
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
        let bounds = connections::Bounds::new(settings);
        let cores = match settings.door {
            Door::Tonic => None,
            Door::H2 => {
                let bytes_max = body_memory_max(settings)?;
                let bodies = Arc::new(BodyBudget::new(bytes_max));
                let held = Arc::clone(&bodies);
                let gauge = &metrics.connections.unfinished_bodies_bytes;
                gauge.read_from(move || held.held_bytes());
                let serving = Serving {
                    service: Arc::clone(service),
                    routes: routes.clone(),
                    bounds,
                    metrics: Arc::clone(metrics),
                    message_size_max: settings.message_size_max,
                    bodies,
                };
                Some(Arc::new(Cores::start(cores, &serving)?))
            }
        };
        let serving = connections::Serving {
            routes,
            bounds,
            service: Arc::clone(service),
            metrics: Arc::clone(metrics),
        };
        Ok(Self { serving, cores })
    }

    /// Runs what a store needs to answer, each beside the connections that will ask it.
    pub fn spawn_workers(&self, tasks: &mut JoinSet<()>, workers: Vec<Worker>) {
        let count = workers.len();
        for (number, worker) in workers.into_iter().enumerate() {
            match &self.cores {
                Some(cores) => cores.spawn(tasks, (number, count), worker),
                None => drop(tasks.spawn(worker)),
            }
        }
    }

    /// Serves gRPC on `connections` until `shutdown`, then says GOAWAY and waits for what is under way. What runs beside the
    /// connections goes on until the last owner drops this.
    pub async fn serve(
        self: Arc<Self>,
        connections: mpsc::Receiver<Connection>,
        shutdown: impl Future<Output = ()>,
    ) {
        match &self.cores {
            None => {
                connections::serve(self.serving.clone(), connections, shutdown).await;
            }
            Some(cores) => {
                let serve_one = |connection, stopping| {
                    let cores = Arc::clone(cores);
                    async move { cores.serve(connection, stopping).await }
                };
                serve_each(connections, shutdown, serve_one).await;
            }
        }
    }
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
            .and_then(|header| tollgate_http2::grpc::timeout_us(header.as_bytes()));
        let parent = self
            .0
            .traces()
            .then(|| TraceParent::of(request.metadata().as_ref()));
        let parent = parent.flatten();
        let answer = self
            .0
            .should_rate_limit(request.get_ref(), timeout_us, parent)
            .await?;
        Ok(Response::new(answer))
    }
}

impl From<Unanswered> for Status {
    fn from(unanswered: Unanswered) -> Self {
        let words = unanswered.to_string();
        match unanswered {
            Unanswered::EmptyDomain | Unanswered::NoDescriptors => Self::invalid_argument(words),
            Unanswered::TooManyDescriptors { .. }
            | Unanswered::TooManyEntries { .. }
            | Unanswered::TooManyMatchingSteps => Self::resource_exhausted(words),
            Unanswered::Store(StoreError::DeadlineExceeded) => Self::deadline_exceeded(words),
            Unanswered::NoRules | Unanswered::Store(_) => Self::unavailable(words),
        }
    }
}
