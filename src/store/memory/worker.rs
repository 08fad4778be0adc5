//! The task that owns one partition.
//!
//! How: it drains its mailbox in batches into a reused buffer, reads the clock once a batch, answers every message, then
//! sweeps a bounded number of idle buckets. It also wakes when nothing comes, so that an idle partition empties too.
//!
//! Work nobody waits for is dropped before it is decided: the asker has gone, or its deadline has passed. What was
//! dropped took nothing. What goes back is not work that anybody waits for, and is always done.
//!
//! What it deliberately does not do: bound its mailbox (the sender does, before it sends), or hold more than one batch.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::partition::Partition;
use crate::clock::Clock;
use crate::limiter::{Check, Timestamp};
use crate::metrics::{Metrics, PartitionLevels};
use crate::store::{Answer, Applied, Deadline, GiveBack, StoreError, Trial};

/// How many messages are decided at one reading of the clock.
const BATCH_MESSAGES_MAX: usize = 256;

/// How many buckets a sweep looks at for each check answered: more than one check can add, so that the sweep keeps up with
/// any flood.
const SWEEP_LOOKS_PER_CHECK: usize = 4;

/// How many buckets a sweep looks at after a quiet while.
const SWEEP_LOOKS_QUIET: usize = 65_536;

/// How long a partition stays quiet before it sweeps all the same.
const QUIET: Duration = Duration::from_millis(250);

/// What one partition is told.
pub(super) enum Message {
    /// Decide these.
    Ask(Question),
    /// Undo what these name.
    GiveBack(Vec<Check>),
}

/// Checks for one partition, and where the answer goes.
pub(super) struct Question {
    pub(super) checks: Vec<Check>,
    pub(super) deadline: Deadline,
    /// Where what was taken goes back to when nobody says that the request passed.
    pub(super) on_trial: Option<Arc<dyn GiveBack>>,
    pub(super) reply: oneshot::Sender<Result<Applied, StoreError>>,
}

/// A partition and its mailbox, ready to run.
pub struct PartitionWorker {
    partition: Partition,
    mailbox: mpsc::UnboundedReceiver<Message>,
    /// Shared with the sending side and the metrics.
    levels: Arc<PartitionLevels>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

// === impl PartitionWorker ===

impl PartitionWorker {
    pub(super) fn new(
        partition: Partition,
        mailbox: mpsc::UnboundedReceiver<Message>,
        levels: Arc<PartitionLevels>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            partition,
            mailbox,
            levels,
            clock,
            metrics,
        }
    }

    /// Answers until every sender is gone.
    pub async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH_MESSAGES_MAX);
        let mut quiet = tokio::time::interval(QUIET);
        quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let sweep_looks_max = tokio::select! {
                biased;
                received = self.mailbox.recv_many(&mut batch, BATCH_MESSAGES_MAX) => {
                    if received == 0 {
                        return;
                    }
                    let checks: usize = batch.iter().map(Message::len).sum();
                    checks.saturating_mul(SWEEP_LOOKS_PER_CHECK)
                }
                _ = quiet.tick() => SWEEP_LOOKS_QUIET,
            };
            let now = self.clock.now();
            let uptime_us = self.clock.uptime_us();
            for message in batch.drain(..) {
                match message {
                    Message::Ask(question) => self.answer(question, now, uptime_us),
                    Message::GiveBack(checks) => self.give_back(&checks, now),
                }
            }
            let freed = self.partition.sweep(now, sweep_looks_max);
            if freed > 0 {
                self.metrics.buckets_freed.inc_by(freed as u64);
            }
            self.levels
                .buckets
                .store(self.partition.len(), Ordering::Relaxed);
            self.levels
                .marks
                .store(self.partition.marks(), Ordering::Relaxed);
        }
    }

    fn answer(&mut self, question: Question, now: Timestamp, uptime_us: u64) {
        let count = question.checks.len();
        self.levels.waiting.fetch_sub(count, Ordering::AcqRel);
        if question.reply.is_closed() {
            self.metrics.shed_caller_gone.inc_by(count as u64);
            return;
        }
        let answer = if question.deadline.passed(uptime_us) {
            self.metrics.shed_deadline.inc_by(count as u64);
            Err(StoreError::DeadlineExceeded)
        } else {
            let checks = question.checks.iter();
            let answers: Vec<Answer> = checks.map(|check| self.decide(check, now)).collect();
            let trial = question
                .on_trial
                .map(|store| Trial::new(store, question.checks.iter().zip(&answers)));
            Ok(Applied { answers, trial })
        };
        // Whoever asked may have left meanwhile. What was taken then stays taken, or, on trial, goes back with the
        // answer that nobody took.
        drop(question.reply.send(answer));
    }

    fn decide(&mut self, check: &Check, now: Timestamp) -> Answer {
        let answer = self.partition.apply(check, now);
        match &answer {
            Err(StoreError::Full { .. }) => self.metrics.shed_buckets_full.inc(),
            Err(StoreError::NoRoomForMarks { .. }) => self.metrics.shed_marks_full.inc(),
            _ => {}
        }
        answer
    }

    fn give_back(&mut self, checks: &[Check], now: Timestamp) {
        for check in checks {
            // Giving back needs no room, so nothing says no.
            drop(self.partition.apply(check, now));
        }
        self.metrics.given_back.inc_by(checks.len() as u64);
    }
}

// === impl Message ===

impl Message {
    fn len(&self) -> usize {
        match self {
            Self::Ask(question) => question.checks.len(),
            Self::GiveBack(checks) => checks.len(),
        }
    }
}
