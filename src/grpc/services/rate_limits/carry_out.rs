//! Carries out one call, for unary methods, batches and streams.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Status};

use super::answers::{answer, failure};
use super::calls::{fill_id, id_of, read};
use crate::grpc::services::api_call::Caller;
use crate::grpc::services::api_error::{api_status, invalid_call};
use crate::pipeline::{ApiRequest, Pipeline};
use crate::proto::tollgate::v1 as proto;
use crate::proto::tollgate::v1::answer::Answer;
use crate::proto::tollgate::v1::call::Call;

/// The service over the pipeline. Clones share it.
#[derive(Clone)]
pub(super) struct ApiCalls(Arc<Pipeline>);

// === impl ApiCalls ===

impl ApiCalls {
    pub(super) fn new(pipeline: Arc<Pipeline>) -> Self {
        Self(pipeline)
    }

    /// Carries out one call.
    pub(super) async fn call(&self, mut call: Call, caller: Caller) -> Result<Answer, Status> {
        fill_id(&mut call)?;
        let (request, step) = read(&call)?;
        let sent = ApiRequest {
            request,
            step,
            deadline: caller.deadline,
            parent: caller.parent,
        };
        let answered = caller.within(&self.0, async {
            let answered = self.0.call_api(sent).await;
            answered.map_err(|error| api_status(error, id_of(&call)))
        });
        let answered = answered.await?;
        Ok(answer(call, answered))
    }

    /// Carries out one call of many. One that fails does not end the others.
    pub(super) async fn tagged(&self, call: proto::Call, caller: Caller) -> proto::Answer {
        let answered = match call.call {
            None => Err(invalid_call(
                "the call is empty; send a check, peek, reserve, extend, commit or release",
            )),
            Some(sent) => self.call(sent, caller).await,
        };
        proto::Answer {
            tag: call.tag,
            answer: Some(answered.unwrap_or_else(|status| failure(&status))),
        }
    }

    /// Who made a call.
    pub(super) fn caller<T>(&self, request: &Request<T>) -> Caller {
        Caller::of(request.metadata(), &self.0)
    }

    /// The time until the caller's deadline; none without one.
    pub(super) fn time_until(&self, caller: Caller) -> Option<Duration> {
        self.0.time_until(caller.deadline)
    }
}
