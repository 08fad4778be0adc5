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
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate_limiter::Request;

use super::decide::CandidateScratch;
use crate::pipeline::Pipeline;
use crate::pipeline::in_flight::{InFlight, Slot, register};
use crate::pipeline::pending::PendingRequest;
use tollgate_store::{Deadline, Ticket};
use tollgate_telemetry::metrics::CandidateSums;

/// How many requests of a thread wait.
const WAITING_MAX: usize = 4_096;

/// How many bytes their messages have together.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// How many requests are planned, and how many decided, before the connections run again.
const TURN_MAX: usize = 64;

/// How many bytes of its last request's message a free slot keeps.
const KEPT_MESSAGE_BYTES_MAX: usize = 1_024;

/// Decides the candidate's part of a thread's requests.
pub struct CandidateBatcher {
    pipeline: Arc<Pipeline>,
    state: RefCell<State>,
    is_due: Cell<bool>,
    /// Wakes the task that runs [`CandidateBatcher::run`].
    waker: RefCell<Option<Waker>>,
}

struct State {
    in_flight: InFlight<PendingRequest>,
    /// Requests whose checks are not planned yet.
    arrived: VecDeque<Ticket>,
    /// Bytes of the messages of all that wait.
    bytes: usize,
    scratch: CandidateScratch,
    sums: CandidateSums,
}

// === impl CandidateBatcher ===

impl CandidateBatcher {
    /// None where there can be no candidate.
    pub(in crate::pipeline) fn new(pipeline: &Arc<Pipeline>) -> Option<Self> {
        let client = pipeline.candidates.as_ref()?.0.batch_client();
        Some(Self {
            pipeline: Arc::clone(pipeline),
            state: RefCell::new(State {
                in_flight: InFlight::new(client),
                arrived: VecDeque::new(),
                bytes: 0,
                scratch: CandidateScratch {
                    request: Request::default(),
                    statuses: Vec::new(),
                    taps: pipeline.decisions.tap_recorder(),
                },
                sums: CandidateSums::default(),
            }),
            is_due: Cell::new(false),
            waker: RefCell::new(None),
        })
    }

    /// Takes over a request whose response was written, and leaves the memory of another one.
    pub(in crate::pipeline) fn put(&self, pending: &mut PendingRequest) {
        let mut state = self.state.borrow_mut();
        let bytes = state.bytes.saturating_add(pending.message.len());
        let fits = bytes <= WAITING_BYTES_MAX;
        let slot = fits.then(|| state.in_flight.take_slot(WAITING_MAX));
        let Some(ticket) = slot.flatten() else {
            self.pipeline.metrics.candidates.skipped_queue_full.inc();
            return;
        };
        state.bytes = bytes;
        if let Some(waiting) = state.in_flight.get(ticket) {
            mem::swap(waiting, pending);
        }
        state.arrived.push_back(ticket);
        self.is_due.set(true);
    }

    /// Wakes the task, if there is something to decide.
    pub(in crate::pipeline) fn end_turn(&self) {
        if self.is_due.get()
            && let Some(waker) = self.waker.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }

    /// Decides without end.
    pub(in crate::pipeline) async fn run(self: Rc<Self>) -> Infallible {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// One turn: plans and sends what has arrived, and decides what was answered.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Infallible> {
        register(&self.waker, cx);
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if self.is_due.replace(false) {
            for _ in 0..TURN_MAX {
                let Some(ticket) = state.arrived.pop_front() else {
                    break;
                };
                self.start(state, ticket);
            }
            state.in_flight.send();
            self.is_due.set(!state.arrived.is_empty());
        }
        state.in_flight.take_replies(cx);
        if !state.in_flight.complete.is_empty() {
            let now_us = self.pipeline.uptime_us();
            for _ in 0..TURN_MAX {
                let Some(ticket) = state.in_flight.complete.pop_front() else {
                    break;
                };
                self.finish(state, ticket, now_us);
            }
            state.sums.flush();
        }
        if self.is_due.get() || !state.in_flight.complete.is_empty() {
            // Behind the tasks that are ready.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Plans the checks of a request, and adds them to the batch.
    fn start(&self, state: &mut State, ticket: Ticket) {
        let Some(pending) = state.in_flight.get(ticket) else {
            return;
        };
        pending.deadline = Deadline::NEVER;
        if self.pipeline.begin_candidate(pending, &mut state.scratch) {
            state.in_flight.ask(ticket);
        } else {
            state.release(ticket);
        }
    }

    fn finish(&self, state: &mut State, ticket: Ticket, now_us: u64) {
        if let Some(pending) = state.in_flight.get(ticket) {
            let (scratch, sums) = (&mut state.scratch, &mut state.sums);
            self.pipeline
                .finish_candidate(pending, scratch, sums, now_us);
        }
        state.release(ticket);
    }
}

// === impl State ===

impl State {
    /// Frees a slot.
    fn release(&mut self, ticket: Ticket) {
        if let Some(pending) = self.in_flight.get(ticket) {
            self.bytes = self.bytes.saturating_sub(pending.message.len());
            pending.clear(KEPT_MESSAGE_BYTES_MAX);
        }
        self.in_flight.free(ticket);
    }
}

// === impl PendingRequest ===

impl Slot for PendingRequest {
    fn pending(&mut self) -> &mut PendingRequest {
        self
    }
}
