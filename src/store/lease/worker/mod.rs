//! The task that owns one partition's leases.
//!
//! How: what a lease answers is answered at once, in the batch it came in. A request that needs the shared store waits in a
//! batch of its own; its checks stand in a queue a bucket, and one take a bucket is under way at a time, for all that wait.
//! What goes back is sent on, and nobody waits for it.
//!
//! The bound on what waits is the queue's: a check gives its room back when it is answered, not when it is read.
//!
//! What could not go back because the shared store was in no state for it is kept, up to a bound and for a minute, and sent again.
//!
//! What it deliberately does not do: retry a take whose outcome is unknown. What it may have taken counts as spent.

mod refunds;
mod waiting;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::clock::Clock;
use crate::metrics::{Metrics, PartitionLevels};
use crate::store::lease::leases::Leases;
use crate::store::queue::{Batch, BatchRequest, Message, ReplySender};
use crate::store::refund_queue::RefundQueue;
use crate::store::{CheckResult, Store, StoreError, TentativeTake};
use tollgate_limiter::{Check, Key};

/// How many messages are read at one reading of the clock.
const BATCH_MESSAGES_MAX: usize = 256;

/// How often leases are looked at when nobody asks.
const TICK: Duration = Duration::from_millis(100);

/// How many leases are looked at for each message.
const LOOKS_PER_MESSAGE: usize = 4;

/// How many leases are looked at each tick.
const LOOKS_PER_TICK: usize = 4_096;

/// How many takes one waits for at most. By itself: the one under way, one for all, one for what is left, one that says no;
/// more only where other replicas take and give back meanwhile.
const ROUNDS_MAX: u32 = 8;

/// How many checks go back in one call.
const GIVE_BACK_CHECKS_MAX: usize = 256;

/// How soon what the shared store was in no state to take back is sent again.
const AGAIN_US: u64 = 200_000;

/// The leases of a partition and its queue, ready to run.
pub struct LeaseWorker {
    leases: Leases,
    shared: Arc<dyn Store>,
    queue: mpsc::UnboundedReceiver<Message>,
    /// What comes here is dropped when nothing is held.
    finishes: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    levels: Arc<PartitionLevels>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// Calls of the shared store.
    under_way: JoinSet<CallReport>,
    /// Questions with checks that are not answered; a number is a place here.
    pending: Vec<Option<PendingRequest>>,
    free: Vec<usize>,
    /// Who waits for the take under way, by bucket.
    waiters: HashMap<Key, VecDeque<Waiter>>,
    /// What leases gave up, to be sent at the end of this turn.
    returned: Vec<Check>,
    /// What was sent and did not go back.
    refunds: RefundQueue,
    /// What the metrics were drain of held hits.
    reported_unspent: u64,
}

/// A request in a batch of its own.
struct PendingRequest {
    batch: Box<Batch>,
    /// How many of its checks have no answer.
    unanswered: usize,
}

/// One check that waits.
#[derive(Clone, Copy)]
struct Waiter {
    pending: usize,
    /// Which of that batch's checks.
    check: usize,
    /// How many takes came back without enough for it.
    rounds: u32,
}

/// What a call of the shared store was for, and what came of it.
enum CallReport {
    /// A take in advance.
    Taken {
        asked: Check,
        sent_us: u64,
        answer: CheckResult,
    },
    /// One check, as it is.
    Forwarded { waiter: Waiter, answer: CheckResult },
    /// Nobody waits for it.
    Refunded {
        done: usize,
        lost: usize,
        /// What took nothing of the shared store.
        kept: Vec<Check>,
        until_us: u64,
    },
}

// === impl LeaseWorker ===

impl LeaseWorker {
    pub(crate) fn new(
        leases: Leases,
        shared: Arc<dyn Store>,
        (queue, finishes): (
            mpsc::UnboundedReceiver<Message>,
            mpsc::UnboundedReceiver<oneshot::Sender<()>>,
        ),
        levels: Arc<PartitionLevels>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            leases,
            shared,
            queue,
            finishes,
            levels,
            clock,
            metrics,
            under_way: JoinSet::new(),
            pending: Vec::new(),
            free: Vec::new(),
            waiters: HashMap::new(),
            returned: Vec::new(),
            refunds: RefundQueue::default(),
            reported_unspent: 0,
        }
    }

    /// Answers until every sender is gone; then gives back what is held, and ends when the shared store has it.
    pub async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH_MESSAGES_MAX);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let looks_max = tokio::select! {
                biased;
                received = self.queue.recv_many(&mut batch, BATCH_MESSAGES_MAX) => {
                    if received == 0 {
                        break;
                    }
                    received.saturating_mul(LOOKS_PER_MESSAGE)
                }
                Some(ended) = self.under_way.join_next() => {
                    self.ended(ended);
                    LOOKS_PER_MESSAGE
                }
                Some(finished) = self.finishes.recv() => {
                    self.finish().await;
                    drop(finished);
                    0
                }
                _ = tick.tick() => LOOKS_PER_TICK,
            };
            let now_us = self.clock.uptime_us();
            // However busy the queue is.
            while let Some(ended) = self.under_way.try_join_next() {
                self.ended(ended);
            }
            for message in batch.drain(..) {
                match message {
                    Message::Decide(batch) => self.answer(batch, now_us),
                    Message::Refund(checks) => self.take_back(checks, now_us),
                }
            }
            self.leases.expire(now_us, looks_max, &mut self.returned);
            self.send_back(now_us);
            self.report_unspent();
        }
        self.finish().await;
        // Nobody will ask again.
        self.lose(self.refunds.checks());
    }

    /// Gives back all that is held, and waits until the shared store has it.
    async fn finish(&mut self) {
        self.returned.extend(self.leases.end_all());
        let now_us = self.clock.uptime_us();
        self.send_back(now_us);
        while let Some(ended) = self.under_way.join_next().await {
            self.ended(ended);
            self.returned.extend(self.leases.end_all());
            self.send_back(now_us);
        }
        self.report_unspent();
    }

    fn report_unspent(&mut self) {
        let unspent = self.leases.unspent();
        let change = |hits: u64| i64::try_from(hits).unwrap_or(i64::MAX);
        self.metrics
            .leases
            .hits_held
            .add(change(unspent).saturating_sub(change(self.reported_unspent)));
        self.reported_unspent = unspent;
    }

    /// Answers a batch as far as leases do, and lets the rest wait.
    fn answer(&mut self, mut batch: Box<Batch>, now_us: u64) {
        if batch.is_abandoned() {
            self.left(batch.checks.len());
            self.metrics
                .buckets
                .shed_caller_gone
                .inc_by(batch.checks.len() as u64);
            return;
        }
        let mut answered = 0_usize;
        let mut from = 0_usize;
        let mut requests = std::mem::take(&mut batch.requests);
        for request in &mut requests {
            let to = from.saturating_add(request.checks);
            let checks = batch.checks.get(from..to).unwrap_or_default();
            let positions = batch.positions.get(from..to).unwrap_or_default();
            from = to;
            if request.deadline.passed(now_us) {
                self.metrics
                    .buckets
                    .shed_deadline
                    .inc_by(checks.len() as u64);
                answered = answered.saturating_add(checks.len());
                let late = checks.iter().map(|_| Err(StoreError::DeadlineExceeded));
                batch.answers.extend(late);
                continue;
            }
            let decided_before = batch.answers.len();
            for check in checks {
                let outcome = if Leases::covers(check) && !self.waiters.contains_key(&check.key) {
                    self.leases.spend(check, now_us, &mut self.returned)
                } else {
                    None
                };
                // What has no outcome is found by this below.
                batch.answers.push(outcome.ok_or(StoreError::Stopped));
            }
            let answers = batch.answers.get(decided_before..).unwrap_or_default();
            if answers.iter().all(Result::is_ok) {
                answered = answered.saturating_add(checks.len());
                if request.is_tentative
                    && let Some(store) = &batch.refund_sink
                {
                    request.tentative = Some(TentativeTake::new(
                        Arc::clone(store),
                        checks.iter().zip(answers),
                    ));
                }
                continue;
            }
            let mut own = Box::<Batch>::default();
            own.checks.extend_from_slice(checks);
            own.positions.extend_from_slice(positions);
            own.answers.extend_from_slice(answers);
            own.requests.push(BatchRequest {
                tentative: None,
                ..*request
            });
            own.refund_sink.clone_from(&batch.refund_sink);
            own.reply = match &mut batch.reply {
                Some(ReplySender::Many(reply)) => Some(ReplySender::Many(reply.clone())),
                // It holds no other request.
                once => once.take(),
            };
            request.is_elsewhere = true;
            self.wait(own, now_us);
        }
        batch.requests = requests;
        self.left(answered);
        batch.send_back();
    }

    /// A call of the shared store has ended. Of one that panicked nobody knows any more whose it was: all that wait see a
    /// store that stopped, so that none waits for ever.
    fn ended(&mut self, ended: Result<CallReport, JoinError>) {
        if let Ok(called) = ended {
            let now_us = self.clock.uptime_us();
            self.called(called, now_us);
            return;
        }
        self.waiters.clear();
        // Their places are not used again: a call still under way may name one.
        let waiting: Vec<_> = self.pending.iter_mut().filter_map(Option::take).collect();
        for pending in waiting {
            self.send_answers(pending);
        }
    }

    fn called(&mut self, called: CallReport, now_us: u64) {
        match called {
            CallReport::Taken {
                asked,
                sent_us,
                answer,
            } => self.took(&asked, sent_us, answer, now_us),
            CallReport::Forwarded { waiter, answer } => self.put_answer(waiter, answer),
            CallReport::Refunded {
                done,
                lost,
                kept,
                until_us,
            } => {
                self.metrics.leases.returns.inc_by(done as u64);
                self.lose(lost);
                self.keep(kept, until_us, now_us);
            }
        }
    }

    /// Checks that were answered give their room back.
    fn left(&self, checks: usize) {
        self.levels.waiting.fetch_sub(checks, Ordering::AcqRel);
    }
}

impl Drop for LeaseWorker {
    /// Whoever ends the worker, nobody is left waiting for it.
    fn drop(&mut self) {
        self.queue.close();
        while let Ok(message) = self.queue.try_recv() {
            if let Message::Decide(mut batch) = message {
                self.levels
                    .waiting
                    .fetch_sub(batch.checks.len(), Ordering::AcqRel);
                batch.answer_all(&StoreError::Stopped);
                batch.send_back();
            }
        }
        for pending in self.pending.drain(..).flatten() {
            pending.batch.send_back();
        }
    }
}
