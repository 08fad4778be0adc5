//! What one core does with requests: plan, ask, wait, conclude, answer.
//!
//! How: a connection hands in a message; it is read and planned at once. What needs no store is answered at once. The rest
//! is put to what the core asks next, and waits in a slot whose number travels with the checks. One task of the core
//! ([`Core::answer`]) runs when the connections that were ready have had their turn: it sends one message a partition for
//! all of them, and when answers come it concludes, has each answer written into its connection's buffer.
//! The connections, woken by that, flush once each.
//!
//! Slots, sheets, vectors and buffers are used again and again: from a message in hand to its answer in the buffer
//! nothing is allocated in the steady state (`allocations`).
//!
//! What it deliberately does not do: read sockets, know which store it asks, share anything with another core but what the
//! store's mailboxes and the counters are.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use prost::Message as _;
use tokio::task;

use super::read::read;
use super::respond::Respond;
use super::write::{FRAME_HEAD_BYTES, frame_bytes, write};
use crate::limiter::{Decision, Plan, Request, Sheet, Status};
use crate::metrics::{Counts, LocalHistogram, Metrics};
use crate::service::Generation;
use crate::service::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::service::ratelimit::{Came, RateLimit, Unanswered, terms};
use crate::store::{Asking, Deadline, Share, StoreError, Ticket, Trial};
use crate::telemetry::{Answered, Span, TraceParent};

/// How many slots are kept for another time.
const IDLE_SLOTS_MAX: usize = 4_096;

/// How much memory a slot keeps of the request that lay in it.
const KEPT_BODY_BYTES_MAX: usize = 1_024;

/// One core, which answers callers of a kind.
pub(super) struct Core<R> {
    service: Arc<RateLimit>,
    metrics: Arc<Metrics>,
    message_size_max: usize,
    desk: RefCell<Desk<R>>,
    /// Something was added that was not yet asked.
    to_ask: Cell<bool>,
    /// The task that asks and answers.
    answering: RefCell<Option<Waker>>,
    /// The uptime of this turn; none until somebody asks.
    turn_us: Cell<Option<u64>>,
}

/// What lies on a core's desk.
struct Desk<R> {
    asking: Box<dyn Asking>,
    /// Requests that wait for answers; a ticket is a place here.
    slots: Vec<Slot<R>>,
    /// Places that are free.
    free: Vec<Ticket>,
    /// Places whose answers have all come.
    complete: VecDeque<Ticket>,
    generation: Option<Rc<Held>>,
    counts: Counts,
    took: LocalHistogram,
    // What is used again and again.
    request: Request<'static>,
    statuses: Vec<Status<'static>>,
    rest: Vec<u8>,
}

/// What a request came to before any store was asked.
enum Begun {
    /// It passes a bound; this is the answer.
    Beyond(Decision<'static>),
    /// It is to be planned by these rules.
    Ask(Rc<Held>),
}

/// A generation of rules as a core holds it: requests count it with a count that no other core touches.
struct Held(Arc<Generation>);

/// A request that waits.
struct Slot<R> {
    waiting: Option<Waiting<R>>,
    /// The request's frame, where the answer will speak of it.
    body: Vec<u8>,
    sheet: Sheet,
    came: Came,
    /// In how many shares answers are still to come.
    shares: usize,
}

struct Waiting<R> {
    respond: R,
    generation: Rc<Held>,
    began_us: u64,
    /// What tells of it, where it is traced.
    span: Option<Box<Span>>,
}

/// A request that the fast path does not support.
#[derive(Debug)]
pub(super) struct NotTaken;

// === impl Core ===

impl<R: Respond> Core<R> {
    /// A core that decides by `service`; none when the store has no way to ask for many at once.
    pub(super) fn new(
        service: &Arc<RateLimit>,
        metrics: &Arc<Metrics>,
        message_size_max: usize,
    ) -> Option<Self> {
        let desk = Desk {
            asking: service.asking()?,
            slots: Vec::new(),
            free: Vec::new(),
            complete: VecDeque::new(),
            generation: None,
            counts: Counts::default(),
            took: metrics.requests.response_time.local(),
            request: Request::default(),
            statuses: Vec::new(),
            rest: Vec::new(),
        };
        Some(Self {
            service: Arc::clone(service),
            metrics: Arc::clone(metrics),
            message_size_max,
            desk: RefCell::new(desk),
            to_ask: Cell::new(false),
            answering: RefCell::new(None),
            turn_us: Cell::new(None),
        })
    }

    /// Takes a call of ShouldRateLimit: a gRPC frame, whole. What it is not sure of it leaves alone.
    pub(super) fn take(
        &self,
        body: &[u8],
        timeout_us: Option<u64>,
        parent: Option<TraceParent>,
        respond: R,
    ) -> Result<(), NotTaken> {
        let began_us = self.turn_us();
        let mut desk = self.desk.borrow_mut();
        let desk = &mut *desk;
        let mut request = std::mem::take(&mut desk.request).emptied();
        let understood = self
            .message(body)
            .and_then(|message| read(message, self.service.obeyed(), &mut request));
        if understood.is_none() {
            desk.request = request.emptied();
            respond.leave();
            return Err(NotTaken);
        }
        desk.counts.requests = desk.counts.requests.saturating_add(1);
        self.to_ask.set(true);
        let span = self.service.begin_span(parent, &request);
        match self.begin(desk, &request) {
            Err(unanswered) => {
                desk.request = request.emptied();
                desk.count_at_once(&self.metrics);
                self.refuse(respond, unanswered, span);
            }
            Ok(Begun::Beyond(decision)) => {
                desk.request = request.emptied();
                desk.count_at_once(&self.metrics);
                desk.say_in(respond, &decision, &RateLimitResponse::default());
                self.service
                    .end_span(span, Answered::Decided(&decision, None));
            }
            Ok(Begun::Ask(generation)) => {
                let ticket = desk.free_slot();
                let sheet = desk.sheet_of(ticket);
                let plan = self.service.plan(&generation.0, &request, sheet);
                if plan.matching_is_beyond() {
                    let beyond = self.service.beyond_matching(&plan);
                    desk.put_back(ticket, plan.into_sheet(), Came::default(), Vec::new());
                    desk.request = request.emptied();
                    desk.count_at_once(&self.metrics);
                    match beyond {
                        Ok(Some(decision)) => {
                            desk.say_in(respond, &decision, &RateLimitResponse::default());
                            self.service
                                .end_span(span, Answered::Decided(&decision, None));
                        }
                        Ok(None) => {}
                        Err(unanswered) => self.refuse(respond, unanswered, span),
                    }
                    return Ok(());
                }
                let terms = terms(&plan);
                let spoken_of =
                    self.service.speaks_of_requests() || RateLimit::labels_need_request(&plan);
                let sheet = plan.into_sheet();
                desk.request = request.emptied();
                let deadline = timeout_us.map_or(Deadline::NEVER, |timeout_us| {
                    Deadline::at_uptime_us(began_us.saturating_add(timeout_us))
                });
                let added = if sheet.checks().is_empty() {
                    Ok(0)
                } else {
                    desk.asking.add(ticket, sheet.checks(), deadline, terms)
                };
                let waiting = Waiting {
                    respond,
                    generation,
                    began_us,
                    span,
                };
                desk.wait(ticket, waiting, sheet, added);
                if spoken_of && let Some(slot) = desk.slots.get_mut(ticket as usize) {
                    slot.body.extend_from_slice(body);
                }
            }
        }
        Ok(())
    }

    /// A connection's turn is over: what it left is asked when the others have had theirs.
    pub(super) fn ask(&self) {
        self.turn_us.set(None);
        if self.to_ask.get()
            && let Some(answering) = self.answering.borrow().as_ref()
        {
            answering.wake_by_ref();
        }
    }

    /// Lets go of rules as soon as they are no longer in use. A core without requests would hold
    /// them, and the label sets of their metrics, until its next request.
    pub(super) async fn release_old_rules(self: Rc<Self>) {
        let mut changes = self.service.rules_changes();
        while changes.changed().await.is_ok() {
            self.desk.borrow_mut().release_old_rules(&self.service);
        }
    }

    /// Asks and answers for ever.
    pub(super) async fn answer(self: Rc<Self>) -> Infallible {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// One turn: asks what is to be asked, answers what is answered.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Infallible> {
        let mut answering = self.answering.borrow_mut();
        if !answering
            .as_ref()
            .is_some_and(|known| known.will_wake(cx.waker()))
        {
            *answering = Some(cx.waker().clone());
        }
        drop(answering);
        let mut desk = self.desk.borrow_mut();
        let desk = &mut *desk;
        if self.to_ask.replace(false) {
            desk.asking.send();
        }
        let (slots, complete) = (&mut desk.slots, &mut desk.complete);
        desk.asking.take_answers(cx, &mut |share| {
            let ticket = share.ticket;
            if let Some(slot) = slots.get_mut(ticket as usize)
                && slot.take(share)
            {
                complete.push_back(ticket);
            }
        });
        if !desk.complete.is_empty() {
            let now_us = self.turn_us();
            // One after the other: should a defect lose one, the others are still there.
            while let Some(ticket) = desk.complete.pop_front() {
                self.conclude(desk, ticket, now_us);
            }
        }
        // Before the answers of this turn leave: nobody sees one that is not counted.
        desk.counts.flush(&self.metrics);
        desk.took.flush();
        self.turn_us.set(None);
        Poll::Pending
    }

    /// The message in a frame; none when this is not one whole frame without compression, or a message too long.
    fn message<'b>(&self, body: &'b [u8]) -> Option<&'b [u8]> {
        let (head, message) = body.split_at_checked(FRAME_HEAD_BYTES)?;
        let (compressed, length) = head.split_first()?;
        let length = u32::from_be_bytes(length.try_into().ok()?);
        let whole = *compressed == 0
            && usize::try_from(length).ok()? == message.len()
            && message.len() <= self.message_size_max;
        whole.then_some(message)
    }

    fn begin(&self, desk: &mut Desk<R>, request: &Request<'_>) -> Result<Begun, Unanswered> {
        match self.service.beyond(request)? {
            Some(answer) => Ok(Begun::Beyond(answer)),
            None => desk.present(&self.service).map(Begun::Ask),
        }
    }

    fn conclude(&self, desk: &mut Desk<R>, ticket: Ticket, now_us: u64) {
        let Some(slot) = desk.slots.get_mut(ticket as usize) else {
            return;
        };
        let (mut came, sheet) = (
            std::mem::take(&mut slot.came),
            std::mem::take(&mut slot.sheet),
        );
        let Some(waiting) = slot.waiting.take() else {
            return;
        };
        let mut body = std::mem::take(&mut slot.body);
        let Waiting {
            respond,
            generation,
            began_us,
            span,
        } = waiting;
        // What was taken on trial for a caller that has gone goes back.
        let gone = came.trial.is_some() && respond.is_gone();
        let plan = Plan::read_from(sheet, &generation.0.rules);
        if gone {
            self.service.end_span(span, Answered::Error("CANCELLED"));
        } else {
            let mut request = Request::default();
            if RateLimit::labels_need_request(&plan)
                && let Some(message) = self.message(&body)
            {
                request = std::mem::take(&mut desk.request).emptied();
                // It was understood before.
                let _ = read(message, self.service.obeyed(), &mut request);
            }
            let statuses = std::mem::take(&mut desk.statuses);
            let decided = self.service.decide(
                &generation.0,
                &request,
                &plan,
                &mut came,
                statuses,
                &mut desk.counts,
            );
            if !request.is_empty() {
                desk.request = request.emptied();
            }
            match decided {
                Ok(decision) => {
                    let mut rest = RateLimitResponse::default();
                    let message = self
                        .service
                        .speaks_of_requests()
                        .then(|| self.by_prost(&body));
                    let message = message.flatten();
                    self.service
                        .add_rest(&mut rest, message.as_ref(), &plan, &decision);
                    desk.say_in(respond, &decision, &rest);
                    self.service
                        .end_span(span, Answered::Decided(&decision, Some(&plan)));
                    desk.statuses = decision.into_emptied_statuses();
                }
                Err(unanswered) => self.refuse(respond, unanswered, span),
            }
            let took_us = now_us.saturating_sub(began_us);
            #[allow(clippy::cast_precision_loss)] // a latency of 2^53 µs is not one
            desk.took.observe(took_us as f64 / 1e6);
        }
        came.trial = None;
        body.clear();
        desk.put_back(ticket, plan.into_sheet(), came, body);
    }

    fn by_prost(&self, body: &[u8]) -> Option<RateLimitRequest> {
        RateLimitRequest::decode(self.message(body)?).ok()
    }

    /// Answers with a gRPC error.
    fn refuse(&self, respond: R, unanswered: Unanswered, span: Option<Box<Span>>) {
        self.service.count_unanswered(&unanswered);
        self.service
            .end_span(span, Answered::Error(unanswered.grpc_code()));
        respond.refuse(unanswered);
    }

    /// The uptime, read once a turn.
    fn turn_us(&self) -> u64 {
        self.turn_us.get().unwrap_or_else(|| {
            let now_us = self.service.uptime_us();
            self.turn_us.set(Some(now_us));
            now_us
        })
    }
}

// === impl Desk ===

impl<R: Respond> Desk<R> {
    /// The rules in use, held by this core's own count.
    fn present(&mut self, service: &RateLimit) -> Result<Rc<Held>, Unanswered> {
        if let Some(generation) = &self.generation
            && service.is_present(&generation.0)
        {
            return Ok(Rc::clone(generation));
        }
        let generation = Rc::new(Held(service.present()?));
        self.generation = Some(Rc::clone(&generation));
        Ok(generation)
    }

    fn release_old_rules(&mut self, service: &RateLimit) {
        let old = self.generation.take_if(|held| !service.is_present(&held.0));
        if let Some(Held(generation)) = old.and_then(Rc::into_inner)
            && let Some(last) = Arc::into_inner(generation)
        {
            // Thousands of rules take milliseconds to free, and requests would wait for them.
            task::spawn_blocking(move || drop(last));
        }
    }

    /// Counts a request whose answer may leave before the core has its turn.
    fn count_at_once(&mut self, metrics: &Metrics) {
        self.took.observe(0.0);
        self.counts.flush(metrics);
        self.took.flush();
    }

    fn free_slot(&mut self) -> Ticket {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            // Streams are bounded, and no machine has room for so many.
            Ticket::try_from(self.slots.len().saturating_sub(1)).unwrap_or(Ticket::MAX)
        })
    }

    fn sheet_of(&mut self, ticket: Ticket) -> Sheet {
        let slot = self.slots.get_mut(ticket as usize);
        slot.map(|slot| std::mem::take(&mut slot.sheet))
            .unwrap_or_default()
    }

    /// Lays a request into its slot, until its answers have come.
    fn wait(
        &mut self,
        ticket: Ticket,
        waiting: Waiting<R>,
        sheet: Sheet,
        added: Result<usize, StoreError>,
    ) {
        let Some(slot) = self.slots.get_mut(ticket as usize) else {
            return;
        };
        slot.came.await_answers(sheet.checks().len());
        slot.sheet = sheet;
        slot.waiting = Some(waiting);
        slot.shares = added.unwrap_or_else(|error| {
            slot.came.error = Some(error);
            0
        });
        if slot.shares == 0 {
            self.complete.push_back(ticket);
        }
    }

    /// Frees a slot; what it held is used again.
    fn put_back(&mut self, ticket: Ticket, sheet: Sheet, came: Came, body: Vec<u8>) {
        if let Some(slot) = self.slots.get_mut(ticket as usize)
            && (ticket as usize) < IDLE_SLOTS_MAX
        {
            slot.sheet = sheet;
            slot.came = came;
            if body.capacity() <= KEPT_BODY_BYTES_MAX {
                slot.body = body;
            }
        }
        self.free.push(ticket);
    }

    /// Answers with a decision, and what stands behind it in the message.
    fn say_in(&mut self, respond: R, decision: &Decision<'_>, rest: &RateLimitResponse) {
        self.rest.clear();
        if rest.encoded_len() > 0 {
            // A vector always has room.
            let _ = rest.encode(&mut self.rest);
        }
        let rest = &self.rest;
        respond.answer(frame_bytes(decision, rest), |into| {
            write(decision, rest, into);
        });
    }
}

// === impl Slot ===

impl<R> Slot<R> {
    /// Takes a share of the answers. Says whether it was the last.
    fn take(&mut self, share: Share<'_>) -> bool {
        for (position, answer) in share.positions.iter().zip(share.answers) {
            self.came.take(*position, answer.clone());
        }
        Trial::join(&mut self.came.trial, share.trial);
        self.shares = self.shares.saturating_sub(1);
        self.shares == 0
    }
}

impl<R> Default for Slot<R> {
    fn default() -> Self {
        Self {
            waiting: None,
            body: Vec::new(),
            sheet: Sheet::default(),
            came: Came::default(),
            shares: 0,
        }
    }
}
