//! `tollgate.v1.RateLimits`: checks and reservations, one at a time, in batches, and in streams.
//!
//! | file | what |
//! | --- | --- |
//! | `calls` | messages of calls |
//! | `answers` | messages of answers |
//! | `carry_out` | carries out one call |
//! | `service` | the methods |
//! | `batch` | the calls of one message |
//! | `stream` | the calls of one stream, several at once |

mod answers;
mod batch;
mod calls;
mod carry_out;
mod service;
mod stream;

use std::sync::Arc;

use tonic::codec::CompressionEncoding;

use self::batch::WithBatches;
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
        let message_size_max = context.settings.message_size_max;
        let service = RateLimitsServer::new(calls.clone())
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(message_size_max);
        let server = WithBatches {
            service,
            calls,
            message_size_max,
        };
        routes.add_service(context.streaming.bound(server, STREAMING));
        Ok(())
    },
};
