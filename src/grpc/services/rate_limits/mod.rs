//! `tollgate.v1.RateLimits`: checks and reservations, one at a time, in batches, and in streams.
//!
//! | file | what |
//! | --- | --- |
//! | `calls` | messages of calls |
//! | `answers` | messages of answers |
//! | `carry_out` | carries out one call |
//! | `service` | the methods |
//! | `stream` | the calls of one stream, several at once |

mod answers;
mod calls;
mod carry_out;
mod service;
mod stream;

use std::sync::Arc;

use tonic::codec::CompressionEncoding;

use self::carry_out::ApiCalls;
use crate::grpc::service::GrpcService;
use crate::grpc::streaming::StreamingMethods;
use crate::proto::tollgate::v1::rate_limits_server::RateLimitsServer;

const STREAMING: &[StreamingMethods] = &[StreamingMethods {
    path_prefix: "/tollgate.v1.RateLimits/Stream",
    requests_stream: true,
}];

/// tollgate's own API.
pub(super) const SERVICE: GrpcService = GrpcService {
    streaming: STREAMING,
    add: |routes, context| {
        let calls = ApiCalls::new(Arc::clone(context.pipeline));
        let server = RateLimitsServer::new(calls)
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(context.settings.message_size_max);
        routes.add_service(context.streaming.bound(server, STREAMING));
        Ok(())
    },
};
