//! The calls of one stream, several at once.
//!
//! A call is read only while fewer than [`IN_PROGRESS_MAX`] calls have no answer that was sent, and
//! none waits for memory for its answer. tonic asks for an answer only when the client can receive
//! one. So a client that does not read answers soon cannot send calls, and neither of them is kept
//! in memory. Answers wait encoded. After each start the other tasks of the thread run.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use prost::Message as _;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;
use tonic::server::StreamingService;
use tonic::{Request, Response, Status, Streaming};

use super::batch::malformed;
use super::carry_out::{ApiCalls, CallSize, failure};
use crate::answer_memory::{AnswerPermit, ConnectionAnswers};
use crate::grpc::context::yield_to_others;
use crate::grpc::services::api_call::{Caller, deadline_exceeded, internal};
use crate::proto::tollgate::v1::{Answer, Call};

/// Most calls in progress, with those whose answers were not sent yet.
const IN_PROGRESS_MAX: usize = 64;

/// An encoded answer and its memory, if it was carried out.
type HeldAnswer = (Bytes, Option<AnswerPermit>);

/// The answers to the calls of a stream, in any order. Dropping it ends the calls in progress.
pub(in crate::grpc) struct Answers {
    service: ApiCalls,
    caller: Caller,
    connection: Arc<ConnectionAnswers>,
    /// None after the last call.
    calls: Option<Streaming<Bytes>>,
    /// Ends when the last call that started has memory.
    waiting: Option<oneshot::Receiver<Infallible>>,
    in_progress: JoinSet<HeldAnswer>,
    /// The memory of the last answer, until tonic asks for the next one. tonic then has at most 32
    /// KiB of the stream that the connection has not taken.
    sending: Option<AnswerPermit>,
    /// How the stream ends, where the client broke it.
    failure: Option<Status>,
    /// Ends with the deadline of the stream.
    deadline: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

// === impl Answers ===

impl Answers {
    /// Starts one call that has arrived. It waits for memory in a task: a call that is not polled
    /// would keep its place before the other calls of the connection.
    fn start(&mut self, cx: &mut Context<'_>) {
        if self.in_progress.len() >= IN_PROGRESS_MAX {
            return;
        }
        if let Some(waiting) = &mut self.waiting {
            if Pin::new(waiting).poll(cx).is_pending() {
                return;
            }
            self.waiting = None;
        }
        let Some(call) = self.read(cx) else {
            return;
        };
        let (service, caller) = (self.service.clone(), self.caller);
        let connection = Arc::clone(&self.connection);
        let (has_memory, waiting) = oneshot::channel::<Infallible>();
        self.waiting = Some(waiting);
        self.in_progress.spawn(async move {
            let mut size = CallSize::default();
            size.add(call.call.as_ref());
            let reserved = service.reserve(&connection, caller, size).await;
            drop(has_memory);
            match reserved {
                Ok(mut permit) => {
                    let bytes_max = service.answer_bytes_max();
                    let answer = service.tagged(call, caller, bytes_max).await;
                    let answer = Bytes::from(answer.encode_to_vec());
                    permit.resize(answer.len() as u64);
                    (answer, Some(permit))
                }
                Err(status) => {
                    let (tag, answer) = (call.tag, Some(failure(&status)));
                    (Answer { tag, answer }.encode_to_vec().into(), None)
                }
            }
        });
        yield_to_others(cx);
    }

    /// Reads the next call.
    fn read(&mut self, cx: &mut Context<'_>) -> Option<Call> {
        let call = match Pin::new(self.calls.as_mut()?).poll_next(cx) {
            Poll::Pending => return None,
            Poll::Ready(call) => call,
        };
        match call.map(|call| Call::decode(call?).map_err(malformed)) {
            Some(Ok(call)) => Some(call),
            ended => {
                self.calls = None;
                self.failure = ended.and_then(Result::err);
                None
            }
        }
    }

    fn end(&mut self, failure: Option<Status>) -> Poll<Option<Result<Bytes, Status>>> {
        self.ended = true;
        self.calls = None;
        self.in_progress.abort_all();
        Poll::Ready(failure.map(Err))
    }
}

impl StreamingService<Bytes> for ApiCalls {
    type Response = Bytes;
    type ResponseStream = Answers;
    type Future = Ready<Result<Response<Answers>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let (caller, connection) = (self.caller(&request), self.connection(&request));
        // Each answer holds its own memory.
        let permit = connection.no_bytes();
        let answers = Answers {
            service: self.clone(),
            caller,
            connection,
            calls: Some(request.into_inner()),
            waiting: None,
            in_progress: JoinSet::new(),
            sending: None,
            failure: None,
            deadline: self.time_until(caller).map(|time| Box::pin(sleep(time))),
            ended: false,
        };
        let mut response = Response::new(answers);
        response.extensions_mut().insert(Arc::new(permit));
        ready(Ok(response))
    }
}

impl Stream for Answers {
    type Item = Result<Bytes, Status>;

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
            Poll::Ready(None) if self.calls.is_none() => {
                let failure = self.failure.take();
                self.end(failure)
            }
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}
