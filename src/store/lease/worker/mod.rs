//! The task that owns one partition's leases.
//!
//! Checks that a lease answers are answered in the batch they came in. A request that needs the
//! shared store waits in a batch of its own. Its checks wait by bucket, and there is one take in
//! flight per bucket, for all checks that wait. No caller waits for refunds.
//!
//! The bound on waiting checks is the queue's: a check frees its space when it is answered, not
//! when it is read.
//!
//! A reset of a bucket waits like a check for the take in flight, so that the take does not bring
//! back what the reset forgets, and for refused hits in flight. While the reset is in flight,
//! checks of the bucket wait.
//!
//! Refused hits that their limit counts (`count_refused`) are sent to the shared store behind the
//! answer, in one call for all buckets, with one in flight per bucket. A check of the bucket that
//! needs the store waits for them, so that a look sees the charge before it.
//!
//! Refunds that the shared store could not take are kept, up to a bound and for a minute, and sent
//! again. A take whose outcome is unknown is not retried: what it may have taken counts as spent.

mod count_refused;
mod refunds;
mod resets;
mod waiting;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::clock::Clock;
use crate::metrics::{Metrics, PartitionLevels, count_decided};
use crate::store::lease::leases::Leases;
use crate::store::queue::{Batch, BatchRequest, Message};
use crate::store::refund_queue::RefundQueue;
use crate::store::{CheckResult, Purpose, Store, StoreError, TentativeTake};
use tollgate_limiter::{Check, Key};

/// How many messages are read per reading of the clock.
const BATCH_MESSAGES_MAX: usize = 256;

/// How often leases are visited when no message comes.
const TICK: Duration = Duration::from_millis(100);

/// How many leases are visited per message.
const LOOKS_PER_MESSAGE: usize = 4;

/// How many leases are visited per tick.
const LOOKS_PER_TICK: usize = 4_096;

/// How many takes a check waits for at most. Usually four suffice: the one in flight, one for all,
/// one for the rest, one that is denied. More are needed only when other replicas take and give
/// back meanwhile.
const ROUNDS_MAX: u32 = 8;

/// How many checks go back in one call.
const GIVE_BACK_CHECKS_MAX: usize = 256;

/// How soon a failed refund is sent again.
const AGAIN_US: u64 = 200_000;

/// The worker of one partition.
pub struct LeaseWorker {
    leases: Leases,
    shared: Arc<dyn Store>,
    queue: mpsc::UnboundedReceiver<Message>,
    /// A sender that arrives here is dropped when no hits are held.
    finishes: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    levels: Arc<PartitionLevels>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// Calls to the shared store in flight.
    under_way: JoinSet<CallReport>,
    /// Requests with checks that are not answered. A waiter names one by its index.
    pending: Vec<Option<PendingRequest>>,
    free: Vec<usize>,
    /// The checks that wait for the take in flight, by bucket.
    waiters: HashMap<Key, VecDeque<Waiter>>,
    /// Hits of ended leases, to be sent at the end of this turn.
    returned: Vec<Check>,
    /// Refunds that failed.
    refunds: RefundQueue,
    /// Refused hits on their way to the shared store, by bucket.
    refused: HashMap<Key, RefusedHits>,
    /// The buckets among them of which nothing is in flight.
    refused_due: Vec<Key>,
    /// The number of unspent hits that the metrics were last given.
    reported_unspent: u64,
    /// Checks that were refused and that passed, since the start.
    decided: [u64; 2],
}

/// A request in a batch of its own.
struct PendingRequest {
    batch: Box<Batch>,
    /// How many of its checks have no answer.
    unanswered: usize,
}

/// A check that waits.
#[derive(Clone, Copy)]
struct Waiter {
    pending: usize,
    /// The index of the check in that batch.
    check: usize,
    /// How many takes have ended without enough hits for it.
    rounds: u32,
}

/// The refused hits of one bucket that are on their way to the shared store.
struct RefusedHits {
    /// The first check that was refused, with the limit of the last. It takes these hits.
    check: Check,
    /// The hits that are not sent yet.
    hits: u64,
    in_flight: bool,
    /// Checks of the bucket that need the store, and came later.
    waiting: Vec<Waiter>,
}

/// What a call to the shared store was for, and its result.
enum CallReport {
    /// A take in advance.
    Taken {
        asked: Check,
        sent_us: u64,
        answer: CheckResult,
    },
    /// One check, sent as it is.
    Forwarded { waiter: Waiter, answer: CheckResult },
    /// A reset. The checks of the bucket wait for it.
    Reset {
        check: Check,
        waiters: VecDeque<Waiter>,
        answer: CheckResult,
    },
    /// Refused hits, which no caller waits for.
    RefusedCounted {
        asked: Vec<Check>,
        answers: Vec<CheckResult>,
    },
    /// Refunds, which no caller waits for.
    Refunded {
        done: usize,
        lost: usize,
        /// Refunds that were surely not carried out.
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
            refused: HashMap::new(),
            refused_due: Vec::new(),
            reported_unspent: 0,
            decided: [0; 2],
        }
    }

    /// Answers until every sender is gone. Then gives back what is held, and ends when the shared
    /// store has it.
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
            // Also when the queue is never empty.
            while let Some(ended) = self.under_way.try_join_next() {
                self.ended(ended);
            }
            for message in batch.drain(..) {
                match message {
                    Message::Decide(batch) => self.answer(batch, now_us),
                    Message::Refund(checks, _) => self.take_back(checks, now_us),
                }
            }
            self.leases.expire(now_us, looks_max, &mut self.returned);
            self.send_refused();
            self.send_back(now_us);
            self.report_unspent();
            self.report_levels();
        }
        self.finish().await;
        // Nothing runs any more that could send these.
        self.lose(self.refunds.checks());
    }

    /// Gives back all hits that are held, and waits until the shared store has them.
    async fn finish(&mut self) {
        self.returned.extend(self.leases.end_all());
        let now_us = self.clock.uptime_us();
        self.send_refused();
        self.send_back(now_us);
        while let Some(ended) = self.under_way.join_next().await {
            self.ended(ended);
            self.returned.extend(self.leases.end_all());
            self.send_refused();
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

    fn report_levels(&self) {
        let levels = &self.levels;
        levels.buckets.store(self.leases.len(), Ordering::Relaxed);
        levels.bytes.store(self.leases.bytes(), Ordering::Relaxed);
        levels.set_decided(self.decided);
    }

    /// Answers what leases can answer, and lets the rest of the batch wait.
    fn answer(&mut self, mut batch: Box<Batch>, now_us: u64) {
        if batch.is_abandoned() {
            self.left(batch.checks.len());
            self.metrics
                .buckets
                .shed_caller_gone
                .inc_by(batch.checks.len() as u64);
            return;
        }
        if batch.is_reset() {
            // Stands for missing outcomes; replaced below.
            batch.answer_all(&StoreError::Stopped);
            self.wait(batch, now_us);
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
                    self.decide(check, now_us)
                } else {
                    None
                };
                if let Some(outcome) = &outcome {
                    count_decided(&mut self.decided, outcome.allowed);
                }
                // Stands for a missing outcome; replaced below.
                batch.answers.push(outcome.ok_or(StoreError::Stopped));
            }
            let answers = batch.answers.get(decided_before..).unwrap_or_default();
            if answers.iter().all(Result::is_ok) {
                answered = answered.saturating_add(checks.len());
                if request.purpose == Purpose::DecideTentatively
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
            own.reply.clone_from(&batch.reply);
            request.is_elsewhere = true;
            self.wait(own, now_us);
        }
        batch.requests = requests;
        self.left(answered);
        batch.send_back();
    }

    /// A call to the shared store has ended. When it panicked it is not known which call it was:
    /// all waiting checks are answered with an error, so that none waits for ever.
    fn ended(&mut self, ended: Result<CallReport, JoinError>) {
        if let Ok(called) = ended {
            let now_us = self.clock.uptime_us();
            self.called(called, now_us);
            return;
        }
        self.waiters.clear();
        self.lose_refused();
        // Their indexes are not reused: a call in flight may still name one.
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
            CallReport::Forwarded { waiter, answer } => {
                if let Some(check) = self.check_of(waiter)
                    && check.operation.hits.can_give_back()
                {
                    self.leases.forget_denial(check.key);
                }
                self.put_answer(waiter, answer);
            }
            CallReport::Reset {
                check,
                waiters,
                answer,
            } => self.was_reset(&check, waiters, &answer, now_us),
            CallReport::RefusedCounted { asked, answers } => {
                self.refused_counted(asked, answers, now_us);
            }
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

    /// Frees the queue space of answered checks.
    fn left(&self, checks: usize) {
        self.levels.waiting.fetch_sub(checks, Ordering::AcqRel);
    }
}

impl Drop for LeaseWorker {
    /// Answers every caller, however the worker ends.
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
