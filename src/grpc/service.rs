//! A gRPC service of this server: how it joins tonic's routes, and which of its methods
//! stream.

use std::sync::Arc;

use tokio::runtime::Handle;
use tonic::service::RoutesBuilder;

use crate::grpc::error::StartError;
use crate::grpc::health::Health;
use crate::grpc::streaming::{StreamingCalls, StreamingMethods};
use crate::pipeline::Pipeline;
use crate::quota::registry::QuotaRegistry;
use crate::settings::Settings;

/// One gRPC service. Each is a file in `services`, and a line in its table.
pub(crate) struct GrpcService {
    /// Methods whose calls stay open as long as the client likes. They are bounded in number.
    pub(crate) streaming: &'static [StreamingMethods],
    /// Adds the service to the routes.
    pub(crate) add: fn(&mut RoutesBuilder, &ServiceContext<'_>) -> Result<(), StartError>,
}

/// What services are built from.
pub(crate) struct ServiceContext<'a> {
    pub(crate) pipeline: &'a Arc<Pipeline>,
    pub(crate) settings: &'a Settings,
    pub(crate) health: &'a Health,
    /// The bound on streaming calls.
    pub(crate) streaming: StreamingCalls,
    pub(crate) quotas: &'a Arc<QuotaRegistry>,
    /// Where the streams of quotas run; without it where their calls do.
    pub(crate) quota_thread: Option<&'a Handle>,
}
