//! The methods, except `Batch` (`batch`).

use std::sync::Arc;

use tonic::{Request, Response, Status, Streaming};

use super::carry_out::ApiCalls;
use super::stream::Answers;
use crate::grpc::services::api_error::internal;
use crate::proto::tollgate::v1 as proto;
use crate::proto::tollgate::v1::answer::Answer;
use crate::proto::tollgate::v1::call::Call;
use crate::proto::tollgate::v1::rate_limits_server::RateLimits;

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

    async fn batch(
        &self,
        _: Request<proto::BatchRequest>,
    ) -> Result<Response<proto::BatchResponse>, Status> {
        Err(internal("another service carries out batches"))
    }

    type StreamStream = Answers;

    async fn stream(
        &self,
        request: Request<Streaming<proto::Call>>,
    ) -> Result<Response<Answers>, Status> {
        let (caller, connection) = (self.caller(&request), self.connection(&request));
        // Each answer holds its own memory.
        let permit = connection.take(0);
        let answers = Answers::new(self.clone(), caller, connection, request.into_inner());
        let mut response = Response::new(answers);
        if let Some(permit) = permit {
            response.extensions_mut().insert(Arc::new(permit));
        }
        Ok(response)
    }
}
