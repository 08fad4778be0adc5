//! Every gRPC service behind the fast path, one file each and one line in [`SERVICES`]. Those that
//! tonic brings, health and reflection, are here.

pub(in crate::grpc) mod api_call;
mod bytes_codec;
mod kuadrant;
mod quota;
mod rate_limit;
pub(in crate::grpc) mod rate_limits;

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::Request;
use tonic::Status;
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use tonic_reflection::server::Builder;
use tower::service_fn;

use crate::grpc::layers::layered;
use crate::grpc::service::{GrpcService, ServiceContext, StartError, StreamingMethod};
use crate::proto::PUBLISHED_DESCRIPTORS;

/// The table of services.
static SERVICES: &[GrpcService] = &[
    rate_limit::SERVICE,
    rate_limits::SERVICE,
    kuadrant::SERVICE,
    quota::SERVICE,
    HEALTH,
    REFLECTION,
];

/// The largest request of health and reflection, in bytes: a name, and many calls may be open.
const NAME_BYTES_MAX: usize = 16 * 1024;

/// `grpc.health.v1.Health`, for the whole server and for the rate limit service.
const HEALTH: GrpcService = GrpcService {
    streaming: &[StreamingMethod {
        path: "/grpc.health.v1.Health/Watch",
        requests_stream: false,
    }],
    add: |routes, context| {
        let service = HealthService::from_health_reporter(context.parts.health.0.clone());
        let server = HealthServer::new(service)
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(NAME_BYTES_MAX);
        Ok(routes.add_service(server))
    },
};

/// `grpc.reflection`, in both of its versions: tools such as grpcurl read the services from it, and
/// older ones use the alpha.
const REFLECTION: GrpcService = GrpcService {
    streaming: &[
        StreamingMethod {
            path: "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            requests_stream: true,
        },
        StreamingMethod {
            path: "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            requests_stream: true,
        },
    ],
    add: |routes, _| {
        let v1 = published()
            .build_v1()?
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(NAME_BYTES_MAX);
        let v1alpha = published()
            .build_v1alpha()?
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(NAME_BYTES_MAX);
        Ok(routes.add_service(v1).add_service(v1alpha))
    },
};

fn published() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(PUBLISHED_DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // Details of errors, which tools decode by reflection.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
}

/// tonic's routes to all services.
///
/// # Errors
///
/// [`StartError::Reflection`] when the build's descriptors cannot be read.
pub(crate) fn routes(context: &ServiceContext<'_>) -> Result<Routes, StartError> {
    let mut routes = Routes::default();
    for service in SERVICES {
        routes = (service.add)(routes, context)?;
    }
    // A handler would add a `content-length`.
    let unknown =
        async |_: Request| Ok::<_, Infallible>(Status::unimplemented("").into_http::<Body>());
    let routes = routes.into_axum_router();
    let routes = routes.fallback_service(service_fn(unknown)).into();
    Ok(layered(routes, context.parts, streaming_method).prepare())
}

/// Whether a path is that of a streaming method.
pub(crate) fn is_streaming(path: &str) -> bool {
    streaming_method(path).is_some()
}

/// Whether a path is that of a method whose requests stream: their bodies may go on as long as the
/// client likes.
pub(crate) fn is_client_streaming(path: &[u8]) -> bool {
    let method = std::str::from_utf8(path).ok().and_then(streaming_method);
    method.is_some_and(|method| method.requests_stream)
}

/// The streaming method of this path.
fn streaming_method(path: &str) -> Option<&'static StreamingMethod> {
    let mut methods = SERVICES.iter().flat_map(|service| service.streaming);
    methods.find(|method| method.path == path)
}
