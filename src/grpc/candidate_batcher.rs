//! The candidate's decisions of one worker thread, in batches of their own.
//!
//! The batcher hands in each request whose response it has written ([`CandidateBatcher::put`]): the
//! memory of both requests changes places, so nothing is copied or allocated. A task of its own
//! decides them. It is woken after the connections, which flush their responses first, and lets
//! them run again after [`TURN_MAX`] requests.
//!
//! The requests that wait for a turn or for the candidate's partitions are bounded in number and in
//! bytes. Beyond that a request is skipped and counted.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::mem;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::metrics::{CandidateSums, Metrics};
use crate::pipeline::{Generation, KeyCounts, PendingRequest, Pipeline, Scratch};
use crate::store::{BatchClient, Deadline, PartialReply, Ticket};

/// How many requests of a thread wait.
const WAITING_MAX: usize = 4_096;

/// How many bytes their messages have together.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// How many requests are planned, and how many decided, before the connections run again.
const TURN_MAX: usize = 64;

/// How many bytes of its last request's message a free slot keeps.
const KEPT_MESSAGE_BYTES_MAX: usize = 1_024;

/// Decides the candidate's part of a thread's requests. `G` holds a generation of rules.
pub(super) struct CandidateBatcher<G> {
    pipeline: Arc<Pipeline>,
    state: RefCell<State<G>>,
    is_due: Cell<bool>,
    /// Wakes the task that runs [`CandidateBatcher::run`].
    waker: RefCell<Option<Waker>>,
}

struct State<G> {
    client: Box<dyn BatchClient>,
    /// Requests that wait. A ticket is an index into this vector.
    slots: Vec<Slot<G>>,
    free: Vec<Ticket>,
    /// Requests whose checks are not planned yet.
    arrived: VecDeque<Ticket>,
    /// Requests whose checks have all been answered.
    complete: VecDeque<Ticket>,
    /// Bytes of the messages of all that wait.
    bytes: usize,
    scratch: Scratch,
    sums: CandidateSums,
}

struct Slot<G> {
    pending: PendingRequest<G>,
    /// How many partial replies are still to come.
    replies_due: usize,
    bytes: usize,
}

// === impl CandidateBatcher ===

impl<G> CandidateBatcher<G>
where
    G: Deref,
    G::Target: AsRef<Generation>,
{
    /// None where there can be no candidate.
    pub(super) fn new(pipeline: &Arc<Pipeline>, metrics: &Metrics) -> Option<Self> {
        let client = pipeline.candidate_client()?;
        let recorder = pipeline.tap_recorder();
        Some(Self {
            pipeline: Arc::clone(pipeline),
            state: RefCell::new(State {
                client,
                slots: Vec::new(),
                free: Vec::new(),
                arrived: VecDeque::new(),
                complete: VecDeque::new(),
                bytes: 0,
                scratch: Scratch::new(metrics, KeyCounts::Off, Some(recorder)),
                sums: CandidateSums::default(),
            }),
            is_due: Cell::new(false),
            waker: RefCell::new(None),
        })
    }

    /// Takes over a request whose response was written, and leaves the memory of another one.
    pub(super) fn put(&self, pending: &mut PendingRequest<G>) {
        let mut state = self.state.borrow_mut();
        let bytes = state.bytes.saturating_add(pending.message_bytes());
        let fits = bytes <= WAITING_BYTES_MAX;
        let Some(ticket) = fits.then(|| state.free_slot()).flatten() else {
            self.pipeline.skip_candidate();
            return;
        };
        state.bytes = bytes;
        if let Some(slot) = state.slots.get_mut(ticket as usize) {
            slot.bytes = pending.message_bytes();
            mem::swap(&mut slot.pending, pending);
        }
        state.arrived.push_back(ticket);
        self.is_due.set(true);
    }

    /// Wakes the task, if there is something to decide.
    pub(super) fn end_turn(&self) {
        if self.is_due.get()
            && let Some(waker) = self.waker.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }

    /// Decides without end.
    pub(super) async fn run(self: Rc<Self>) -> Infallible {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// One turn: plans and sends what has arrived, and decides what was answered.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Infallible> {
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
            for _ in 0..TURN_MAX {
                let Some(ticket) = state.arrived.pop_front() else {
                    break;
                };
                self.start(state, ticket);
            }
            state.client.send();
            self.is_due.set(!state.arrived.is_empty());
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
            let now_us = self.pipeline.uptime_us();
            for _ in 0..TURN_MAX {
                let Some(ticket) = state.complete.pop_front() else {
                    break;
                };
                self.finish(state, ticket, now_us);
            }
            state.sums.flush();
        }
        if self.is_due.get() || !state.complete.is_empty() {
            // Behind the tasks that are ready.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Plans the checks of a request, and adds them to the batch.
    fn start(&self, state: &mut State<G>, ticket: Ticket) {
        let Some(slot) = state.slots.get_mut(ticket as usize) else {
            return;
        };
        slot.replies_due = 0;
        if !self
            .pipeline
            .begin_candidate(&mut slot.pending, &mut state.scratch)
        {
            state.release(ticket);
            return;
        }
        let checks = slot.pending.checks();
        if !checks.is_empty() {
            let mode = slot.pending.commit_mode();
            match state.client.add(ticket, checks, Deadline::NEVER, mode) {
                Ok(replies) => slot.replies_due = replies,
                Err(error) => slot.pending.results().fail(error),
            }
        }
        if slot.replies_due == 0 {
            state.complete.push_back(ticket);
        }
    }

    fn finish(&self, state: &mut State<G>, ticket: Ticket, now_us: u64) {
        if let Some(slot) = state.slots.get_mut(ticket as usize) {
            let (scratch, sums) = (&mut state.scratch, &mut state.sums);
            self.pipeline
                .finish_candidate(&mut slot.pending, scratch, sums, now_us);
        }
        state.release(ticket);
    }
}

// === impl State ===

impl<G> State<G> {
    /// A slot for one more request; none when as many wait as may.
    fn free_slot(&mut self) -> Option<Ticket> {
        if let Some(ticket) = self.free.pop() {
            return Some(ticket);
        }
        let ticket = Ticket::try_from(self.slots.len()).ok()?;
        (self.slots.len() < WAITING_MAX).then(|| {
            self.slots.push(Slot::default());
            ticket
        })
    }

    /// Frees a slot.
    fn release(&mut self, ticket: Ticket) {
        if let Some(slot) = self.slots.get_mut(ticket as usize) {
            self.bytes = self.bytes.saturating_sub(slot.bytes);
            slot.pending.clear(KEPT_MESSAGE_BYTES_MAX);
        }
        self.free.push(ticket);
    }
}

// === impl Slot ===

impl<G> Slot<G> {
    /// Records a part of the answers. True when it was the last one due.
    fn record(&mut self, reply: PartialReply<'_>) -> bool {
        self.pending.results().record_reply(reply);
        self.replies_due = self.replies_due.saturating_sub(1);
        self.replies_due == 0
    }
}

impl<G> Default for Slot<G> {
    fn default() -> Self {
        Self {
            pending: PendingRequest::default(),
            replies_due: 0,
            bytes: 0,
        }
    }
}
