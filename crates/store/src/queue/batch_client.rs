//! A batch client for a store with queues: one message per worker, however many checks are ready.
//!
//! A message to another core wakes that core's thread, which costs as much as several decisions;
//! one message for all ready checks costs nearly nothing per check. Added checks wait in one batch
//! per queue until [`BatchClient::send`]. Replies are passed on request by request, and the empty
//! batch is kept for the next time.
//!
//! The bound on a queue stays exact: space is reserved before a check is added, for several checks
//! at a time while the queue is less than half full, and unused space is freed at the next send.
//!
//! A batch that has reached its weight limit is sent at once.
//!
//! A few checks are decided in this thread, if the worker has nothing to do ([`InlineDecider`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use super::{Batch, BatchRequest, Message, Queue, Queues};
use crate::{BatchClient, Deadline, PartialReply, Purpose, RefundSink, StoreError, Ticket};
use tollgate_limiter::Check;

/// For how many checks space is reserved at a time.
const RESERVE_CHECKS: usize = 64;

/// How many empty batches are kept per queue.
const IDLE_BATCHES_MAX_PER_QUEUE: usize = 4;

/// How many empty batches are kept in all: of many queues, few are in use.
const IDLE_BATCHES_MAX: usize = 256;

/// How many checks of a batch are decided in this thread.
const INLINE_CHECKS_MAX: usize = 16;

/// The capacity, in checks, up to which an empty batch is kept, so that the memory of a burst is
/// freed.
const IDLE_CHECKS_MAX: usize = 4_096;

/// The batch client of one task.
pub struct QueueBatchClient {
    queues: Arc<Queues>,
    /// One per queue.
    outgoing: Vec<Outgoing>,
    /// The queues of the checks that are being added.
    numbers: Vec<usize>,
    /// The queues to visit at the next send, some of them more than once: there may be many, of
    /// which few are in use.
    used: Vec<usize>,
    #[allow(clippy::vec_box)] // they go into channels as they are
    idle: Vec<Box<Batch>>,
    /// Batches that were answered without a worker: few checks, or the worker has ended.
    answered: VecDeque<Box<Batch>>,
    replies: mpsc::UnboundedReceiver<Box<Batch>>,
    reply: mpsc::UnboundedSender<Box<Batch>>,
}

/// What goes to one worker at the next send.
#[derive(Default)]
struct Outgoing {
    batch: Option<Box<Batch>>,
    /// The weight of the batch.
    weight: usize,
    /// For how many checks space is reserved and unused.
    reserved_checks: usize,
}

// === impl QueueBatchClient ===

impl QueueBatchClient {
    /// A client that sends to these queues.
    pub fn new(queues: Arc<Queues>) -> Self {
        let (reply, replies) = mpsc::unbounded_channel();
        let all = queues.each.iter();
        Self {
            outgoing: all.map(|_| Outgoing::default()).collect(),
            queues,
            numbers: Vec::new(),
            used: Vec::new(),
            idle: Vec::new(),
            answered: VecDeque::new(),
            replies,
            reply,
        }
    }

    /// Reserves space for every check or for none.
    fn reserve(&mut self, checks: &[Check]) -> bool {
        self.numbers.clear();
        for check in checks {
            let number = self.queues.number_of(check);
            let queue = self.queues.each.get(number);
            let outgoing = self.outgoing.get_mut(number);
            if let (Some(queue), Some(outgoing)) = (queue, outgoing) {
                let new = outgoing.reserved_checks == 0;
                if outgoing.reserve_one(queue, self.queues.limits.waiting_max) {
                    if new {
                        self.used.push(number);
                    }
                    self.numbers.push(number);
                    continue;
                }
            }
            for number in self.numbers.drain(..) {
                if let Some(outgoing) = self.outgoing.get_mut(number) {
                    outgoing.reserved_checks += 1;
                }
            }
            return false;
        }
        true
    }

    /// Passes on the results in a batch and keeps the batch.
    fn hand_out(&mut self, mut batch: Box<Batch>, take: &mut dyn FnMut(PartialReply<'_>)) {
        let mut from = 0;
        for request in &mut batch.requests {
            let own = from..from + request.checks;
            from = own.end;
            if !request.is_elsewhere {
                take(PartialReply {
                    ticket: request.ticket,
                    positions: batch.positions.get(own.clone()).unwrap_or_default(),
                    answers: batch.answers.get(own).unwrap_or_default(),
                    tentative: request.tentative.take(),
                    from_denial_cache: false,
                    local: &[],
                    stamp: request.stamp,
                });
            }
        }
        let idle_max = IDLE_BATCHES_MAX.min(self.outgoing.len() * IDLE_BATCHES_MAX_PER_QUEUE);
        if self.idle.len() < idle_max && batch.checks.capacity() <= IDLE_CHECKS_MAX {
            batch.clear();
            self.idle.push(batch);
        }
    }
}

impl BatchClient for QueueBatchClient {
    fn add(
        &mut self,
        ticket: Ticket,
        checks: &[Check],
        deadline: Deadline,
        purpose: Purpose,
    ) -> Result<usize, StoreError> {
        // A worker forgets buckets in a batch of their own.
        let is_alone = purpose == Purpose::Reset;
        if is_alone {
            self.send();
        }
        if !self.reserve(checks) {
            let limits = &self.queues.limits;
            limits.shed.inc_by(checks.len() as u64);
            return Err(limits.full.clone());
        }
        let mut parts = 0;
        for (position, (check, number)) in checks.iter().zip(&self.numbers).enumerate() {
            let Some(outgoing) = self.outgoing.get_mut(*number) else {
                continue;
            };
            let limits = &self.queues.limits;
            let weight = (limits.weigh)(check);
            if outgoing.weight.saturating_add(weight) > limits.batch_weight_max
                && let Some(full) = outgoing.take()
            {
                let unsent = self.queues.send_batch(*number, full, &self.reply);
                self.answered.extend(unsent);
            }
            let idle = &mut self.idle;
            let batch = outgoing
                .batch
                .get_or_insert_with(|| idle.pop().unwrap_or_default());
            let last = batch.requests.last();
            if last.is_none_or(|last| last.ticket != ticket) {
                parts += 1;
                let request = BatchRequest::new(ticket, deadline, purpose);
                batch.requests.push(request);
                if purpose == Purpose::DecideTentatively && batch.refund_sink.is_none() {
                    batch.refund_sink = Some(Arc::clone(&self.queues) as Arc<dyn RefundSink>);
                }
            }
            batch.push(position, check.clone());
            outgoing.weight += weight;
        }
        if is_alone {
            self.send();
        }
        Ok(parts)
    }

    fn send(&mut self) {
        for number in self.used.drain(..) {
            let outgoing = self.outgoing.get_mut(number);
            let (Some(outgoing), Some(queue)) = (outgoing, self.queues.each.get(number)) else {
                continue;
            };
            if outgoing.reserved_checks > 0 {
                let unused = std::mem::take(&mut outgoing.reserved_checks);
                queue.levels.waiting.fetch_sub(unused, Ordering::AcqRel);
            }
            let Some(mut batch) = outgoing.take() else {
                continue;
            };
            if queue.try_decide(&mut batch) {
                self.answered.push_back(batch);
            } else {
                let unsent = self.queues.send_batch(number, batch, &self.reply);
                self.answered.extend(unsent);
            }
        }
    }

    fn take_replies(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(PartialReply<'_>),
    ) -> usize {
        let mut batches = 0;
        while let Some(batch) = self.answered.pop_front() {
            batches += 1;
            self.hand_out(batch, take);
        }
        // The sender is kept here, so the channel never closes. `poll_recv` returned Pending last,
        // so the waker is registered.
        while let Poll::Ready(Some(batch)) = self.replies.poll_recv(cx) {
            batches += 1;
            self.hand_out(batch, take);
        }
        batches
    }
}

impl Drop for QueueBatchClient {
    fn drop(&mut self) {
        for (outgoing, queue) in self.outgoing.iter().zip(&self.queues.each) {
            let batch = outgoing.batch.as_ref();
            let unsent = batch.map_or(0, |batch| batch.checks.len());
            let waiting = unsent + outgoing.reserved_checks;
            queue.levels.waiting.fetch_sub(waiting, Ordering::AcqRel);
        }
    }
}

// === impl Queues ===

impl Queues {
    /// Sends a batch to the worker of this number. Gives it back, answered, when there is none any
    /// more.
    fn send_batch(
        &self,
        number: usize,
        mut batch: Box<Batch>,
        reply: &mpsc::UnboundedSender<Box<Batch>>,
    ) -> Option<Box<Batch>> {
        let queue = self.each.get(number)?;
        batch.reply = Some(reply.clone());
        let unsent = queue.send(Message::Decide(batch)).err()?;
        let Message::Decide(mut batch) = unsent.0 else {
            return None;
        };
        let checks = batch.checks.len();
        queue.levels.waiting.fetch_sub(checks, Ordering::AcqRel);
        batch.answer_all(&StoreError::Stopped);
        Some(batch)
    }
}

// === impl Queue ===

impl Queue {
    /// Decides the batch in this thread, if it has few checks and the worker has nothing to do.
    fn try_decide(&self, batch: &mut Batch) -> bool {
        batch.checks.len() <= INLINE_CHECKS_MAX
            && !batch.is_reset()
            && self
                .inline
                .as_ref()
                .is_some_and(|inline| inline.try_decide(batch))
    }
}

// === impl Outgoing ===

impl Outgoing {
    fn take(&mut self) -> Option<Box<Batch>> {
        self.weight = 0;
        self.batch.take()
    }

    fn reserve_one(&mut self, queue: &Queue, waiting_max: usize) -> bool {
        if self.reserved_checks == 0 {
            // Several checks ahead only while the queue is at most half full, so that the space is
            // not what another client needs.
            self.reserved_checks = if queue.reserve(RESERVE_CHECKS, waiting_max / 2) {
                RESERVE_CHECKS
            } else if queue.reserve(1, waiting_max) {
                1
            } else {
                return false;
            };
        }
        self.reserved_checks -= 1;
        true
    }
}
