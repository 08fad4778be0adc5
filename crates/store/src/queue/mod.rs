//! Queues: the way of checks to the workers that decide them.
//!
//! The memory store has one worker per partition and the Redis store one per server. Both need an
//! exact bound, one message for all checks that are ready, answers in the order of the checks, and
//! tentative takes that are never lost on the way.
//!
//! One message per request, with a channel of its own for the answer, costs several times what a
//! decision costs. So the checks of many requests travel in a [`Batch`], and their results come
//! back in it. It is reused with its vectors: in the steady state neither side allocates.
//!
//! [`Route`] chooses the queue of a check. A request with checks in several queues waits for all of
//! them. The bound counts checks: space is reserved in every queue concerned before anything is
//! sent, so a request that does not fit is rejected as a whole, at once. Later a single check may
//! stay undecided; the others keep their outcomes.
//!
//! Refunds have no bound here.

mod batch_client;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendError;

pub use self::batch_client::QueueBatchClient;
use crate::{
    BatchStamp, CheckResult, Deadline, Purpose, Refund, RefundSink, StoreError, TentativeTake,
    Ticket,
};
use tollgate_limiter::{Check, Key};
use tollgate_telemetry::metrics::{Counter, Metrics, PartitionLevels};

/// A message to a worker.
pub enum Message {
    /// Decide these checks.
    Decide(Box<Batch>),
    /// Carry out these refunds.
    Refund(Vec<Refund>),
}

/// Checks for one worker, and then their results.
#[derive(Default)]
pub struct Batch {
    /// One per request, in order.
    pub requests: Vec<BatchRequest>,
    /// The checks of all requests, in order.
    pub checks: Vec<Check>,
    /// The position of each check in its request.
    pub positions: Vec<usize>,
    /// One per check, once decided.
    pub answers: Vec<CheckResult>,
    /// Where refunds of tentative takes go; none when nothing is tentative.
    pub refund_sink: Option<Arc<dyn RefundSink>>,
    /// Where the batch goes once decided.
    pub reply: Option<mpsc::UnboundedSender<Box<Batch>>>,
}

/// The checks of one request in a batch.
pub struct BatchRequest {
    /// Names it, for its client.
    pub ticket: Ticket,
    /// How many of the batch's checks it has.
    pub checks: usize,
    /// When its results are of no use any more.
    pub deadline: Deadline,
    /// What becomes of its checks.
    pub purpose: Purpose,
    /// Whether its results come in another batch.
    pub is_elsewhere: bool,
    /// Its tentative takes, once decided.
    pub tentative: Option<TentativeTake>,
    /// When its checks were decided, while a recording runs.
    pub stamp: Option<BatchStamp>,
}

/// One queue per worker. Never empty, never changed.
#[derive(Debug)]
pub struct Queues {
    each: Vec<Queue>,
    route: Route,
    limits: QueueLimits,
}

/// Which queue a check goes to.
#[derive(Clone, Debug)]
pub enum Route {
    /// By its key, evenly.
    ByKey,
    /// As the selector says; the answer may change over time.
    Selected(Arc<dyn QueueSelector>),
}

/// Chooses queues by number.
pub trait QueueSelector: fmt::Debug + Send + Sync {
    /// The number of the queue of this check now.
    fn queue_of(&self, check: &Check) -> usize;
}

/// The limits of the queues, and the error when one is full.
#[derive(Debug)]
pub struct QueueLimits {
    /// How many checks may wait in each.
    pub waiting_max: usize,
    /// How much the checks of one message may weigh. A check that weighs more goes alone.
    pub batch_weight_max: usize,
    /// The weight of a check.
    pub weigh: fn(&Check) -> usize,
    /// The error when a queue is full.
    pub full: StoreError,
    /// Counts checks that met a full queue.
    pub shed: Counter,
}

/// The sending side of a worker's queue.
#[derive(Debug)]
pub struct Queue {
    /// Unbounded, because `levels.waiting` is the bound, in checks, and needs no lock.
    pub sender: mpsc::UnboundedSender<Message>,
    /// Counts what waits.
    pub levels: Arc<PartitionLevels>,
    /// What decides a few checks without the worker; none where only the worker can.
    pub inline: Option<Arc<dyn InlineDecider>>,
}

/// Decides a few checks in the thread that has them, while the worker rests.
pub trait InlineDecider: fmt::Debug + Send + Sync {
    /// A message is about to be sent to the worker. Until it has been carried out, nothing else is
    /// decided before it.
    fn expect_message(&self);

    /// Decides a batch whose checks have space in the queue, unless a message waits or another task
    /// decides. Returns whether it did. The space is then free again.
    fn try_decide(&self, batch: &mut Batch) -> bool;
}

// === impl Batch ===

impl Batch {
    /// Adds a check to the last request.
    pub fn push(&mut self, position: usize, check: Check) {
        self.positions.push(position);
        self.checks.push(check);
        if let Some(request) = self.requests.last_mut() {
            request.checks += 1;
        }
    }

    /// Whether the caller has left.
    pub fn is_abandoned(&self) -> bool {
        self.reply
            .as_ref()
            .is_none_or(mpsc::UnboundedSender::is_closed)
    }

    /// Whether it asks to forget buckets. Such a batch has no other request.
    pub fn is_reset(&self) -> bool {
        let first = self.requests.first();
        first.is_some_and(|first| first.purpose == Purpose::Reset)
    }

    /// Gives every check this error.
    pub fn answer_all(&mut self, error: &StoreError) {
        self.answers.clear();
        let undecided = self.checks.iter().map(|_| Err(error.clone()));
        self.answers.extend(undecided);
    }

    /// Sends the batch back. If the caller has left, tentative takes are given back with the
    /// dropped batch, and other takes stay.
    pub fn send_back(mut self: Box<Self>) {
        if let Some(reply) = self.reply.take() {
            drop(reply.send(self));
        }
    }

    /// Empties the batch and keeps its memory.
    fn clear(&mut self) {
        self.requests.clear();
        self.checks.clear();
        self.positions.clear();
        self.answers.clear();
        self.refund_sink = None;
    }
}

// === impl BatchRequest ===

impl BatchRequest {
    /// A request that has no checks yet.
    pub fn new(ticket: Ticket, deadline: Deadline, purpose: Purpose) -> Self {
        Self {
            ticket,
            checks: 0,
            deadline,
            purpose,
            is_elsewhere: false,
            tentative: None,
            stamp: None,
        }
    }

    /// Keeps what its decided checks took, if it takes tentatively.
    pub fn keep_tentative(
        &mut self,
        sink: Option<&Arc<dyn RefundSink>>,
        checks: &[Check],
        answers: &[CheckResult],
    ) {
        if self.purpose == Purpose::DecideTentatively
            && let Some(sink) = sink
        {
            let first_order = self.stamp.map_or(0, |stamp| stamp.order);
            let decided = checks.iter().zip(answers);
            self.tentative = Some(TentativeTake::new(Arc::clone(sink), decided, first_order));
        }
    }
}

// === impl Queues ===

impl Queues {
    /// Queues with these limits. There must be at least one.
    pub fn new(each: Vec<Queue>, route: Route, limits: QueueLimits) -> Self {
        Self {
            each,
            route,
            limits,
        }
    }

    /// The levels of each queue's worker.
    pub fn levels(&self) -> impl Iterator<Item = &Arc<PartitionLevels>> {
        self.each.iter().map(|queue| &queue.levels)
    }

    /// The queue of a check. A partition's table uses the lower half of the key, so the upper half
    /// chooses the partition.
    fn number_of(&self, check: &Check) -> usize {
        match &self.route {
            Route::ByKey => partition_of(check.key, self.each.len()),
            Route::Selected(selector) => selector.queue_of(check),
        }
    }
}

impl RefundSink for Queues {
    fn refund(&self, refunds: Vec<Refund>) {
        let mut by_queue = BTreeMap::<usize, Vec<Refund>>::new();
        for refund in refunds {
            let number = self.number_of(&refund.check);
            by_queue.entry(number).or_default().push(refund);
        }
        for (number, refunds) in by_queue {
            if let Some(queue) = self.each.get(number) {
                // A worker that has ended has dropped its buckets, or counts the lost refunds
                // itself.
                drop(queue.send(Message::Refund(refunds)));
            }
        }
    }
}

/// The partition of a key, of so many.
pub fn partition_of(key: Key, count: usize) -> usize {
    let upper = key.0.checked_shr(64).unwrap_or_default();
    let number = upper.checked_rem(count as u128).unwrap_or_default();
    usize::try_from(number).unwrap_or_default()
}

// === impl QueueLimits ===

impl QueueLimits {
    /// Those of partitions in this process, each with space for so many checks.
    pub fn of_partitions(waiting_max: usize, metrics: &Metrics) -> Self {
        Self {
            waiting_max,
            batch_weight_max: usize::MAX,
            weigh: |_| 1,
            full: StoreError::Overloaded { waiting_max },
            shed: metrics.buckets.shed_mailbox_full.clone(),
        }
    }
}

// === impl Queue ===

impl Queue {
    /// Sends a message to the worker. Gives it back when there is none any more.
    fn send(&self, message: Message) -> Result<(), SendError<Message>> {
        if let Some(inline) = &self.inline {
            inline.expect_message();
        }
        self.sender.send(message)
    }

    /// Reserves space for this many checks, so that at no instant more than `waiting_max` wait,
    /// whatever other callers reserve. Returns whether there was space.
    fn reserve(&self, checks: usize, waiting_max: usize) -> bool {
        let more = |waiting: usize| {
            let waiting = waiting.checked_add(checks)?;
            (waiting <= waiting_max).then_some(waiting)
        };
        self.levels
            .waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_ok()
    }
}
