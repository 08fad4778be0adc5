//! The batcher of one worker thread: decides the requests of all its connections in batches.
//!
//! A connection hands in each message that has arrived; it is decoded and planned at once, and its
//! checks are added to the next batch. One task of the thread ([`Batcher::run`]) is polled when the
//! connections that were ready have been polled: it sends the batch, one message per partition, and
//! finishes the requests whose checks have all been answered. Each response is written into its
//! connection's buffer; the connections, woken by that, flush once each.
//!
//! Slots, plans, vectors and buffers are reused: from a message in hand to its response in the
//! buffer nothing is allocated in the steady state (`allocations`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::sync::mpsc;
use tokio::task;

use crate::grpc::candidate_batcher::CandidateBatcher;
use crate::grpc::responder::Responder;
use crate::metrics::Metrics;
use crate::pipeline::{
    Call, FRAME_HEAD_BYTES, Generation, KeyCounts, PendingRequest, Pipeline, Scratch, Undecodable,
};
use crate::store::{BatchClient, Deadline, PartialReply, Ticket};
use crate::top_keys::Ask;
use crate::tracing::TraceParent;

/// How many free slots keep their memory.
const IDLE_SLOTS_MAX: usize = 4_096;

/// How many bytes of its last request's message a free slot keeps.
const KEPT_MESSAGE_BYTES_MAX: usize = 1_024;

/// The batcher of one worker thread. `R` is how responses go out.
pub(crate) struct Batcher<R> {
    pipeline: Arc<Pipeline>,
    metrics: Arc<Metrics>,
    message_size_max: usize,
    state: RefCell<BatchState<R>>,
    /// Set while the next batch, or a finished request, waits for the task to be polled.
    is_due: Cell<bool>,
    /// Wakes the task that runs [`Batcher::run`].
    waker: RefCell<Option<Waker>>,
    /// Questions about top keys for this thread, until [`Batcher::answer_questions`] takes them.
    questions: RefCell<Option<mpsc::Receiver<Ask>>>,
    /// The uptime of this turn; none until it is first needed.
    turn_us: Cell<Option<u64>>,
    /// Decides candidates; none where there can be none.
    candidates: Option<ThreadCandidates>,
}

/// The candidate's part of a thread's requests.
pub(super) type ThreadCandidates = Rc<CandidateBatcher<Rc<SharedRules>>>;

/// The mutable state of a batcher.
struct BatchState<R> {
    client: Box<dyn BatchClient>,
    /// Requests in flight. A ticket is an index into this vector.
    slots: Vec<Slot<R>>,
    /// Slots that are free.
    free: Vec<Ticket>,
    /// Slots whose checks have all been answered.
    complete: VecDeque<Ticket>,
    rules: Option<Rc<SharedRules>>,
    scratch: Scratch,
}

/// A generation of rules, counted by this thread alone: its requests do not touch the count that
/// all threads share.
pub(super) struct SharedRules(Arc<Generation>);

/// A request in flight, or the memory of one.
struct Slot<R> {
    responder: Option<R>,
    pending: PendingRequest<Rc<SharedRules>>,
    /// How many partial replies of the store are still to come.
    replies_due: usize,
}

/// The batcher does not serve this call; the slow path does.
#[derive(Debug)]
pub(crate) struct Unsupported;

// === impl Batcher ===

impl<R: Responder> Batcher<R> {
    /// A batcher for messages of at most `message_size_max` bytes; none when the store cannot be
    /// asked for many requests at once.
    pub(crate) fn new(
        pipeline: &Arc<Pipeline>,
        metrics: &Arc<Metrics>,
        message_size_max: usize,
    ) -> Option<Self> {
        let (keys, questions) = match pipeline.top_keys().recorder() {
            Some((recorder, questions)) => (KeyCounts::Own(Box::new(recorder)), Some(questions)),
            None => (KeyCounts::Off, None),
        };
        let state = BatchState {
            client: pipeline.batch_client()?,
            slots: Vec::new(),
            free: Vec::new(),
            complete: VecDeque::new(),
            rules: None,
            scratch: Scratch::new(metrics, keys, Some(pipeline.recorder()))
                .with_capture(pipeline.capture_writer()),
        };
        Some(Self {
            pipeline: Arc::clone(pipeline),
            metrics: Arc::clone(metrics),
            message_size_max,
            state: RefCell::new(state),
            is_due: Cell::new(false),
            waker: RefCell::new(None),
            questions: RefCell::new(questions),
            turn_us: Cell::new(None),
            candidates: CandidateBatcher::new(pipeline, metrics).map(Rc::new),
        })
    }

    /// The part of it that decides candidates, for a task of its own.
    pub(super) fn candidates(&self) -> Option<ThreadCandidates> {
        self.candidates.clone()
    }

    /// Starts a call of ShouldRateLimit. `body` is all that the client sent: one gRPC frame.
    ///
    /// # Errors
    ///
    /// [`Unsupported`] for anything but one whole uncompressed frame that the decoder reads. The
    /// call is then as it was, and `responder` is released.
    pub(crate) fn start(
        &self,
        body: &[u8],
        timeout_us: Option<u64>,
        parent: Option<TraceParent>,
        responder: R,
    ) -> Result<(), Unsupported> {
        let now_us = self.turn_us();
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let Some(message) = self.message(body) else {
            responder.release();
            return Err(Unsupported);
        };
        let call = Call {
            message,
            parent,
            now_us,
        };
        let rules = state.current_rules(&self.pipeline);
        let ticket = state.free_slot();
        let Some(slot) = state.slots.get_mut(ticket as usize) else {
            responder.release();
            return Err(Unsupported);
        };
        let pending = &mut slot.pending;
        let begun = self
            .pipeline
            .begin(call, rules, &mut state.scratch, pending);
        if let Err(Undecodable) = begun {
            state.free.push(ticket);
            responder.release();
            return Err(Unsupported);
        }
        self.is_due.set(true);
        slot.responder = Some(responder);
        slot.replies_due = 0;
        let checks = slot.pending.checks();
        if !checks.is_empty() {
            let deadline = timeout_us.map_or(Deadline::NEVER, |timeout_us| {
                Deadline::at_uptime_us(now_us.saturating_add(timeout_us))
            });
            let commit_mode = slot.pending.commit_mode();
            match state.client.add(ticket, checks, deadline, commit_mode) {
                Ok(replies) => slot.replies_due = replies,
                Err(error) => slot.pending.results().fail(error),
            }
        }
        if slot.replies_due == 0 {
            state.complete.push_back(ticket);
        }
        Ok(())
    }

    /// Ends a connection's turn: what it started is sent once the other connections have had
    /// theirs.
    pub(crate) fn end_turn(&self) {
        self.turn_us.set(None);
        if self.is_due.get()
            && let Some(waker) = self.waker.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }

    /// Drops rules as soon as they are no longer in use. A thread without requests would otherwise
    /// hold them, and the label sets of their metrics, until its next request.
    pub(crate) async fn release_old_rules(self: Rc<Self>) {
        let mut changes = self.pipeline.rules_changes();
        while changes.changed().await.is_ok() {
            self.state.borrow_mut().release_old_rules(&self.pipeline);
        }
    }

    /// Answers questions about this thread's top keys.
    pub(crate) async fn answer_questions(self: Rc<Self>) {
        let Some(mut questions) = self.questions.take() else {
            return;
        };
        while let Some(question) = questions.recv().await {
            if let Some(recorder) = self.state.borrow_mut().scratch.key_recorder() {
                recorder.answer(question);
            }
        }
    }

    /// Sends batches and finishes requests, without end.
    pub(crate) async fn run(self: Rc<Self>) -> Infallible {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// One turn: sends the batch, and finishes requests whose checks have been answered.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Infallible> {
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|known| known.will_wake(cx.waker()))
        {
            *waker = Some(cx.waker().clone());
        }
        drop(waker);
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if self.is_due.replace(false) {
            state.client.send();
        }
        let (slots, complete) = (&mut state.slots, &mut state.complete);
        state.client.take_replies(cx, &mut |reply| {
            let ticket = reply.ticket;
            if let Some(slot) = slots.get_mut(ticket as usize)
                && slot.record(reply)
            {
                complete.push_back(ticket);
            }
        });
        if !state.complete.is_empty() {
            let now_us = self.turn_us();
            // One after the other: a defect that loses one leaves the others in the queue.
            while let Some(ticket) = state.complete.pop_front() {
                self.finish(state, ticket, now_us);
            }
        }
        // Before the answers of this turn leave: no client sees one that is not counted.
        state.scratch.flush_counts(&self.metrics);
        if let Some(candidates) = &self.candidates {
            // The connections of this turn's answers are woken already, and run before it.
            candidates.end_turn();
        }
        self.turn_us.set(None);
        Poll::Pending
    }

    /// The message in a frame; none unless this is one whole frame, uncompressed and not too long.
    fn message<'b>(&self, body: &'b [u8]) -> Option<&'b [u8]> {
        let (head, message) = body.split_at_checked(FRAME_HEAD_BYTES)?;
        let (compressed, length) = head.split_first()?;
        let length = u32::from_be_bytes(length.try_into().ok()?);
        let whole = *compressed == 0
            && usize::try_from(length).ok()? == message.len()
            && message.len() <= self.message_size_max;
        whole.then_some(message)
    }

    fn finish(&self, state: &mut BatchState<R>, ticket: Ticket, now_us: u64) {
        let Some(slot) = state.slots.get_mut(ticket as usize) else {
            return;
        };
        let Some(responder) = slot.responder.take() else {
            return;
        };
        let pending = &mut slot.pending;
        if pending.has_tentative_take() && responder.is_cancelled() {
            self.pipeline.cancel(pending, &mut state.scratch);
        } else {
            let scratch = &mut state.scratch;
            self.pipeline
                .finish(pending, scratch, now_us, |response| match response {
                    Ok(response) => responder.respond(response.frame_bytes(), |into| {
                        response.write_frame(into);
                    }),
                    Err(error) => responder.reject(error),
                });
            if pending.wants_candidate()
                && let Some(candidates) = &self.candidates
            {
                candidates.put(pending);
            }
        }
        if (ticket as usize) < IDLE_SLOTS_MAX {
            pending.clear(KEPT_MESSAGE_BYTES_MAX);
        } else {
            *pending = PendingRequest::default();
        }
        state.free.push(ticket);
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

// === impl BatchState ===

impl<R> BatchState<R> {
    /// The rules in use, by this thread's own count.
    fn current_rules(&mut self, pipeline: &Pipeline) -> Option<Rc<SharedRules>> {
        if let Some(rules) = &self.rules
            && pipeline.is_current(&rules.0)
        {
            return Some(Rc::clone(rules));
        }
        self.rules = pipeline.current_rules().map(SharedRules).map(Rc::new);
        self.rules.clone()
    }

    fn release_old_rules(&mut self, pipeline: &Pipeline) {
        if let (Some(current), Some(recorder)) =
            (pipeline.current_rules(), self.scratch.key_recorder())
        {
            recorder.retain_rules(&current.rules);
        }
        let old = self.rules.take_if(|rules| !pipeline.is_current(&rules.0));
        if let Some(SharedRules(generation)) = old.and_then(Rc::into_inner)
            && let Some(last) = Arc::into_inner(generation)
        {
            // Thousands of rules take milliseconds to free, and requests would wait for them.
            task::spawn_blocking(move || drop(last));
        }
    }

    fn free_slot(&mut self) -> Ticket {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            // Streams are bounded far below 2^32.
            Ticket::try_from(self.slots.len().saturating_sub(1)).unwrap_or(Ticket::MAX)
        })
    }
}

// === impl SharedRules ===

impl AsRef<Generation> for SharedRules {
    fn as_ref(&self) -> &Generation {
        &self.0
    }
}

// === impl Slot ===

impl<R> Slot<R> {
    /// Records a part of the answers. True when it was the last one due.
    fn record(&mut self, reply: PartialReply<'_>) -> bool {
        self.pending.results().record_reply(reply);
        self.replies_due = self.replies_due.saturating_sub(1);
        self.replies_due == 0
    }
}

impl<R> Default for Slot<R> {
    fn default() -> Self {
        Self {
            responder: None,
            pending: PendingRequest::default(),
            replies_due: 0,
        }
    }
}
