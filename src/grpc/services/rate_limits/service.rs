//! Carries out calls, one or many.

use tonic::{Request, Response, Status, Streaming};

use super::carry_out::ApiCalls;
use super::stream::Answers;
use crate::grpc::services::api_error::{internal, invalid_field};
use crate::proto::tollgate::v1 as proto;
use crate::proto::tollgate::v1::answer::Answer;
use crate::proto::tollgate::v1::call::Call;
use crate::proto::tollgate::v1::rate_limits_server::RateLimits;

/// Most calls of a batch.
const CALLS_MAX: usize = 1_000;

/// The answer of this kind. Each call has one kind of answer.
macro_rules! only {
    ($answered:expr, $kind:ident) => {
        match $answered {
            Answer::$kind(answer) => Ok(Response::new(answer)),
            _ => Err(internal("the answer is of another kind")),
        }
    };
}

// === impl ApiCalls ===

#[tonic::async_trait]
impl RateLimits for ApiCalls {
    async fn check(
        &self,
        request: Request<proto::CheckRequest>,
    ) -> Result<Response<proto::CheckResponse>, Status> {
        let caller = self.caller(&request);
        only!(
            self.call(Call::Check(request.into_inner()), caller).await?,
            Check
        )
    }

    async fn peek(
        &self,
        request: Request<proto::CheckRequest>,
    ) -> Result<Response<proto::CheckResponse>, Status> {
        let caller = self.caller(&request);
        only!(
            self.call(Call::Peek(request.into_inner()), caller).await?,
            Check
        )
    }

    async fn reserve(
        &self,
        request: Request<proto::ReserveRequest>,
    ) -> Result<Response<proto::ReserveResponse>, Status> {
        let caller = self.caller(&request);
        only!(
            self.call(Call::Reserve(request.into_inner()), caller)
                .await?,
            Reserve
        )
    }

    async fn extend(
        &self,
        request: Request<proto::ExtendRequest>,
    ) -> Result<Response<proto::SettleResponse>, Status> {
        let caller = self.caller(&request);
        only!(
            self.call(Call::Extend(request.into_inner()), caller)
                .await?,
            Settle
        )
    }

    async fn commit(
        &self,
        request: Request<proto::CommitRequest>,
    ) -> Result<Response<proto::SettleResponse>, Status> {
        let caller = self.caller(&request);
        only!(
            self.call(Call::Commit(request.into_inner()), caller)
                .await?,
            Settle
        )
    }

    async fn release(
        &self,
        request: Request<proto::ReleaseRequest>,
    ) -> Result<Response<proto::SettleResponse>, Status> {
        let caller = self.caller(&request);
        only!(
            self.call(Call::Release(request.into_inner()), caller)
                .await?,
            Settle
        )
    }

    async fn batch(
        &self,
        request: Request<proto::BatchRequest>,
    ) -> Result<Response<proto::BatchResponse>, Status> {
        let caller = self.caller(&request);
        let calls = request.into_inner().calls;
        if calls.len() > CALLS_MAX {
            let why = format!("has {} calls; send at most {CALLS_MAX}", calls.len());
            return Err(invalid_field("calls", &why));
        }
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            answers.push(self.tagged(call, caller).await);
        }
        Ok(Response::new(proto::BatchResponse { answers }))
    }

    type StreamStream = Answers;

    async fn stream(
        &self,
        request: Request<Streaming<proto::Call>>,
    ) -> Result<Response<Answers>, Status> {
        let caller = self.caller(&request);
        let answers = Answers::new(self.clone(), caller, request.into_inner());
        Ok(Response::new(answers))
    }
}
