//! The front door: gRPC, by tonic.
//!
//! Three services share the port: Envoy's rate limit service, `grpc.health.v1` (for "" and "ratelimit") and reflection.
//! All that is decided is decided in [`ratelimit`]; here requests come in, deadlines are read off, and errors become
//! gRPC statuses.
//!
//! What it deliberately does not do: TLS (a later issue), accept connections (`accept`), keep rules or buckets.

pub mod client;
mod connections;
mod excess;
mod generation;
mod headers;
mod json;
mod metadata;
mod over_limit;
pub mod proto;
pub mod ratelimit;
mod wire;

use std::sync::Arc;

use tokio::sync::mpsc;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use self::excess::Excess;
pub use self::generation::{Generation, Generations};
pub use self::headers::Headers;
pub use self::json::{JsonAnswer, JsonRateLimit};
use self::proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use self::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use self::ratelimit::{RateLimit, Unanswered, on_excess};
use crate::accept::Connection;
use crate::config::settings::Settings;
use crate::metrics::Metrics;
use crate::store::StoreError;

/// The service names that health answers for.
const HEALTH_NAMES: [&str; 2] = ["", "ratelimit"];

/// The health that gRPC clients see.
#[derive(Clone)]
pub struct Health(HealthReporter);

/// The rate limit service as tonic wants it.
struct Door(Arc<RateLimit>);

/// Why the front door cannot be opened.
pub type ServeError = tonic_reflection::server::Error;

/// Serves gRPC on `connections` until `shutdown`, then says GOAWAY and waits for what is under way.
///
/// # Errors
///
/// When the descriptors for reflection cannot be read: a mistake in the build.
pub async fn serve(
    service: Arc<RateLimit>,
    settings: Settings,
    metrics: Arc<Metrics>,
    health: Health,
    connections: mpsc::Receiver<Connection>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::PUBLISHED_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let rate_limit = RateLimitServiceServer::new(Door(service))
        .max_decoding_message_size(settings.message_size_max);
    let excess = metrics.excess_message_size.clone();
    let routes = Routes::new(Excess::new(rate_limit, on_excess(&settings), excess))
        .add_service(HealthServer::new(HealthService::from_health_reporter(
            health.0,
        )))
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .prepare();
    let bounds = connections::Bounds::new(&settings);
    connections::serve(routes, bounds, &metrics, connections, shutdown).await;
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
            Unanswered::TooManyDescriptors { .. } | Unanswered::TooManyEntries { .. } => {
                Self::resource_exhausted(words)
            }
            Unanswered::Store(StoreError::DeadlineExceeded) => Self::deadline_exceeded(words),
            Unanswered::NoRules | Unanswered::Store(_) => Self::unavailable(words),
        }
    }
}
