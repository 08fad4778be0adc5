//! Batching: concurrent checks over one bidirectional stream, whose answers are matched by tag.
//!
//! A stream that fails fails its checks. None is sent again, because it may have been charged.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use http::uri::PathAndQuery;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use crate::Error;
use crate::error::CallError;
use crate::generated::tollgate::{Answer, Call, CheckRequest, CheckResponse, answer, call};
use crate::protocol;
use crate::transport::Transport;

/// Most calls in progress on the stream.
const MAX_IN_PROGRESS: usize = 64;
/// Most callers that wait for a place on the stream.
const MAX_QUEUED: usize = 1_024;

/// Sends checks over the current stream, and opens a new one after a failure.
pub(crate) struct CheckStream {
    transport: Transport,
    /// One permit for each call in progress, and one for each caller that waits.
    places: Semaphore,
    queue: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_tag: u64,
    closed: bool,
    current: Option<(Arc<OpenStream>, JoinHandle<()>)>,
}

/// One stream, and the calls on it.
#[derive(Default)]
struct OpenStream {
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    /// Calls that are not sent yet. Each has a caller in `callers`.
    unsent: VecDeque<Call>,
    callers: HashMap<u64, oneshot::Sender<Result<Answer, Status>>>,
    /// The task that sends, while it waits for calls.
    sender: Option<Waker>,
    /// Why the stream has ended.
    failed: Option<Status>,
}

impl CheckStream {
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            transport,
            places: Semaphore::new(MAX_IN_PROGRESS),
            queue: Semaphore::new(MAX_QUEUED),
            state: Mutex::default(),
        }
    }

    /// Sends a check, and waits for its answer. A caller that drops this gives it up.
    pub(crate) async fn check(&self, request: CheckRequest) -> Result<CheckResponse, CallError> {
        let _place = self.enter().await?;
        let (stream, tag) = self.current()?;
        let (caller, answer) = oneshot::channel();
        let call = Call {
            tag,
            call: Some(call::Call::Check(request)),
        };
        stream.add(call, caller)?;
        let _entry = Entry { stream, tag };
        match answer.await {
            Ok(answer) => Ok(check_response(answer?)?),
            Err(_) => Err(ended().into()),
        }
    }

    /// Waits for a place on the stream, if the queue is not full.
    async fn enter(&self) -> Result<SemaphorePermit<'_>, CallError> {
        match self.places.try_acquire() {
            Ok(place) => return Ok(place),
            Err(TryAcquireError::Closed) => return Err(closed().into()),
            Err(TryAcquireError::NoPermits) => {}
        }
        let _queued = self.queue.try_acquire().map_err(|_| CallError::QueueFull)?;
        let place = self.places.acquire().await;
        place.map_err(|_| closed().into())
    }

    /// The current stream, a new one after a failure, and the tag of the next call. It does not
    /// wait for the connection.
    fn current(&self) -> Result<(Arc<OpenStream>, u64), Status> {
        let mut state = self.lock();
        if state.closed {
            return Err(closed());
        }
        state.next_tag += 1;
        let tag = state.next_tag;
        if let Some((stream, _)) = &state.current
            && stream.lock().failed.is_none()
        {
            return Ok((Arc::clone(stream), tag));
        }
        let stream = Arc::new(OpenStream::default());
        let task = tokio::spawn(run(self.transport.clone(), Arc::clone(&stream)));
        state.current = Some((Arc::clone(&stream), task));
        Ok((stream, tag))
    }

    /// Ends the stream, and fails its calls and those that wait.
    pub(crate) async fn close(&self) {
        self.places.close();
        let task = self.end();
        if let Some(task) = task {
            let _aborted = task.await;
        }
    }

    fn end(&self) -> Option<JoinHandle<()>> {
        let mut state = self.lock();
        state.closed = true;
        let (stream, task) = state.current.take()?;
        task.abort();
        stream.fail(&closed());
        Some(task)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CheckStream {
    fn drop(&mut self) {
        self.end();
    }
}

impl OpenStream {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call to those that are to be sent.
    fn add(
        &self,
        call: Call,
        caller: oneshot::Sender<Result<Answer, Status>>,
    ) -> Result<(), Status> {
        let mut calls = self.lock();
        if let Some(status) = &calls.failed {
            return Err(status.clone());
        }
        calls.callers.insert(call.tag, caller);
        calls.unsent.push_back(call);
        let sender = calls.sender.take();
        drop(calls);
        if let Some(sender) = sender {
            sender.wake();
        }
        Ok(())
    }

    /// Hands an answer to its caller, unless the caller has given up.
    fn answer(&self, answer: Answer) {
        let caller = self.lock().callers.remove(&answer.tag);
        if let Some(caller) = caller {
            let _gone = caller.send(Ok(answer));
        }
    }

    /// Removes a call. If it is not sent yet, it never is.
    fn remove(&self, tag: u64) {
        let mut calls = self.lock();
        if calls.callers.remove(&tag).is_some() {
            calls.unsent.retain(|call| call.tag != tag);
        }
    }

    /// Ends the stream, and fails its calls.
    fn fail(&self, status: &Status) {
        let mut calls = self.lock();
        if calls.failed.is_some() {
            return;
        }
        calls.failed = Some(status.clone());
        calls.unsent.clear();
        let callers = std::mem::take(&mut calls.callers);
        let sender = calls.sender.take();
        drop(calls);
        for caller in callers.into_values() {
            let _gone = caller.send(Err(status.clone()));
        }
        if let Some(sender) = sender {
            sender.wake();
        }
    }
}

/// Removes the call of a caller that stops waiting.
struct Entry {
    stream: Arc<OpenStream>,
    tag: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.stream.remove(self.tag);
    }
}

/// The calls of a stream, as they are sent.
struct Unsent {
    stream: Arc<OpenStream>,
}

impl Stream for Unsent {
    type Item = Call;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Call>> {
        let mut calls = self.stream.lock();
        if calls.failed.is_some() {
            return Poll::Ready(None);
        }
        if let Some(call) = calls.unsent.pop_front() {
            return Poll::Ready(Some(call));
        }
        calls.sender = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Fails the stream when its task ends, also by the end of its runtime.
struct FailOnDrop {
    stream: Arc<OpenStream>,
}

impl Drop for FailOnDrop {
    fn drop(&mut self) {
        self.stream.fail(&ended());
    }
}

/// The task of a stream: hands out its answers until it ends.
async fn run(transport: Transport, stream: Arc<OpenStream>) {
    let guard = FailOnDrop { stream };
    let status = receive(transport, &guard.stream).await;
    guard.stream.fail(&status);
}

async fn receive(transport: Transport, stream: &Arc<OpenStream>) -> Status {
    let unsent = Unsent {
        stream: Arc::clone(stream),
    };
    let path = PathAndQuery::from_static(protocol::STREAM);
    let codec = ProstCodec::<Call, Answer>::default();
    let mut grpc = Grpc::new(transport);
    let opened = grpc
        .streaming(tonic::Request::new(unsent), path, codec)
        .await;
    drop(grpc);
    let mut answers = match opened {
        Ok(response) => response.into_inner(),
        Err(status) => return status,
    };
    loop {
        match answers.message().await {
            Ok(Some(answer)) => stream.answer(answer),
            Ok(None) => return ended(),
            Err(status) => return status,
        }
    }
}

fn check_response(answer: Answer) -> Result<CheckResponse, Status> {
    match answer.answer {
        Some(answer::Answer::Check(response)) => Ok(response),
        Some(answer::Answer::Failure(failure)) => match Code::from(failure.code) {
            Code::Ok => Err(Status::internal("the answer is a failure with the code OK")),
            code => Err(Status::new(code, failure.message)),
        },
        _ => Err(Status::internal("the answer is not one of a check")),
    }
}

fn ended() -> Status {
    Status::unavailable("the stream has ended")
}

fn closed() -> Status {
    Status::unavailable(Error::Closed.to_string())
}

#[cfg(test)]
mod tests {
    use super::{Call, OpenStream, ended, oneshot};
    use crate::generated::tollgate::Answer;

    fn call(tag: u64) -> Call {
        Call { tag, call: None }
    }

    #[test]
    fn answers_are_matched_by_tag() {
        let stream = OpenStream::default();
        let (first, mut first_answer) = oneshot::channel();
        let (second, mut second_answer) = oneshot::channel();
        stream.add(call(1), first).expect("open");
        stream.add(call(2), second).expect("open");
        for tag in [2, 3, 1] {
            stream.answer(Answer { tag, answer: None });
        }
        let tag = |answer: Answer| answer.tag;
        assert_eq!(first_answer.try_recv().unwrap().map(tag).ok(), Some(1));
        assert_eq!(second_answer.try_recv().unwrap().map(tag).ok(), Some(2));
    }

    #[test]
    fn a_caller_that_gives_up_leaves_nothing() {
        let stream = OpenStream::default();
        stream.add(call(1), oneshot::channel().0).expect("open");
        stream.add(call(2), oneshot::channel().0).expect("open");
        stream.lock().unsent.pop_front(); // the first is sent
        stream.remove(1);
        stream.remove(2);
        assert!(stream.lock().unsent.is_empty());
        assert!(stream.lock().callers.is_empty());
    }

    #[test]
    fn a_failed_stream_takes_no_call() {
        let stream = OpenStream::default();
        let (caller, mut answer) = oneshot::channel();
        stream.add(call(1), caller).expect("open");
        stream.fail(&ended());
        assert!(answer.try_recv().expect("a result").is_err());
        assert!(stream.lock().unsent.is_empty());
        assert!(stream.add(call(2), oneshot::channel().0).is_err());
    }
}
