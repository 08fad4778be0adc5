//! `grpc.health.v1.Health`.

use tonic::codec::CompressionEncoding;
use tonic_health::pb::health_server::HealthServer;

use crate::grpc::service::GrpcService;
use crate::grpc::streaming::StreamingMethods;

/// The largest request, in bytes: a service's name, and many Watch calls may be open.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

const STREAMING: &[StreamingMethods] = &[StreamingMethods {
    path_prefix: "/grpc.health.v1.Health/Watch",
    requests_stream: false,
}];

/// Health, for the whole server and for the rate limit service.
pub(super) const SERVICE: GrpcService = GrpcService {
    streaming: STREAMING,
    add: |routes, context| {
        let server = HealthServer::new(context.health.service())
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        routes.add_service(context.streaming.bound(server, STREAMING));
        Ok(())
    },
};
