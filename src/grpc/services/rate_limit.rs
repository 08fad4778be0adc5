//! Envoy's rate limit service, for calls that the fast path does not support: compressed messages,
//! messages in several frames, and malformed ones. They are submitted as tasks' requests
//! ([`Pipeline::call`]), as `/json` does.

use std::sync::Arc;

use prost::Message as _;
use tollgate_http2::grpc;
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status};

use crate::grpc::layers::Decoded;
use crate::grpc::service::GrpcService;
use crate::grpc::services::api_call::plain_status;
use crate::pipeline::Pipeline;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use crate::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::tracing::TraceParent;

/// `envoy.service.ratelimit.v3.RateLimitService`. Responses stay uncompressed: gRPC leaves that to
/// the server, and they are short.
pub(super) const SERVICE: GrpcService = GrpcService {
    streaming: &[],
    add: |routes, context| {
        let server = RateLimitServiceServer::new(UnusualCalls(Arc::clone(context.parts.pipeline)))
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(context.parts.settings.message_size_max);
        Ok(routes.add_service(server))
    },
};

/// The service over the pipeline.
struct UnusualCalls(Arc<Pipeline>);

// === impl UnusualCalls ===

#[tonic::async_trait]
impl RateLimitService for UnusualCalls {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        if let Some(decoded) = request.extensions().get::<Decoded>() {
            decoded.set();
        }
        let headers = request.metadata();
        let timeout_us = headers
            .get("grpc-timeout")
            .and_then(|header| grpc::timeout_us(header.as_bytes()));
        let parent = self
            .0
            .is_tracing()
            .then(|| TraceParent::of(headers.as_ref()))
            .flatten();
        let message = request.get_ref().encode_to_vec();
        let response = self.0.call(message, timeout_us, parent).await;
        let response = response.map_err(|error| plain_status(&error))?;
        let response = RateLimitResponse::decode(&*response.message)
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(response))
    }
}
