//! Queues: the way of checks to the workers that decide them.
//!
//! The memory store has one worker per partition and the Redis store one per server. Both need an
//! exact bound, one message for all checks that are ready, answers in the order of the checks, and
//! tentative takes that are never lost on the way.
//!
//! [`Route`] chooses the queue of a check. A request with checks in several queues waits for all of
//! them. The bound counts checks: space is reserved in every queue concerned before anything is
//! sent, so a request that does not fit is rejected as a whole, at once. Later a single check may
//! stay undecided; the others keep their outcomes.
//!
//! Refunds have no bound here.

mod batch;
mod batch_client;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendError;

pub(crate) use self::batch::{Batch, BatchRequest};
pub(crate) use self::batch_client::QueueBatchClient;
use crate::metrics::{Counter, PartitionLevels};
use crate::store::{RefundSink, StoreError};
use tollgate_limiter::{Check, Key};

/// A message to a worker.
pub(crate) enum Message {
    /// Decide these checks.
    Decide(Box<Batch>),
    /// Carry out these refunds.
    Refund(Vec<Check>, TakenOrders),
}

/// The numbers of the checks that took what is refunded, one for each refund. Empty where no
/// recording ran.
pub(crate) type TakenOrders = Vec<u64>;

/// One queue per worker. Never empty, never changed.
#[derive(Debug)]
pub(crate) struct Queues {
    each: Vec<Queue>,
    route: Route,
    bounds: QueueLimits,
}

/// Which queue a check goes to.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// By its key, evenly.
    ByKey,
    /// As the selector says; the answer may change over time.
    Selected(Arc<dyn QueueSelector>),
}

/// Chooses queues by number.
pub(crate) trait QueueSelector: fmt::Debug + Send + Sync {
    fn queue_of(&self, check: &Check) -> usize;
}

/// The limits of the queues, and the error when one is full.
#[derive(Debug)]
pub(crate) struct QueueLimits {
    /// How many checks may wait in each.
    pub(crate) waiting_max: usize,
    /// How much the checks of one message may weigh. A check that weighs more goes alone.
    pub(crate) batch_weight_max: usize,
    /// The weight of a check.
    pub(crate) weigh: fn(&Check) -> usize,
    /// The error when a queue is full.
    pub(crate) full: StoreError,
    /// Counts checks that met a full queue.
    pub(crate) shed: Counter,
}

/// The sending side of a worker's queue.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Unbounded, because `levels.waiting` is the bound, in checks, and needs no lock.
    pub(crate) sender: mpsc::UnboundedSender<Message>,
    pub(crate) levels: Arc<PartitionLevels>,
    /// What decides a few checks without the worker; none where only the worker can.
    pub(crate) inline: Option<Arc<dyn InlineDecider>>,
}

/// Decides a few checks in the thread that has them, while the worker rests.
pub(crate) trait InlineDecider: fmt::Debug + Send + Sync {
    /// A message is about to be sent to the worker. Until it has been carried out, nothing else is
    /// decided before it.
    fn expect_message(&self);

    /// Decides a batch whose checks have space in the queue, unless a message waits or another task
    /// decides. Returns whether it did. The space is then free again.
    fn try_decide(&self, batch: &mut Batch) -> bool;
}

/// Space reserved in a queue; freed unless something is sent.
struct QueuePermit<'m> {
    waiting: &'m AtomicUsize,
    checks: usize,
}

// === impl Queues ===

impl Queues {
    /// Queues with these limits. There must be at least one.
    pub(crate) fn new(queues: Vec<Queue>, route: Route, bounds: QueueLimits) -> Self {
        Self {
            each: queues,
            route,
            bounds,
        }
    }

    /// The levels of each queue's worker.
    pub(crate) fn levels(&self) -> impl Iterator<Item = &Arc<PartitionLevels>> {
        self.each.iter().map(|queue| &queue.levels)
    }

    /// The queue of a check. A partition's table uses the lower half of the key, so the upper half
    /// chooses the partition.
    fn number_of(&self, check: &Check) -> usize {
        match &self.route {
            Route::ByKey => partition_of(check.key, self.each.len()),
            Route::Selected(choose) => choose.queue_of(check),
        }
    }

    /// The error when a queue is full. Counts the checks.
    fn full(&self, checks: usize) -> StoreError {
        self.bounds.shed.inc_by(checks as u64);
        self.bounds.full.clone()
    }
}

impl RefundSink for Queues {
    fn refund(&self, checks: Vec<Check>) {
        self.refund_recorded(checks, Vec::new());
    }

    fn refund_recorded(&self, checks: Vec<Check>, orders: Vec<u64>) {
        let mut by_queue = BTreeMap::<usize, (Vec<Check>, TakenOrders)>::new();
        for (place, check) in checks.into_iter().enumerate() {
            let (checks, of_queue) = by_queue.entry(self.number_of(&check)).or_default();
            checks.push(check);
            of_queue.extend(orders.get(place));
        }
        for (number, (checks, orders)) in by_queue {
            if let Some(queue) = self.each.get(number) {
                // A worker that has ended has dropped its buckets, or counts the lost refunds
                // itself.
                drop(queue.send(Message::Refund(checks, orders)));
            }
        }
    }
}

/// The partition of a key, of so many.
pub(crate) fn partition_of(key: Key, count: usize) -> usize {
    let upper = key.0.checked_shr(64).unwrap_or_default();
    let number = upper.checked_rem(count as u128).unwrap_or_default();
    usize::try_from(number).unwrap_or_default()
}

// === impl Message ===

impl Message {
    /// How many checks it carries.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Decide(batch) => batch.checks.len(),
            Self::Refund(checks, _) => checks.len(),
        }
    }
}

// === impl Queue ===

impl Queue {
    /// A queue whose checks are all decided by its worker.
    pub(crate) fn new(
        sender: mpsc::UnboundedSender<Message>,
        levels: Arc<PartitionLevels>,
    ) -> Self {
        Self {
            sender,
            levels,
            inline: None,
        }
    }

    /// Sends a message to the worker. Gives it back when there is none any more.
    fn send(&self, message: Message) -> Result<(), SendError<Message>> {
        if let Some(inline) = &self.inline {
            inline.expect_message();
        }
        self.sender.send(message)
    }

    /// Reserves space for this many checks, so that at no instant more than `waiting_max` wait,
    /// whatever other callers reserve.
    fn reserve(&self, checks: usize, waiting_max: usize) -> Option<QueuePermit<'_>> {
        let waiting = &self.levels.waiting;
        let more = |waiting: usize| {
            let waiting = waiting.checked_add(checks)?;
            (waiting <= waiting_max).then_some(waiting)
        };
        waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .ok()?;
        Some(QueuePermit { waiting, checks })
    }
}

// === impl QueuePermit ===

impl QueuePermit<'_> {
    /// The checks are sent: the worker frees the space.
    fn keep(mut self) {
        self.checks = 0;
    }
}

impl Drop for QueuePermit<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.checks, Ordering::AcqRel);
    }
}
