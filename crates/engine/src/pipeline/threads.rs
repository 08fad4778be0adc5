//! Requests of tasks, on their way to a thread that decides.
//!
//! The fast path hands its calls to the batcher of its own thread. Everybody else
//! ([`Pipeline::call`], and the API's calls) submits a request and waits for the reply: to the
//! batcher of the thread that the task runs on, if it has one, else to the threads in turn.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};
use tollgate_limiter::Code;

use crate::ended::RequestError;
use crate::pipeline::Pipeline;
use crate::pipeline::api_call::{ApiCall, ApiOutcomes};
use crate::pipeline::encode::EncodedResponse;
use tollgate_store::{Deadline, StoreError, TentativeTake};
use tollgate_telemetry::tracing::TraceParent;

/// How many requests of other threads wait for one that decides. Their senders wait for space.
/// There are far fewer of them, because listeners bound them.
const WAITING_MAX: usize = 1_024;

/// A request of a task.
pub struct Submission {
    /// An encoded `RateLimitRequest`, each field once.
    pub(crate) message: Vec<u8>,
    /// What a call of the API asks beside it.
    pub(crate) api: Option<Box<ApiCall>>,
    pub(crate) deadline: Deadline,
    pub(crate) parent: Option<TraceParent>,
    /// When it was submitted, in the clock's uptime.
    pub(crate) submitted_us: u64,
    /// Whether it takes turns with the other tasks of its thread from the beginning.
    pub(crate) is_long: bool,
    pub(crate) reply: TaskReply,
}

/// Where the answer to a task's request goes.
pub(crate) enum TaskReply {
    Call(oneshot::Sender<TaskAnswer<CallResponse>>),
    Api(oneshot::Sender<TaskAnswer<ApiOutcomes>>),
}

/// The answer to a task's request, on its way to the task.
#[derive(Debug)]
pub(crate) struct TaskAnswer<T> {
    pub(super) answer: Result<T, RequestError>,
    /// What a request that passes took tentatively. It goes back if the task never gets the answer.
    pub(super) taken: Option<TentativeTake>,
}

/// The response to one request.
#[derive(Clone, Debug)]
pub struct CallResponse {
    /// The overall code.
    pub code: Code,
    /// An encoded `RateLimitResponse`.
    pub message: Vec<u8>,
}

/// The threads that decide.
#[derive(Default)]
pub(super) struct Threads {
    each: ArcSwap<Vec<mpsc::Sender<Submission>>>,
    next: AtomicUsize,
}

/// The batcher of a thread, whatever its responses are.
pub(super) trait LocalBatcher {
    /// Whether it decides by this pipeline.
    fn is_of(&self, pipeline: &Pipeline) -> bool;

    /// Starts a request, which is sent once the other tasks of the thread have had their turn.
    fn submit(&self, submission: Submission);
}

thread_local! {
    static LOCAL: RefCell<Option<Weak<dyn LocalBatcher>>> = const { RefCell::new(None) };
}

/// Submits what tasks of this thread ask to this batcher from now on.
pub(super) fn set_local(batcher: &Rc<dyn LocalBatcher>) {
    LOCAL.set(Some(Rc::downgrade(batcher)));
}

fn local(pipeline: &Pipeline) -> Option<Rc<dyn LocalBatcher>> {
    let local = LOCAL.with_borrow(|local| local.as_ref()?.upgrade());
    local.filter(|local| local.is_of(pipeline))
}

// === impl TaskReply ===

impl TaskReply {
    /// Whether the task no longer waits.
    pub(super) fn is_cancelled(&self) -> bool {
        match self {
            Self::Call(reply) => reply.is_closed(),
            Self::Api(reply) => reply.is_closed(),
        }
    }

    /// The request has no answer.
    pub(super) fn reject(self, error: RequestError) {
        match self {
            Self::Call(reply) => drop(reply.send(error.into())),
            Self::Api(reply) => drop(reply.send(error.into())),
        }
    }
}

// === impl TaskAnswer ===

impl<T> TaskAnswer<T> {
    /// The answer that comes; the task that waited has it now.
    pub(super) async fn received(answer: oneshot::Receiver<Self>) -> Result<T, RequestError> {
        // A defect lost the answer.
        let Self { answer, taken } = answer
            .await
            .map_err(|_| RequestError::from(StoreError::Stopped))?;
        if let Some(taken) = taken {
            taken.commit();
        }
        answer
    }
}

impl<T> From<RequestError> for TaskAnswer<T> {
    fn from(error: RequestError) -> Self {
        Self {
            answer: Err(error),
            taken: None,
        }
    }
}

// === impl CallResponse ===

impl From<EncodedResponse<'_>> for CallResponse {
    fn from(response: EncodedResponse<'_>) -> Self {
        Self {
            code: response.decision.code,
            message: response.message(),
        }
    }
}

// === impl Threads ===

impl Threads {
    /// One more thread: what other threads ask it.
    fn add(&self) -> mpsc::Receiver<Submission> {
        let (sender, submissions) = mpsc::channel(WAITING_MAX);
        self.each.rcu(|each| {
            let mut each = each.to_vec();
            each.push(sender.clone());
            each
        });
        submissions
    }

    /// Submits a request to the threads in turn, as long as one of them runs.
    async fn submit(&self, mut submission: Submission) -> Result<(), RequestError> {
        let each = self.each.load_full();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for thread in each
            .iter()
            .cycle()
            .skip(first % each.len().max(1))
            .take(each.len())
        {
            match thread.send(submission).await {
                Ok(()) => return Ok(()),
                Err(unsent) => submission = unsent.0,
            }
        }
        Err(StoreError::Stopped.into())
    }
}

// === impl Pipeline ===

impl Pipeline {
    /// One more thread decides: what other threads ask it. Call it before the thread is needed.
    pub fn add_thread(&self) -> mpsc::Receiver<Submission> {
        self.threads.add()
    }

    /// Decides one request, an encoded `RateLimitRequest` that has each field once.
    ///
    /// `timeout_us` is the caller's timeout, if it sent one; `parent` is its trace.
    ///
    /// # Errors
    ///
    /// When the request cannot be decoded, there are no rules, or the store did not decide.
    pub async fn call(
        &self,
        message: Vec<u8>,
        timeout_us: Option<u64>,
        parent: Option<TraceParent>,
    ) -> Result<CallResponse, RequestError> {
        let (reply, answer) = oneshot::channel();
        let submission = Submission {
            message,
            api: None,
            deadline: self.deadline_after(timeout_us),
            parent,
            submitted_us: self.clock.uptime_us(),
            is_long: false,
            reply: TaskReply::Call(reply),
        };
        self.submit(submission).await?;
        TaskAnswer::received(answer).await
    }

    /// Submits a request to the thread that decides it.
    pub(super) async fn submit(&self, submission: Submission) -> Result<(), RequestError> {
        if let Some(local) = local(self) {
            local.submit(submission);
            return Ok(());
        }
        self.threads.submit(submission).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission() -> Submission {
        Submission {
            message: Vec::new(),
            api: None,
            deadline: Deadline::NEVER,
            parent: None,
            submitted_us: 0,
            is_long: false,
            reply: TaskReply::Call(oneshot::channel().0),
        }
    }

    #[tokio::test]
    async fn requests_wait_for_threads_to_run_and_pass_by_those_that_ended() {
        let threads = Threads::default();
        let (mut first, second) = (threads.add(), threads.add());
        for _ in 0..4 {
            threads.submit(submission()).await.unwrap();
        }
        assert_eq!((first.len(), second.len()), (2, 2));
        drop(second);
        for _ in 0..4 {
            threads.submit(submission()).await.unwrap();
        }
        assert_eq!(first.len(), 6);
        first.close();
        let error = threads.submit(submission()).await.unwrap_err();
        assert!(matches!(error, RequestError::Store(StoreError::Stopped)));
    }
}
