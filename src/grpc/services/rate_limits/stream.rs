//! The calls of one stream, several at once.
//!
//! A call is read only while fewer than [`IN_PROGRESS_MAX`] calls have no answer that was sent.
//! tonic asks for an answer only when the client can receive one. So a client that does not read
//! answers soon cannot send calls, and neither of them is kept in memory.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::carry_out::ApiCalls;
use crate::grpc::services::api_call::Caller;
use crate::grpc::services::api_error::{deadline_exceeded, internal};
use crate::proto::tollgate::v1::{Answer, Call};

/// Most calls in progress, with those whose answers were not sent yet.
const IN_PROGRESS_MAX: usize = 64;

/// The answers to the calls of a stream, in any order. Dropping it ends the calls in progress.
pub(super) struct Answers {
    service: ApiCalls,
    caller: Caller,
    /// None after the last call.
    calls: Option<Streaming<Call>>,
    in_progress: JoinSet<Answer>,
    /// How the stream ends, where the client broke it.
    failure: Option<Status>,
    /// Ends with the deadline of the stream.
    deadline: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

// === impl Answers ===

impl Answers {
    pub(super) fn new(service: ApiCalls, caller: Caller, calls: Streaming<Call>) -> Self {
        let deadline = service.time_until(caller).map(|time| Box::pin(sleep(time)));
        Self {
            service,
            caller,
            calls: Some(calls),
            in_progress: JoinSet::new(),
            failure: None,
            deadline,
            ended: false,
        }
    }

    /// Starts the calls that have arrived.
    fn start(&mut self, cx: &mut Context<'_>) {
        while self.in_progress.len() < IN_PROGRESS_MAX {
            let Some(calls) = &mut self.calls else {
                return;
            };
            match Pin::new(calls).poll_next(cx) {
                Poll::Pending => return,
                Poll::Ready(None) => self.calls = None,
                Poll::Ready(Some(Err(status))) => {
                    self.calls = None;
                    self.failure = Some(status);
                }
                Poll::Ready(Some(Ok(call))) => {
                    let (service, caller) = (self.service.clone(), self.caller);
                    self.in_progress
                        .spawn(async move { service.tagged(call, caller).await });
                }
            }
        }
    }

    fn end(&mut self, failure: Option<Status>) -> Poll<Option<Result<Answer, Status>>> {
        self.ended = true;
        self.calls = None;
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
        self.start(cx);
        match self.in_progress.poll_join_next(cx) {
            Poll::Ready(Some(Ok(answer))) => Poll::Ready(Some(Ok(answer))),
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
