//! `tollgate.v1.RateLimits`: checks and reservations, one at a time, in batches, and in streams.
//!
//! | file | what |
//! | --- | --- |
//! | `carry_out` | carries out one call, and its answer |
//! | `batch` | the calls of one message |
//! | `stream` | the calls of one stream, several at once |

mod batch;
mod carry_out;
mod stream;

use std::sync::Arc;

use tokio_stream::Empty;
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status, Streaming};

pub(in crate::grpc) use self::carry_out::ApiCalls;
use crate::grpc::service::{GrpcService, StreamingMethod};
use crate::grpc::services::api_call::internal;
use crate::grpc::services::bytes_codec::{add_streaming, add_unary};
use crate::proto::tollgate::v1 as proto;
use crate::proto::tollgate::v1::answer::Answer;
use crate::proto::tollgate::v1::call::Call;
use crate::proto::tollgate::v1::rate_limits_server::{RateLimits, RateLimitsServer};

pub(in crate::grpc) const CHECK: &str = "/tollgate.v1.RateLimits/Check";
pub(in crate::grpc) const PEEK: &str = "/tollgate.v1.RateLimits/Peek";
const BATCH: &str = "/tollgate.v1.RateLimits/Batch";
const STREAM: &str = "/tollgate.v1.RateLimits/Stream";

/// tollgate's own API.
pub(super) const SERVICE: GrpcService = GrpcService {
    streaming: &[StreamingMethod {
        path: STREAM,
        requests_stream: true,
    }],
    add: |routes, context| {
        let calls = ApiCalls {
            pipeline: Arc::clone(context.parts.pipeline),
            answers: Arc::clone(context.parts.answers),
        };
        let message_size_max = context.parts.settings.message_size_max;
        let service = RateLimitsServer::new(calls.clone())
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(message_size_max);
        let router = routes.add_service(service).into_axum_router();
        // As bytes: the generated service would decode a whole batch, and keep all of its answers
        // until the last one is known.
        let router = add_unary(router, BATCH, calls.clone(), message_size_max);
        Ok(add_streaming(router, STREAM, calls, message_size_max).into())
    },
};

/// The result of a call that came alone. Each call has one kind of answer.
macro_rules! alone {
    ($service:expr, $request:expr, $call:ident, $kind:ident) => {{
        let (answered, permit) = $service.alone($request, Call::$call).await?;
        let Answer::$kind(answer) = answered else {
            return Err(internal("the answer is of another kind"));
        };
        let mut response = Response::new(answer);
        response.extensions_mut().insert(permit);
        Ok(response)
    }};
}

// === impl ApiCalls ===

/// The methods, except `Batch` (`batch`) and `Stream` (`stream`).
#[tonic::async_trait]
impl RateLimits for ApiCalls {
    async fn check(
        &self,
        request: Request<proto::CheckRequest>,
    ) -> Result<Response<proto::CheckResponse>, Status> {
        alone!(self, request, Check, Check)
    }

    async fn peek(
        &self,
        request: Request<proto::CheckRequest>,
    ) -> Result<Response<proto::CheckResponse>, Status> {
        alone!(self, request, Peek, Check)
    }

    async fn reserve(
        &self,
        request: Request<proto::ReserveRequest>,
    ) -> Result<Response<proto::ReserveResponse>, Status> {
        alone!(self, request, Reserve, Reserve)
    }

    async fn extend(
        &self,
        request: Request<proto::ExtendRequest>,
    ) -> Result<Response<proto::SettleResponse>, Status> {
        alone!(self, request, Extend, Settle)
    }

    async fn commit(
        &self,
        request: Request<proto::CommitRequest>,
    ) -> Result<Response<proto::SettleResponse>, Status> {
        alone!(self, request, Commit, Settle)
    }

    async fn release(
        &self,
        request: Request<proto::ReleaseRequest>,
    ) -> Result<Response<proto::SettleResponse>, Status> {
        alone!(self, request, Release, Settle)
    }

    async fn lease(
        &self,
        request: Request<proto::LeaseRequest>,
    ) -> Result<Response<proto::LeaseResponse>, Status> {
        alone!(self, request, Lease, Lease)
    }

    async fn r#return(
        &self,
        request: Request<proto::ReturnRequest>,
    ) -> Result<Response<proto::ReturnResponse>, Status> {
        alone!(self, request, GiveBack, GiveBack)
    }

    async fn batch(
        &self,
        _: Request<proto::BatchRequest>,
    ) -> Result<Response<proto::BatchResponse>, Status> {
        Err(internal("another route carries out batches"))
    }

    type StreamStream = Empty<Result<proto::Answer, Status>>;

    async fn stream(
        &self,
        _: Request<Streaming<proto::Call>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        Err(internal("another route carries out streams"))
    }
}
