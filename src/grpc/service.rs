//! A gRPC service of this server: how it joins tonic's routes, which of its methods stream, and
//! what it is built from.

use std::io;
use std::sync::Arc;

use tokio::runtime::Handle;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::answer_memory::AnswerMemory;
use crate::metrics::Metrics;
use crate::pipeline::Pipeline;
use crate::quota::registry::QuotaRegistry;
use crate::settings::Settings;

/// One gRPC service. Each is a file in `services`, and a line in its table.
pub(crate) struct GrpcService {
    /// Methods whose calls stay open as long as the client likes. They are bounded in number.
    pub(crate) streaming: &'static [StreamingMethod],
    /// Adds the service to the routes.
    pub(crate) add: fn(Routes, &ServiceContext<'_>) -> Result<Routes, StartError>,
}

/// A streaming method.
pub(crate) struct StreamingMethod {
    pub(crate) path: &'static str,
    /// Whether requests stream as well as responses.
    pub(crate) requests_stream: bool,
}

/// What the server is built from.
#[derive(Clone, Copy)]
pub(crate) struct ServerParts<'a> {
    pub(crate) pipeline: &'a Arc<Pipeline>,
    pub(crate) answers: &'a Arc<AnswerMemory>,
    pub(crate) settings: &'a Settings,
    pub(crate) health: &'a Health,
    pub(crate) metrics: &'a Arc<Metrics>,
}

/// What services are built from.
pub(crate) struct ServiceContext<'a> {
    pub(crate) parts: ServerParts<'a>,
    pub(crate) quotas: &'a Arc<QuotaRegistry>,
    /// Where the streams of quotas run; without it where their calls do.
    pub(crate) quota_thread: Option<&'a Handle>,
}

/// Why the gRPC server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The descriptors for reflection cannot be read: a mistake in the build.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The system gives no random number.
    #[error("no random number for this replica: {0}")]
    Random(getrandom::Error),
    /// Too little memory for one message.
    #[error(
        "--body-memory-max is {bytes} bytes, and the largest message needs {bytes_min}; raise it, or lower --message-size-max"
    )]
    BodyMemory {
        /// The value of the setting.
        bytes: u64,
        /// The least that it may say.
        bytes_min: u64,
    },
    /// Too little memory for one answer.
    #[error(
        "--answer-memory-max is {bytes} bytes, and the largest answer needs {bytes_min}; raise it, or lower --answer-size-max"
    )]
    AnswerMemory {
        /// The value of the setting.
        bytes: u64,
        /// The least that it may say.
        bytes_min: u64,
    },
    /// The system gives no thread, or no way to wait for sockets.
    #[error("cannot start a worker thread: {0}; set a smaller --cores")]
    Thread(#[from] io::Error),
}

/// The service names that health answers for.
const SERVICE_NAMES: [&str; 4] = [
    "",
    "ratelimit",
    "tollgate.v1.RateLimits",
    "kuadrant.service.ratelimit.v1.RateLimitService",
];

/// The health that gRPC clients see. Clones share it.
#[derive(Clone)]
pub struct Health(pub(crate) HealthReporter);

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
}
