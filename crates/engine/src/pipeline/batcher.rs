//! The batcher of one thread: every request is submitted here, and decided in batches.
//!
//! A message that is submitted is decoded and planned at once, and its checks are added to the next
//! batch. One task of the thread ([`Batcher::run`]) is polled when the connections that were ready
//! have been polled: it sends the batch, one message per partition, and ends the requests whose
//! checks have all been answered. A response of the fast path is written into its connection's
//! buffer; the connections, woken by that, flush once each. A task gets its reply once everything
//! is counted.
//!
//! Slots, plans, vectors and buffers are reused: from a message in hand to its response in the
//! buffer nothing is allocated in the steady state (`grpc/allocations`).
//!
//! A long request of a task takes turns ([`Batcher::run_long`]): other tasks of the thread run
//! between its steps.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::sync::{mpsc, oneshot};
use tokio::task;

use crate::ended::RequestError;
use crate::pipeline::Pipeline;
use crate::pipeline::api::{SHORT_REQUEST_CHECKS_MAX, give_way};
use crate::pipeline::api_call::ApiCall;
use crate::pipeline::begin::{Call, Undecodable};
use crate::pipeline::candidate::CandidateBatcher;
use crate::pipeline::encode::Responder;
use crate::pipeline::in_flight::{InFlight, Slot, register};
use crate::pipeline::observers::Observers;
use crate::pipeline::pending::{PendingRequest, Scratch, SharedRules};
use crate::pipeline::threads::{
    CallResponse, LocalBatcher, Submission, TaskAnswer, TaskReply, set_local,
};
use crate::top_keys::Ask;
use tollgate_store::{Deadline, Ticket};
use tollgate_telemetry::tracing::TraceParent;

/// How many free slots keep their memory.
const IDLE_SLOTS_MAX: usize = 4_096;

/// How many bytes of its last request's message a free slot keeps.
const KEPT_MESSAGE_BYTES_MAX: usize = 1_024;

/// The module of its log lines, for filters.
const LOG: &str = "tollgate::pipeline::batcher";

const LOST_ANSWERS: &str = "this is a defect in tollgate: answers of a worker thread were lost";

/// The batcher of one thread. `R` is how responses of the fast path go out.
pub struct Batcher<R> {
    pipeline: Arc<Pipeline>,
    state: RefCell<BatchState<R>>,
    /// Set while the next batch, or an ended request, waits for the task to be polled.
    is_due: Cell<bool>,
    /// Wakes the task that runs [`Batcher::run`].
    waker: RefCell<Option<Waker>>,
    /// Steps of long requests, for the task that runs [`Batcher::run_long`].
    long_steps: RefCell<VecDeque<LongStep>>,
    long_waker: RefCell<Option<Waker>>,
    /// Whether that task runs.
    has_long_task: Cell<bool>,
    /// Questions about top keys for this thread, until [`Batcher::answer_questions`] takes them.
    questions: RefCell<Option<mpsc::Receiver<Ask>>>,
    /// The uptime of this turn; none until it is first needed.
    turn_us: Cell<Option<u64>>,
    /// What every check of tollgate's API on the fast path asks.
    check: Rc<ApiCall>,
    /// Decides candidates; none where there can be none.
    candidates: Option<Rc<CandidateBatcher>>,
}

/// The mutable state of a batcher.
struct BatchState<R> {
    in_flight: InFlight<Request<R>>,
    /// The request that is being ended. A panic leaves it here.
    current: Option<Ticket>,
    /// Answers for tasks, until they are counted.
    answers: Vec<SendAnswer>,
    rules: Option<Rc<SharedRules>>,
    scratch: Scratch,
}

/// A request in flight, or the memory of one.
struct Request<R> {
    caller: Option<Caller<R>>,
    pending: PendingRequest,
}

/// Who waits for a response.
enum Caller<R> {
    Stream(R),
    Task(TaskReply),
}

/// Sends the answer to a task, once it is counted.
type SendAnswer = Box<dyn FnOnce()>;

/// A step of a long request.
enum LongStep {
    Begin(Submission),
    Ask(Ticket),
    End(Ticket),
}

// === impl Batcher ===

impl<R: Responder + 'static> Batcher<R> {
    /// A batcher for one more thread.
    pub fn new(pipeline: &Arc<Pipeline>) -> Self {
        let (keys, questions) = pipeline.top_keys().recorder().unzip();
        let state = BatchState {
            in_flight: InFlight::new(pipeline.store.batch_client()),
            current: None,
            answers: Vec::new(),
            rules: None,
            scratch: Scratch::new(Observers::new(pipeline, keys)),
        };
        Self {
            pipeline: Arc::clone(pipeline),
            state: RefCell::new(state),
            is_due: Cell::new(false),
            waker: RefCell::new(None),
            long_steps: RefCell::default(),
            long_waker: RefCell::new(None),
            has_long_task: Cell::new(false),
            questions: RefCell::new(questions),
            turn_us: Cell::new(None),
            check: Rc::new(ApiCall::encoded_check(pipeline.answer_bytes_max())),
            candidates: CandidateBatcher::new(pipeline).map(Rc::new),
        }
    }

    /// The part of it that decides candidates, for a task of its own.
    pub fn candidates(&self) -> Option<Rc<CandidateBatcher>> {
        self.candidates.clone()
    }

    /// Starts a call of the fast path.
    ///
    /// # Errors
    ///
    /// [`Undecodable`] when the decoder does not read the message. The call is then as it was, and
    /// `responder` is released.
    pub fn start(
        &self,
        message: &[u8],
        timeout_us: Option<u64>,
        parent: Option<TraceParent>,
        responder: R,
    ) -> Result<(), Undecodable> {
        self.start_call(message, None, timeout_us, parent, responder)
    }

    /// Starts a check of tollgate's API, as the message of Envoy's method with explicit hits.
    ///
    /// # Errors
    ///
    /// As [`Batcher::start`].
    pub fn start_check(
        &self,
        message: &[u8],
        timeout_us: Option<u64>,
        parent: Option<TraceParent>,
        responder: R,
    ) -> Result<(), Undecodable> {
        let check = Some(Rc::clone(&self.check));
        self.start_call(message, check, timeout_us, parent, responder)
    }

    #[inline]
    fn start_call(
        &self,
        message: &[u8],
        api: Option<Rc<ApiCall>>,
        timeout_us: Option<u64>,
        parent: Option<TraceParent>,
        responder: R,
    ) -> Result<(), Undecodable> {
        let now_us = self.turn_us();
        let call = Call {
            message,
            api,
            parent,
            now_us,
        };
        let deadline = timeout_us.map_or(Deadline::NEVER, |timeout_us| {
            Deadline::at_uptime_us(now_us.saturating_add(timeout_us))
        });
        let mut state = self.state.borrow_mut();
        let caller = Caller::Stream(responder);
        match self.begin(&mut state, call, deadline, caller) {
            Ok(ticket) => {
                self.ask(&mut state, ticket);
                Ok(())
            }
            Err(caller) => {
                if let Caller::Stream(responder) = caller {
                    responder.release();
                }
                Err(Undecodable)
            }
        }
    }

    /// Begins a request in a slot. Gives the caller back where the message cannot be decoded.
    #[inline]
    fn begin(
        &self,
        state: &mut BatchState<R>,
        call: Call<'_>,
        deadline: Deadline,
        caller: Caller<R>,
    ) -> Result<Ticket, Caller<R>> {
        let rules = self.pipeline.shared_rules(&mut state.rules);
        let ticket = match &caller {
            Caller::Task(TaskReply::Api(_)) => state.in_flight.take_bare_slot(),
            _ => state.in_flight.take_slot(usize::MAX),
        };
        // Streams are bounded far below the number of tickets.
        let ticket = ticket.unwrap_or_default();
        let Some(slot) = state.in_flight.get(ticket) else {
            return Err(caller);
        };
        let (scratch, pending) = (&mut state.scratch, &mut slot.pending);
        if self.pipeline.begin(call, rules, scratch, pending).is_err() {
            state.in_flight.free(ticket);
            return Err(caller);
        }
        slot.pending.is_asked = false;
        slot.pending.commits_later = matches!(caller, Caller::Task(_));
        slot.caller = Some(caller);
        slot.pending.deadline = deadline;
        Ok(ticket)
    }

    /// Adds the checks of a request to the next batch.
    #[inline]
    fn ask(&self, state: &mut BatchState<R>, ticket: Ticket) {
        self.is_due.set(true);
        state.in_flight.ask(ticket);
    }

    /// Ends a connection's turn: what it started is sent once the other connections have had
    /// theirs.
    pub fn end_turn(&self) {
        self.turn_us.set(None);
        if self.is_due.get()
            && let Some(waker) = self.waker.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }

    /// Runs the tasks of this thread's batcher, and decides what tasks of the thread ask, and those
    /// of other threads until these are gone.
    pub async fn serve(self: Rc<Self>, mut submissions: mpsc::Receiver<Submission>) {
        let local: Rc<dyn LocalBatcher> = self.clone();
        set_local(&local);
        let batcher = Rc::clone(&self);
        task::spawn_local(again_and_again(move || Rc::clone(&batcher).run()));
        let batcher = Rc::clone(&self);
        task::spawn_local(again_and_again(move || Rc::clone(&batcher).run_long()));
        task::spawn_local(Rc::clone(&self).release_old_rules());
        task::spawn_local(Rc::clone(&self).answer_questions());
        if let Some(candidates) = self.candidates() {
            task::spawn_local(again_and_again(move || Rc::clone(&candidates).run()));
        }
        while let Some(submission) = submissions.recv().await {
            self.contain(|| self.submit(submission));
        }
    }

    /// Drops rules as soon as they are no longer in use. A thread without requests would otherwise
    /// hold them, and the label sets of their metrics, until its next request.
    async fn release_old_rules(self: Rc<Self>) {
        let mut changes = self.pipeline.rules_changes();
        while changes.changed().await.is_ok() {
            self.state.borrow_mut().release_old_rules(&self.pipeline);
        }
    }

    /// Answers questions about this thread's top keys.
    pub async fn answer_questions(self: Rc<Self>) {
        let Some(mut questions) = self.questions.take() else {
            return;
        };
        while let Some(question) = questions.recv().await {
            if let Some(keys) = self.state.borrow_mut().scratch.observers.keys() {
                question(keys);
            }
        }
    }

    /// Sends batches and ends requests, without end.
    pub async fn run(self: Rc<Self>) -> Infallible {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// One turn: sends the batch, and ends requests whose checks have been answered.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Infallible> {
        register(&self.waker, cx);
        if !self.has_long_task.get() {
            // Tests poll this task without the one of long steps.
            while let Some(step) = self.next_long_step() {
                self.carry_out(step);
            }
        }
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.give_up_current();
        loop {
            if self.is_due.replace(false) {
                state.in_flight.send();
            }
            state.in_flight.take_replies(cx);
            if !state.in_flight.complete.is_empty() {
                let now_us = self.turn_us();
                // One after the other: a defect that loses one leaves the others in the queue.
                while let Some(ticket) = state.in_flight.complete.pop_front() {
                    self.completed(state, ticket, now_us);
                }
            }
            // A settle goes on to its next checks.
            if !self.is_due.get() {
                break;
            }
        }
        self.show_answers(state);
        self.turn_us.set(None);
        Poll::Pending
    }

    /// Counts, and only then replies to tasks: no client sees an answer that is not counted.
    #[inline]
    fn show_answers(&self, state: &mut BatchState<R>) {
        state.scratch.observers.flush(&self.pipeline.metrics);
        if !state.answers.is_empty() {
            for answer in state.answers.drain(..) {
                answer();
            }
        }
        if let Some(candidates) = &self.candidates {
            // The connections of this turn's answers are woken already, and run before it.
            candidates.end_turn();
        }
    }

    /// All checks of a request that were asked are answered.
    fn completed(&self, state: &mut BatchState<R>, ticket: Ticket, now_us: u64) {
        state.current = Some(ticket);
        self.go_on(state, ticket, now_us);
        state.current = None;
    }

    #[inline]
    fn go_on(&self, state: &mut BatchState<R>, ticket: Ticket, now_us: u64) {
        let Some(slot) = state.in_flight.get(ticket) else {
            return;
        };
        if slot.pending.rounds.is_some() && slot.pending.next_round() {
            self.ask(state, ticket);
        } else if slot.is_long() {
            self.later(LongStep::End(ticket));
        } else {
            self.end(state, ticket, now_us);
        }
    }

    /// Ends a request. Nothing is taken for a caller that left before its checks were asked.
    fn end(&self, state: &mut BatchState<R>, ticket: Ticket, now_us: u64) {
        let Some(slot) = state.in_flight.get(ticket) else {
            return;
        };
        let Some(caller) = slot.caller.take() else {
            return;
        };
        let (pending, scratch) = (&mut slot.pending, &mut state.scratch);
        let may_leave = pending.results.tentative.is_some() || !pending.is_asked;
        let is_left = may_leave && caller.is_cancelled();
        let pipeline = &self.pipeline;
        let is_bare = matches!(caller, Caller::Task(TaskReply::Api(_)));
        match caller {
            Caller::Stream(responder) => {
                pipeline.end(pending, scratch, now_us, is_left, |response| {
                    responder.respond(response);
                });
            }
            Caller::Task(TaskReply::Call(reply)) => {
                let answer = pipeline.end(pending, scratch, now_us, is_left, |response| {
                    response.map(CallResponse::from)
                });
                state.answers.extend(send(reply, answer, pending));
            }
            Caller::Task(TaskReply::Api(reply)) => {
                let answer = pipeline.end_api(pending, scratch, now_us, is_left);
                state.answers.extend(send(reply, answer, pending));
            }
        }
        if pending.live.is_some()
            && let Some(candidates) = &self.candidates
        {
            candidates.put(pending);
        }
        if (ticket as usize) < IDLE_SLOTS_MAX {
            pending.clear(KEPT_MESSAGE_BYTES_MAX);
        } else {
            *pending = PendingRequest::default();
        }
        if is_bare {
            state.in_flight.free_bare(ticket);
        } else {
            state.in_flight.free(ticket);
        }
    }

    /// Carries out the steps of long requests, without end. Each has its own place among the steps
    /// of all that give way on this thread.
    async fn run_long(self: Rc<Self>) -> Infallible {
        self.has_long_task.set(true);
        loop {
            let step = poll_fn(|cx| {
                register(&self.long_waker, cx);
                self.next_long_step().map_or(Poll::Pending, Poll::Ready)
            });
            let (step, batcher) = (step.await, Rc::clone(&self));
            task::spawn_local(async move {
                give_way().await;
                batcher.contain(|| batcher.carry_out(step));
            });
        }
    }

    /// Does something for one request. A panic in it is a defect: this caller gets an error, and
    /// other callers are answered.
    fn contain(&self, part: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(part)).is_err() {
            tracing::error!(target: LOG, "{LOST_ANSWERS}");
            self.state.borrow_mut().give_up_current();
            self.is_due.set(true);
            self.end_turn();
        }
    }

    fn next_long_step(&self) -> Option<LongStep> {
        self.long_steps.borrow_mut().pop_front()
    }

    fn carry_out(&self, step: LongStep) {
        let mut state = self.state.borrow_mut();
        match step {
            LongStep::Begin(submission) => self.begin_submitted(&mut state, submission),
            LongStep::Ask(ticket) => {
                let slot = state.in_flight.get(ticket);
                let caller = slot.and_then(|slot| slot.caller.as_ref());
                if caller.is_some_and(Caller::is_cancelled) {
                    self.end_long(&mut state, ticket);
                } else {
                    self.ask(&mut state, ticket);
                }
            }
            LongStep::End(ticket) => self.end_long(&mut state, ticket),
        }
        self.show_answers(&mut state);
        drop(state);
        self.end_turn();
    }

    fn end_long(&self, state: &mut BatchState<R>, ticket: Ticket) {
        state.current = Some(ticket);
        let now_us = self.turn_us();
        self.end(state, ticket, now_us);
        state.current = None;
    }

    fn later(&self, step: LongStep) {
        self.long_steps.borrow_mut().push_back(step);
        if let Some(waker) = self.long_waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    fn begin_submitted(&self, state: &mut BatchState<R>, submission: Submission) {
        if submission.reply.is_cancelled() {
            return;
        }
        let call = Call {
            message: &submission.message,
            api: submission.api.map(Rc::from),
            parent: submission.parent,
            now_us: submission.submitted_us,
        };
        let caller = Caller::Task(submission.reply);
        match self.begin(state, call, submission.deadline, caller) {
            Ok(ticket) => {
                let slot = state.in_flight.get(ticket);
                if slot.is_some_and(|slot| slot.is_long()) {
                    self.later(LongStep::Ask(ticket));
                } else {
                    self.ask(state, ticket);
                }
            }
            Err(Caller::Task(reply)) => {
                reply.reject(RequestError::Malformed("it cannot be decoded".to_owned()));
            }
            Err(Caller::Stream(_)) => {}
        }
    }

    /// The uptime, read once a turn.
    fn turn_us(&self) -> u64 {
        self.turn_us.get().unwrap_or_else(|| {
            let now_us = self.pipeline.uptime_us();
            self.turn_us.set(Some(now_us));
            now_us
        })
    }
}

impl<R: Responder + 'static> LocalBatcher for Batcher<R> {
    fn is_of(&self, pipeline: &Pipeline) -> bool {
        std::ptr::eq(&raw const *self.pipeline, pipeline)
    }

    fn submit(&self, submission: Submission) {
        if submission.is_long {
            return self.later(LongStep::Begin(submission));
        }
        self.begin_submitted(&mut self.state.borrow_mut(), submission);
        self.end_turn();
    }
}

/// Sends an answer, if there is one, with what the request took.
fn send<T: 'static>(
    reply: oneshot::Sender<TaskAnswer<T>>,
    answer: Option<Result<T, RequestError>>,
    pending: &mut PendingRequest,
) -> Option<SendAnswer> {
    let answer = TaskAnswer {
        answer: answer?,
        taken: pending.results.tentative.take(),
    };
    // The task may have left.
    Some(Box::new(move || drop(reply.send(answer))))
}

/// Runs a task without end. A panic in it is a defect: answers that were being written are lost,
/// and the task is restarted for the others.
async fn again_and_again<F: Future<Output = Infallible> + 'static>(task: impl Fn() -> F) {
    loop {
        let Err(error) = task::spawn_local(task()).await;
        tracing::error!(target: LOG, %error, "{LOST_ANSWERS}");
    }
}

// === impl BatchState ===

impl<R> BatchState<R> {
    /// After a panic in the end of a request, its caller gets an error. The slot is not used again,
    /// because replies may be due.
    fn give_up_current(&mut self) {
        if let Some(lost) = self.current.take()
            && let Some(slot) = self.in_flight.get(lost)
        {
            slot.caller = None;
        }
    }

    fn release_old_rules(&mut self, pipeline: &Pipeline) {
        if let (Some(current), Some(keys)) =
            (pipeline.current_rules(), self.scratch.observers.keys())
        {
            keys.retain_rules(&current.rules);
        }
        let old = self.rules.take_if(|rules| !pipeline.is_current(&rules.0));
        if let Some(SharedRules(generation)) = old.and_then(Rc::into_inner)
            && let Some(last) = Arc::into_inner(generation)
        {
            // Thousands of rules take milliseconds to free, and requests would wait for them.
            task::spawn_blocking(move || drop(last));
        }
    }
}

// === impl Request ===

impl<R> Slot for Request<R> {
    fn pending(&mut self) -> &mut PendingRequest {
        &mut self.pending
    }
}

impl<R> Request<R> {
    /// Whether it is a task's request that takes turns.
    fn is_long(&self) -> bool {
        self.pending.checks().len() > SHORT_REQUEST_CHECKS_MAX
            && matches!(self.caller, Some(Caller::Task(_)))
    }
}

impl<R> Default for Request<R> {
    fn default() -> Self {
        Self {
            caller: None,
            pending: PendingRequest::default(),
        }
    }
}

// === impl Caller ===

impl<R: Responder> Caller<R> {
    fn is_cancelled(&self) -> bool {
        match self {
            Self::Stream(responder) => responder.is_cancelled(),
            Self::Task(reply) => reply.is_cancelled(),
        }
    }
}
