//! The health that gRPC clients see (`grpc.health.v1`).

use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, HealthService};

/// The service names that health answers for.
const SERVICE_NAMES: [&str; 4] = [
    "",
    "ratelimit",
    "tollgate.v1.RateLimits",
    "kuadrant.service.ratelimit.v1.RateLimitService",
];

/// The health that gRPC clients see. Clones share it.
#[derive(Clone)]
pub struct Health(HealthReporter);

// === impl Health ===

impl Health {
    /// Health that is "not serving" until set.
    pub async fn new() -> Self {
        let health = Self(HealthReporter::new());
        health.set_serving(false).await;
        health
    }

    /// Sets whether requests should come here.
    pub async fn set_serving(&self, serving: bool) {
        let status = if serving {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for name in SERVICE_NAMES {
            self.0.set_service_status(name, status).await;
        }
    }

    /// The service that reports it.
    pub(crate) fn service(&self) -> HealthService {
        HealthService::from_health_reporter(self.0.clone())
    }
}
