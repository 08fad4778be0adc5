//! Asking for many requests at once: one message a partition, however many checks are ready.
//!
//! Why: a hop to another core wakes its thread, which costs as much as several decisions; shared by all that is ready it
//! costs nearly nothing. How: what is added waits in one batch a partition until [`Asking::send`]; what comes back is handed
//! out question by question, and the batch goes into a drawer for the next time.
//!
//! The bound on a mailbox stays exact: room is reserved before a check is added, several checks' worth at a time as long as
//! the mailbox is not half full, and what was not used is given back at the next send.
//!
//! What it deliberately does not do: choose when to send, keep more batches than partitions can have under way at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use super::batch::{Batch, Question, Reply};
use super::worker::Message;
use super::{Mailbox, Mailboxes};
use crate::limiter::Check;
use crate::metrics::Metrics;
use crate::store::{Asking, Deadline, GiveBack, Share, StoreError, Terms, Ticket};

/// For how many checks room is reserved at a time.
const ROOM_CHECKS: usize = 64;

/// How many empty batches are kept for each partition.
const IDLE_BATCHES_MAX_PER_PARTITION: usize = 4;

/// How many checks an empty batch may have room for when it is kept: a burst's memory goes back.
const IDLE_CHECKS_MAX: usize = 4_096;

/// One task's way to ask the memory store.
pub(super) struct MemoryAsking {
    mailboxes: Arc<Mailboxes>,
    /// How many checks may wait in each mailbox.
    waiting_max: usize,
    metrics: Arc<Metrics>,
    /// One a partition.
    outgoing: Vec<Outgoing>,
    /// The partitions of the checks that are being added.
    partitions: Vec<usize>,
    #[allow(clippy::vec_box)] // they go into channels as they are
    idle: Vec<Box<Batch>>,
    /// Batches that no worker would take.
    unsent: VecDeque<Box<Batch>>,
    replies: mpsc::UnboundedReceiver<Box<Batch>>,
    reply: mpsc::UnboundedSender<Box<Batch>>,
}

/// What goes to one partition at the next send.
#[derive(Default)]
struct Outgoing {
    batch: Option<Box<Batch>>,
    /// For how many checks there is room reserved that none has used.
    room_checks: usize,
}

// === impl MemoryAsking ===

impl MemoryAsking {
    pub(super) fn new(
        mailboxes: Arc<Mailboxes>,
        waiting_max: usize,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (reply, replies) = mpsc::unbounded_channel();
        Self {
            outgoing: mailboxes.0.iter().map(|_| Outgoing::default()).collect(),
            mailboxes,
            waiting_max,
            metrics,
            partitions: Vec::new(),
            idle: Vec::new(),
            unsent: VecDeque::new(),
            replies,
            reply,
        }
    }

    /// Reserves room for every check, or for none.
    fn reserve(&mut self, checks: &[Check]) -> bool {
        self.partitions.clear();
        for check in checks {
            let partition = self.mailboxes.partition_of(check.key);
            let mailbox = self.mailboxes.0.get(partition);
            let outgoing = self.outgoing.get_mut(partition);
            if let (Some(mailbox), Some(outgoing)) = (mailbox, outgoing)
                && outgoing.reserve_one(mailbox, self.waiting_max)
            {
                self.partitions.push(partition);
                continue;
            }
            for partition in self.partitions.drain(..) {
                if let Some(outgoing) = self.outgoing.get_mut(partition) {
                    outgoing.room_checks = outgoing.room_checks.saturating_add(1);
                }
            }
            return false;
        }
        true
    }

    /// Hands out what a batch brought back, and keeps the batch for another time.
    fn hand_out(&mut self, mut batch: Box<Batch>, take: &mut dyn FnMut(Share<'_>)) {
        let mut from = 0_usize;
        for question in &mut batch.questions {
            let to = from.saturating_add(question.checks);
            take(Share {
                ticket: question.ticket,
                positions: batch.positions.get(from..to).unwrap_or_default(),
                answers: batch.answers.get(from..to).unwrap_or_default(),
                trial: question.trial.take(),
            });
            from = to;
        }
        let idle_max = self
            .outgoing
            .len()
            .saturating_mul(IDLE_BATCHES_MAX_PER_PARTITION);
        if self.idle.len() < idle_max && batch.checks.capacity() <= IDLE_CHECKS_MAX {
            batch.clear();
            self.idle.push(batch);
        }
    }
}

impl Asking for MemoryAsking {
    fn add(
        &mut self,
        ticket: Ticket,
        checks: &[Check],
        deadline: Deadline,
        terms: Terms,
    ) -> Result<usize, StoreError> {
        if !self.reserve(checks) {
            self.metrics.shed_mailbox_full.inc_by(checks.len() as u64);
            return Err(StoreError::Overloaded {
                waiting_max: self.waiting_max,
            });
        }
        let mut shares = 0_usize;
        for (position, (check, partition)) in checks.iter().zip(&self.partitions).enumerate() {
            let Some(outgoing) = self.outgoing.get_mut(*partition) else {
                continue;
            };
            let idle = &mut self.idle;
            let batch = outgoing
                .batch
                .get_or_insert_with(|| idle.pop().unwrap_or_default());
            if batch
                .questions
                .last()
                .is_none_or(|last| last.ticket != ticket)
            {
                shares = shares.saturating_add(1);
                batch.questions.push(Question {
                    ticket,
                    checks: 0,
                    deadline,
                    on_trial: terms == Terms::OnTrial,
                    trial: None,
                });
                if terms == Terms::OnTrial && batch.give_back.is_none() {
                    batch.give_back = Some(Arc::clone(&self.mailboxes) as Arc<dyn GiveBack>);
                }
            }
            batch.push(position, *check);
        }
        Ok(shares)
    }

    fn send(&mut self) {
        for (outgoing, mailbox) in self.outgoing.iter_mut().zip(&self.mailboxes.0) {
            if outgoing.room_checks > 0 {
                let unused = std::mem::take(&mut outgoing.room_checks);
                mailbox.levels.waiting.fetch_sub(unused, Ordering::AcqRel);
            }
            let Some(mut batch) = outgoing.batch.take() else {
                continue;
            };
            batch.reply = Some(Reply::Many(self.reply.clone()));
            if let Err(unsent) = mailbox.sender.send(Message::Ask(batch))
                && let Message::Ask(mut batch) = unsent.0
            {
                let checks = batch.checks.len();
                mailbox.levels.waiting.fetch_sub(checks, Ordering::AcqRel);
                batch.answer_stopped();
                self.unsent.push_back(batch);
            }
        }
    }

    fn take_answers(&mut self, cx: &mut Context<'_>, take: &mut dyn FnMut(Share<'_>)) -> usize {
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

impl Drop for MemoryAsking {
    fn drop(&mut self) {
        for (outgoing, mailbox) in self.outgoing.iter().zip(&self.mailboxes.0) {
            let unsent = outgoing
                .batch
                .as_ref()
                .map_or(0, |batch| batch.checks.len());
            let waiting = unsent.saturating_add(outgoing.room_checks);
            mailbox.levels.waiting.fetch_sub(waiting, Ordering::AcqRel);
        }
    }
}

// === impl Outgoing ===

impl Outgoing {
    fn reserve_one(&mut self, mailbox: &Mailbox, waiting_max: usize) -> bool {
        if self.room_checks == 0 {
            // What is set aside and not used must never be what another one lacks.
            let spare = waiting_max.checked_div(2).unwrap_or_default();
            let choices = [(ROOM_CHECKS, spare), (1, waiting_max)];
            let Some((room_checks, _)) = choices.into_iter().find(|(checks, max)| {
                let room = mailbox.reserve(*checks, *max);
                room.map(super::Room::keep).is_some()
            }) else {
                return false;
            };
            self.room_checks = room_checks;
        }
        self.room_checks = self.room_checks.saturating_sub(1);
        true
    }
}
