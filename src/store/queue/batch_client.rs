//! BatchClient for many requests at once: one message a worker, however many checks are ready.
//!
//! Why: a hop to another core wakes its thread, which costs as much as several decisions; shared by all that is ready it
//! costs nearly nothing. How: what is added waits in one batch a queue until [`BatchClient::send`]; what comes back is handed
//! out request by request, and the batch goes into a drawer for the next time.
//!
//! The bound on a queue stays exact: room is reserved before a check is added, several checks' worth at a time as long as
//! the queue is not half full, and what was not used is given back at the next send.
//!
//! Where a batch has a bound, what is beyond it goes in the next, and the full one is sent at once: it could only wait.
//!
//! What it deliberately does not do: choose when to send the rest, keep more batches than workers can have under way at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use crate::store::queue::batch::{Batch, BatchRequest, ReplySender};
use crate::store::queue::{Message, Queue, QueuePermit, Queues};
use crate::store::{
    BatchClient, CommitMode, Deadline, PartialReply, RefundSink, StoreError, Ticket,
};
use tollgate_limiter::Check;

/// For how many checks room is reserved at a time.
const ROOM_CHECKS: usize = 64;

/// How many empty batches are kept for each queue.
const IDLE_BATCHES_MAX_PER_MAILBOX: usize = 4;

/// How many are kept in all: of many queues few are asked at once.
const IDLE_BATCHES_MAX: usize = 256;

/// How many checks an empty batch may have room for when it is kept: a burst's memory goes back.
const IDLE_CHECKS_MAX: usize = 4_096;

/// One task's way to ask a store of queues.
pub(crate) struct QueueBatchClient {
    queues: Arc<Queues>,
    /// One a queue.
    outgoing: Vec<Outgoing>,
    /// The queues of the checks that are being added.
    numbers: Vec<usize>,
    /// The queues to look at when all is sent, some of them more than once: there may be many, of which few are asked.
    used: Vec<usize>,
    #[allow(clippy::vec_box)] // they go into channels as they are
    idle: Vec<Box<Batch>>,
    /// Batches that no worker would take.
    unsent: VecDeque<Box<Batch>>,
    replies: mpsc::UnboundedReceiver<Box<Batch>>,
    reply: mpsc::UnboundedSender<Box<Batch>>,
}

/// What goes to one worker at the next send.
#[derive(Default)]
struct Outgoing {
    batch: Option<Box<Batch>>,
    /// What the batch weighs.
    weight: usize,
    /// For how many checks there is room reserved that none has used.
    room_checks: usize,
}

// === impl QueueBatchClient ===

impl QueueBatchClient {
    pub(crate) fn new(queues: Arc<Queues>) -> Self {
        let (reply, replies) = mpsc::unbounded_channel();
        let all = queues.each.iter();
        Self {
            outgoing: all.map(|_| Outgoing::default()).collect(),
            queues,
            numbers: Vec::new(),
            used: Vec::new(),
            idle: Vec::new(),
            unsent: VecDeque::new(),
            replies,
            reply,
        }
    }

    /// Reserves room for every check, or for none.
    fn reserve(&mut self, checks: &[Check]) -> bool {
        self.numbers.clear();
        for check in checks {
            let number = self.queues.number_of(check);
            let queue = self.queues.each.get(number);
            let outgoing = self.outgoing.get_mut(number);
            if let (Some(queue), Some(outgoing)) = (queue, outgoing) {
                let new = outgoing.room_checks == 0;
                if outgoing.reserve_one(queue, self.queues.bounds.waiting_max) {
                    if new {
                        self.used.push(number);
                    }
                    self.numbers.push(number);
                    continue;
                }
            }
            for number in self.numbers.drain(..) {
                if let Some(outgoing) = self.outgoing.get_mut(number) {
                    outgoing.room_checks = outgoing.room_checks.saturating_add(1);
                }
            }
            return false;
        }
        true
    }

    /// Hands out what a batch brought back, and keeps the batch for another time.
    fn hand_out(&mut self, mut batch: Box<Batch>, take: &mut dyn FnMut(PartialReply<'_>)) {
        let mut from = 0_usize;
        for request in &mut batch.requests {
            let to = from.saturating_add(request.checks);
            if request.is_elsewhere {
                from = to;
                continue;
            }
            take(PartialReply {
                ticket: request.ticket,
                positions: batch.positions.get(from..to).unwrap_or_default(),
                answers: batch.answers.get(from..to).unwrap_or_default(),
                tentative: request.tentative.take(),
            });
            from = to;
        }
        let idle_max = self
            .outgoing
            .len()
            .saturating_mul(IDLE_BATCHES_MAX_PER_MAILBOX)
            .min(IDLE_BATCHES_MAX);
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
        commit_mode: CommitMode,
    ) -> Result<usize, StoreError> {
        if !self.reserve(checks) {
            return Err(self.queues.full(checks.len()));
        }
        let mut shares = 0_usize;
        for (position, (check, number)) in checks.iter().zip(&self.numbers).enumerate() {
            let Some(outgoing) = self.outgoing.get_mut(*number) else {
                continue;
            };
            let bounds = &self.queues.bounds;
            let weight = (bounds.weigh)(check);
            if let Some(full) = outgoing.take_full(weight, bounds.batch_weight_max) {
                let (queues, reply) = (&self.queues, &self.reply);
                self.unsent.extend(queues.send_batch(*number, full, reply));
            }
            let idle = &mut self.idle;
            let batch = outgoing
                .batch
                .get_or_insert_with(|| idle.pop().unwrap_or_default());
            if batch
                .requests
                .last()
                .is_none_or(|last| last.ticket != ticket)
            {
                shares = shares.saturating_add(1);
                batch.requests.push(BatchRequest {
                    ticket,
                    checks: 0,
                    deadline,
                    is_tentative: commit_mode == CommitMode::Tentative,
                    is_elsewhere: false,
                    tentative: None,
                });
                if commit_mode == CommitMode::Tentative && batch.refund_sink.is_none() {
                    batch.refund_sink = Some(Arc::clone(&self.queues) as Arc<dyn RefundSink>);
                }
            }
            batch.push(position, check.clone());
            outgoing.weight = outgoing.weight.saturating_add(weight);
        }
        Ok(shares)
    }

    fn send(&mut self) {
        for number in self.used.drain(..) {
            let outgoing = self.outgoing.get_mut(number);
            let (Some(outgoing), Some(queue)) = (outgoing, self.queues.each.get(number)) else {
                continue;
            };
            if outgoing.room_checks > 0 {
                let unused = std::mem::take(&mut outgoing.room_checks);
                queue.levels.waiting.fetch_sub(unused, Ordering::AcqRel);
            }
            if let Some(batch) = outgoing.take() {
                let unsent = self.queues.send_batch(number, batch, &self.reply);
                self.unsent.extend(unsent);
            }
        }
    }

    fn take_replies(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(PartialReply<'_>),
    ) -> usize {
        let mut batches = 0_usize;
        while let Some(batch) = self.unsent.pop_front() {
            batches = batches.saturating_add(1);
            self.hand_out(batch, take);
        }
        // The other end is kept here, so it never closes; and it ends pending, so this task is woken.
        while let Poll::Ready(Some(batch)) = self.replies.poll_recv(cx) {
            batches = batches.saturating_add(1);
            self.hand_out(batch, take);
        }
        batches
    }
}

impl Drop for QueueBatchClient {
    fn drop(&mut self) {
        for (outgoing, queue) in self.outgoing.iter().zip(&self.queues.each) {
            let unsent = outgoing
                .batch
                .as_ref()
                .map_or(0, |batch| batch.checks.len());
            let waiting = unsent.saturating_add(outgoing.room_checks);
            queue.levels.waiting.fetch_sub(waiting, Ordering::AcqRel);
        }
    }
}

// === impl Queues ===

impl Queues {
    /// Sends a batch to the worker of this number. Gives it back, answered, when there is none any more.
    fn send_batch(
        &self,
        number: usize,
        mut batch: Box<Batch>,
        reply: &mpsc::UnboundedSender<Box<Batch>>,
    ) -> Option<Box<Batch>> {
        let queue = self.each.get(number)?;
        batch.reply = Some(ReplySender::Many(reply.clone()));
        let unsent = queue.sender.send(Message::Decide(batch)).err()?;
        let Message::Decide(mut batch) = unsent.0 else {
            return None;
        };
        let checks = batch.checks.len();
        queue.levels.waiting.fetch_sub(checks, Ordering::AcqRel);
        batch.answer_all(&StoreError::Stopped);
        Some(batch)
    }
}

// === impl Outgoing ===

impl Outgoing {
    /// The batch, when so much more may not be put to it.
    fn take_full(&mut self, more: usize, weight_max: usize) -> Option<Box<Batch>> {
        if self.weight.saturating_add(more) <= weight_max {
            return None;
        }
        self.take()
    }

    /// The batch, whatever it weighs.
    fn take(&mut self) -> Option<Box<Batch>> {
        self.weight = 0;
        self.batch.take()
    }

    fn reserve_one(&mut self, queue: &Queue, waiting_max: usize) -> bool {
        if self.room_checks == 0 {
            // What is set aside and not used must never be what another one lacks.
            let spare = waiting_max.checked_div(2).unwrap_or_default();
            let choices = [(ROOM_CHECKS, spare), (1, waiting_max)];
            let Some((room_checks, _)) = choices.into_iter().find(|(checks, max)| {
                let room = queue.reserve(*checks, *max);
                room.map(QueuePermit::keep).is_some()
            }) else {
                return false;
            };
            self.room_checks = room_checks;
        }
        self.room_checks = self.room_checks.saturating_sub(1);
        true
    }
}
