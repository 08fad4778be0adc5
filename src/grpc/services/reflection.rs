//! `grpc.reflection`, in both of its versions: tools such as grpcurl read the services from it.

use tonic::codec::CompressionEncoding;
use tonic_reflection::server::Builder;

use crate::grpc::service::GrpcService;
use crate::grpc::streaming::StreamingMethods;
use crate::proto::PUBLISHED_DESCRIPTORS;

/// The largest request, in bytes: a symbol's name, and many calls may be open.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

const STREAMING: &[StreamingMethods] = &[StreamingMethods {
    path_prefix: "/grpc.reflection.",
    requests_stream: true,
}];

/// Version 1.
pub(super) const V1: GrpcService = GrpcService {
    streaming: STREAMING,
    add: |routes, context| {
        let server = published()
            .build_v1()?
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        routes.add_service(context.streaming.bound(server, STREAMING));
        Ok(())
    },
};

/// Version 1 alpha, which older tools use.
pub(super) const V1ALPHA: GrpcService = GrpcService {
    streaming: STREAMING,
    add: |routes, context| {
        let server = published()
            .build_v1alpha()?
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        routes.add_service(context.streaming.bound(server, STREAMING));
        Ok(())
    },
};

fn published() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(PUBLISHED_DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // Details of errors, which tools decode by reflection.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
}
