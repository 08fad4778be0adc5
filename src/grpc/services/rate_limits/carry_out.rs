//! Carries out one call, for unary methods, batches and streams.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tonic::{Request, Status};

use crate::answer_memory::{AnswerMemory, AnswerPermit, ConnectionAnswers};
use crate::api_calls::{answer, descriptors_of, fill_id, id_of, read};
use crate::grpc::services::api_call::{
    Caller, answer_memory_full, api_status, field_status, internal, invalid_call,
};
use crate::pipeline::{ApiRequest, BatchProgress, Pipeline};
use crate::proto::tollgate::v1 as proto;
use crate::proto::tollgate::v1::answer::Answer;
use crate::proto::tollgate::v1::call::Call;

/// The most bytes that an answer of many has beside itself.
const TAGGED_BYTES: usize = 24;

/// The service over the pipeline. Clones share it.
#[derive(Clone)]
pub(in crate::grpc) struct ApiCalls {
    pub(in crate::grpc) pipeline: Arc<Pipeline>,
    pub(in crate::grpc) answers: Arc<AnswerMemory>,
}

/// How much memory calls need.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallSize {
    pub(super) calls: usize,
    descriptors: u64,
    /// What they need themselves.
    pub(super) request_bytes: u64,
}

/// The answer to a call that failed: the fields of its status.
pub(super) fn failure(status: &Status) -> Answer {
    let details = tonic_types::pb::Status::decode(status.details());
    Answer::Failure(proto::Failure {
        code: i32::from(status.code()),
        message: status.message().to_owned(),
        // They were encoded by this process.
        details: details.map(|status| status.details).unwrap_or_default(),
    })
}

// === impl CallSize ===

impl CallSize {
    pub(super) fn of(call: &Call) -> Self {
        let mut size = Self::default();
        size.add(Some(call));
        size
    }

    pub(super) fn add(&mut self, call: Option<&Call>) {
        let descriptors = call.map_or(&[][..], descriptors_of);
        self.calls = self.calls.saturating_add(1);
        self.descriptors = self.descriptors.saturating_add(descriptors.len() as u64);
        let of_entry = |entry: &proto::Entry| {
            size_of::<proto::Entry>()
                .saturating_add(entry.key.len())
                .saturating_add(entry.value.len())
        };
        for descriptor in descriptors {
            let entries = descriptor.entries.iter().map(of_entry);
            let bytes = entries.fold(size_of::<proto::Descriptor>(), usize::saturating_add);
            self.request_bytes = self.request_bytes.saturating_add(bytes as u64);
        }
    }
}

// === impl ApiCalls ===

impl ApiCalls {
    /// Carries out one call that came alone. Its answer holds memory until it is sent.
    pub(super) async fn alone<T>(
        &self,
        request: Request<T>,
        call: impl FnOnce(T) -> Call,
    ) -> Result<(Answer, Arc<AnswerPermit>), Status> {
        let (caller, connection) = (self.caller(&request), self.connection(&request));
        self.plain(call(request.into_inner()), caller, &connection)
            .await
    }

    /// Carries out one call of this caller.
    pub(in crate::grpc) async fn plain(
        &self,
        call: Call,
        caller: Caller,
        connection: &Arc<ConnectionAnswers>,
    ) -> Result<(Answer, Arc<AnswerPermit>), Status> {
        let size = CallSize::of(&call);
        let mut permit = self.reserve(connection, caller, size).await?;
        let answer = self.call(call, caller, self.answer_bytes_max()).await?;
        permit.resize(answer.encoded_len() as u64);
        Ok((answer, Arc::new(permit)))
    }

    /// Carries out one call whose answer may have so many bytes.
    async fn call(
        &self,
        mut call: Call,
        caller: Caller,
        answer_bytes_max: usize,
    ) -> Result<Answer, Status> {
        fill_id(&mut call).map_err(internal)?;
        let (request, operation) = read(&call).map_err(field_status)?;
        let sent = ApiRequest {
            request,
            operation,
            id: id_of(&call),
            deadline: caller.deadline,
            parent: caller.parent,
        };
        let answered = caller.within(&self.pipeline, async {
            let answered = self.pipeline.carry_out(sent, answer_bytes_max).await;
            answered.map_err(|error| api_status(error, id_of(&call)))
        });
        let answered = answered.await?;
        Ok(answer(call, answered))
    }

    /// Carries out one call of many. One that fails does not end the others.
    pub(super) async fn tagged(
        &self,
        call: proto::Call,
        caller: Caller,
        answer_bytes_max: usize,
    ) -> proto::Answer {
        let answered = match call.call {
            None => Err(invalid_call(
                "the call is empty; send a check, peek, reserve, extend, commit, release, lease or return",
            )),
            Some(sent) => self.call(sent, caller, answer_bytes_max).await,
        };
        let answer = answered.unwrap_or_else(|status| {
            let failed = failure(&status);
            let bytes = failed.encoded_len().saturating_add(TAGGED_BYTES);
            if bytes <= answer_bytes_max {
                return failed;
            }
            failure(&api_status(self.pipeline.answer_too_large().into(), ""))
        });
        proto::Answer {
            tag: call.tag,
            answer: Some(answer),
        }
    }

    /// Takes memory for answers, and waits for it until the caller's deadline.
    pub(super) async fn reserve(
        &self,
        connection: &Arc<ConnectionAnswers>,
        caller: Caller,
        size: CallSize,
    ) -> Result<AnswerPermit, Status> {
        let answer_bytes = self
            .pipeline
            .answers_bytes_max(size.calls as u64, size.descriptors);
        let answer_bytes = answer_bytes.min(self.answer_bytes_max() as u64);
        let reserved = caller.within(&self.pipeline, async {
            let reserved = connection.reserve(answer_bytes, size.request_bytes);
            reserved.await.map_err(answer_memory_full)
        });
        reserved.await
    }

    /// Who made a call.
    pub(super) fn caller<T>(&self, request: &Request<T>) -> Caller {
        Caller::of(request.metadata(), &self.pipeline)
    }

    /// The memory of the connection that a call came by.
    pub(super) fn connection<T>(&self, request: &Request<T>) -> Arc<ConnectionAnswers> {
        let connection = request.extensions().get::<Arc<ConnectionAnswers>>();
        connection.map_or_else(|| self.answers.connection(), Arc::clone)
    }

    /// Begins a batch of so many calls.
    pub(super) fn begin_batch(&self, calls: usize) -> Result<BatchProgress, Status> {
        let progress = self.pipeline.begin_batch(calls);
        progress.map_err(|error| api_status(error, ""))
    }

    /// The largest answer to a call or a batch.
    pub(super) fn answer_bytes_max(&self) -> usize {
        self.pipeline.answer_bytes_max()
    }

    /// The time until the caller's deadline; none without one.
    pub(super) fn time_until(&self, caller: Caller) -> Option<Duration> {
        self.pipeline.time_until(caller.deadline)
    }
}
