//! The calls of one stream, several at once.
//!
//! A call is read only while fewer than [`IN_PROGRESS_MAX`] calls have no answer that was sent, and
//! starts when there is memory for its answer. tonic asks for an answer only when the client can
//! receive one. So a client that does not read answers soon cannot send calls, and neither of them
//! is kept in memory. After each start the other tasks of the thread run.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use prost::Message as _;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::answers::failure;
use super::carry_out::{ApiCalls, CallSize};
use crate::answer_memory::{AnswerPermit, ConnectionAnswers};
use crate::grpc::services::api_call::Caller;
use crate::grpc::services::api_error::{deadline_exceeded, internal};
use crate::grpc::yielding::yield_to_others;
use crate::proto::tollgate::v1::{Answer, Call};

/// Most calls in progress, with those whose answers were not sent yet.
const IN_PROGRESS_MAX: usize = 64;

/// An answer and its memory, if it was carried out.
type HeldAnswer = (Answer, Option<AnswerPermit>);

/// A call, once there is memory for its answer.
type WaitingCall = Pin<Box<dyn Future<Output = (Call, Result<AnswerPermit, Status>)> + Send>>;

/// The answers to the calls of a stream, in any order. Dropping it ends the calls in progress.
pub(super) struct Answers {
    service: ApiCalls,
    caller: Caller,
    connection: Arc<ConnectionAnswers>,
    /// None after the last call.
    calls: Option<Streaming<Call>>,
    /// The call that waits for memory.
    waiting: Option<WaitingCall>,
    in_progress: JoinSet<HeldAnswer>,
    /// The memory of the last answer, until tonic asks for the next one: it was sent then.
    sending: Option<AnswerPermit>,
    /// How the stream ends, where the client broke it.
    failure: Option<Status>,
    /// Ends with the deadline of the stream.
    deadline: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

// === impl Answers ===

impl Answers {
    pub(super) fn new(
        service: ApiCalls,
        caller: Caller,
        connection: Arc<ConnectionAnswers>,
        calls: Streaming<Call>,
    ) -> Self {
        let deadline = service.time_until(caller).map(|time| Box::pin(sleep(time)));
        Self {
            service,
            caller,
            connection,
            calls: Some(calls),
            waiting: None,
            in_progress: JoinSet::new(),
            sending: None,
            failure: None,
            deadline,
            ended: false,
        }
    }

    /// Starts one call that has arrived.
    fn start(&mut self, cx: &mut Context<'_>) {
        if self.in_progress.len() >= IN_PROGRESS_MAX {
            return;
        }
        if self.waiting.is_none() {
            self.read(cx);
        }
        let Some(waiting) = &mut self.waiting else {
            return;
        };
        let Poll::Ready((call, reserved)) = waiting.as_mut().poll(cx) else {
            return;
        };
        self.waiting = None;
        let (service, caller) = (self.service.clone(), self.caller);
        self.in_progress.spawn(async move {
            match reserved {
                Ok(mut permit) => {
                    let bytes_max = service.answer_bytes_max();
                    let answer = service.tagged(call, caller, bytes_max).await;
                    permit.resize(answer.encoded_len() as u64);
                    (answer, Some(permit))
                }
                Err(status) => {
                    let (tag, answer) = (call.tag, Some(failure(&status)));
                    (Answer { tag, answer }, None)
                }
            }
        });
        yield_to_others(cx);
    }

    /// Reads the next call, which then waits for memory.
    fn read(&mut self, cx: &mut Context<'_>) {
        let Some(calls) = &mut self.calls else {
            return;
        };
        match Pin::new(calls).poll_next(cx) {
            Poll::Pending => {}
            Poll::Ready(None) => self.calls = None,
            Poll::Ready(Some(Err(status))) => {
                self.calls = None;
                self.failure = Some(status);
            }
            Poll::Ready(Some(Ok(call))) => {
                let (service, caller) = (self.service.clone(), self.caller);
                let connection = Arc::clone(&self.connection);
                self.waiting = Some(Box::pin(async move {
                    let mut size = CallSize::default();
                    size.add(call.call.as_ref());
                    let reserved = service.reserve(&connection, caller, size).await;
                    (call, reserved)
                }));
            }
        }
    }

    fn end(&mut self, failure: Option<Status>) -> Poll<Option<Result<Answer, Status>>> {
        self.ended = true;
        self.calls = None;
        self.waiting = None;
        self.in_progress.abort_all();
        Poll::Ready(failure.map(Err))
    }
}

impl Stream for Answers {
    type Item = Result<Answer, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return self.end(Some(deadline_exceeded()));
        }
        self.sending = None;
        self.start(cx);
        match self.in_progress.poll_join_next(cx) {
            Poll::Ready(Some(Ok((answer, permit)))) => {
                self.sending = permit;
                Poll::Ready(Some(Ok(answer)))
            }
            // A panic, which is a defect. Other streams are not affected.
            Poll::Ready(Some(Err(_))) => self.end(Some(internal("a call ended without an answer"))),
            Poll::Ready(None) if self.calls.is_none() && self.waiting.is_none() => {
                let failure = self.failure.take();
                self.end(failure)
            }
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}
