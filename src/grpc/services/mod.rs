//! Every gRPC service behind the fast path, one file each and one line in [`SERVICES`].

mod api_call;
mod api_error;
mod bytes_codec;
mod health;
mod kuadrant;
mod quota;
#[cfg(any(test, fuzzing))]
mod quota_fuzz;
mod rate_limit;
mod rate_limits;
mod reflection;

use tonic::service::{Routes, RoutesBuilder};

#[cfg(fuzzing)]
pub use self::quota_fuzz::withstand_quota_reports;
use crate::grpc::error::StartError;
use crate::grpc::protocol::require_grpc;
use crate::grpc::service::{GrpcService, ServiceContext};
use crate::grpc::streaming::StreamingMethods;

/// The table of services.
static SERVICES: &[GrpcService] = &[
    rate_limit::SERVICE,
    rate_limits::SERVICE,
    kuadrant::SERVICE,
    quota::SERVICE,
    health::SERVICE,
    reflection::V1,
    reflection::V1ALPHA,
];

/// tonic's routes to all services.
///
/// # Errors
///
/// [`StartError::Reflection`] when the build's descriptors cannot be read.
pub(crate) fn routes(context: &ServiceContext<'_>) -> Result<Routes, StartError> {
    let mut routes = RoutesBuilder::default();
    for service in SERVICES {
        (service.add)(&mut routes, context)?;
    }
    Ok(require_grpc(routes.routes(), is_client_streaming).prepare())
}

/// Whether a path is one of a streaming method.
pub(crate) fn is_streaming(path: &str) -> bool {
    streaming_methods().any(|methods| methods.contain(path.as_bytes()))
}

/// Whether a path is one of a method whose requests stream: their bodies may go on as long as the
/// client likes.
pub(crate) fn is_client_streaming(path: &[u8]) -> bool {
    streaming_methods().any(|methods| methods.requests_stream && methods.contain(path))
}

fn streaming_methods() -> impl Iterator<Item = &'static StreamingMethods> {
    SERVICES.iter().flat_map(|service| service.streaming)
}
