//! The task that owns one partition's leases.
//!
//! Checks that a lease answers are answered in the batch they came in. A request that needs the
//! shared store waits in a batch of its own. Its checks wait by bucket, and there is one take in
//! flight per bucket, for all checks that wait. No caller waits for refunds.
//!
//! The bound on waiting checks is the queue's: a check frees its space when it is answered, not
//! when it is read.
//!
//! A reset of a bucket waits like a check for the take in flight: the take may have run before it
//! in the shared store, and its grant would bring back a part of what the reset forgets. The reset
//! also waits for refused hits in flight, which may be counted after it. While the reset is in
//! flight, checks of the bucket wait.
//!
//! Refused hits that their limit counts (`count_refused`) are sent to the shared store behind the
//! answer, in one call for all buckets, with one in flight per bucket: what is refused meanwhile is
//! added up, so a flood costs one check per bucket and round trip. A check of the bucket that needs
//! the store waits for them, so that a look sees the charge before it. Hits that do not reach the
//! store are counted and not sent again: a window may have turned meanwhile.
//!
//! Refunds that the shared store could not take are kept, up to a bound and for a minute, and sent
//! again. A take whose outcome is unknown is not retried: what it may have taken counts as spent.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::lease::leases::Leases;
use crate::queue::{Batch, BatchRequest, Message};
use crate::refund_queue::{REFUND_LATE_MAX_US, RETRY_FOR_US, RefundQueue};
use crate::{CheckResult, Deadline, Purpose, Store, StoreError};
use tollgate_limiter::{Check, Hits, Key, Outcome};
use tollgate_system::clock::Clock;
use tollgate_telemetry::metrics::{Metrics, PartitionLevels, count_decided};

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

/// How many refunds, or buckets with refused hits, are in one call.
const CALL_CHECKS_MAX: usize = 256;

/// How soon a failed refund is sent again.
const REFUND_AGAIN_US: u64 = 200_000;

/// How many buckets may have refused hits that are not counted yet.
const REFUSED_KEYS_MAX: usize = 16_384;

/// The worker of one partition.
pub struct LeaseWorker {
    leases: Leases,
    shared: Arc<dyn Store>,
    queue: mpsc::UnboundedReceiver<Message>,
    /// A sender that arrives here is dropped when no hits are held.
    drains: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    levels: Arc<PartitionLevels>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// Calls to the shared store in flight.
    calls: JoinSet<CallEnd>,
    /// Requests with checks that are not answered, by a number of their own.
    pending: HashMap<u64, PendingRequest>,
    next_pending: u64,
    /// The takes and resets in flight, by bucket.
    in_flight: HashMap<Key, InFlight>,
    /// How long takes take lately, in microseconds; 0 before the first.
    round_trip_us: u64,
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

/// What the worker does when a call has ended, at this uptime.
type CallEnd = Box<dyn FnOnce(&mut LeaseWorker, u64) + Send>;

/// A request in a batch of its own.
struct PendingRequest {
    batch: Box<Batch>,
    /// How many of its checks have no answer.
    unanswered: usize,
}

/// A take or a reset in flight.
struct InFlight {
    is_reset: bool,
    /// When it was sent. Later: when the window began from whose hits those that wait were served.
    sent_us: u64,
    /// A take that was sent before the lease was spent. Checks use up the lease meanwhile.
    is_ahead: bool,
    /// The checks that wait for it.
    waiters: Vec<Waiter>,
}

/// A check that waits.
#[derive(Clone, Copy)]
struct Waiter {
    /// The number of its request.
    pending: u64,
    /// The index of the check in that request's batch.
    check: usize,
    /// Whether its bucket is to be reset.
    is_reset: bool,
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

// === impl LeaseWorker ===

impl LeaseWorker {
    pub(super) fn new(
        leases: Leases,
        shared: Arc<dyn Store>,
        queue: mpsc::UnboundedReceiver<Message>,
        drains: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
        levels: Arc<PartitionLevels>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            leases,
            shared,
            queue,
            drains,
            levels,
            clock,
            metrics,
            calls: JoinSet::new(),
            pending: HashMap::new(),
            next_pending: 0,
            in_flight: HashMap::new(),
            round_trip_us: 0,
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
        let mut messages = Vec::with_capacity(BATCH_MESSAGES_MAX);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let looks_max = tokio::select! {
                biased;
                received = self.queue.recv_many(&mut messages, BATCH_MESSAGES_MAX) => {
                    if received == 0 {
                        break;
                    }
                    received * LOOKS_PER_MESSAGE
                }
                Some(ended) = self.calls.join_next() => {
                    self.call_ended(ended);
                    LOOKS_PER_MESSAGE
                }
                Some(drained) = self.drains.recv() => {
                    self.drain().await;
                    drop(drained);
                    0
                }
                _ = tick.tick() => LOOKS_PER_TICK,
            };
            let now_us = self.clock.uptime_us();
            // Also when the queue is never empty.
            while let Some(ended) = self.calls.try_join_next() {
                self.call_ended(ended);
            }
            for message in messages.drain(..) {
                match message {
                    Message::Decide(batch) => self.answer(batch, now_us),
                    Message::Refund(refunds) => {
                        let refunds = refunds.into_iter().map(|refund| refund.check);
                        self.take_back(refunds.collect(), now_us);
                    }
                }
            }
            self.leases.expire(now_us, looks_max, &mut self.returned);
            self.send_refused();
            self.send_refunds(now_us);
            self.report();
        }
        self.drain().await;
        // Nothing runs any more that could send these.
        self.lose(self.refunds.checks());
    }

    /// Gives back all hits that are held, and waits until the shared store has them.
    async fn drain(&mut self) {
        loop {
            self.leases.end_all(&mut self.returned);
            self.send_refused();
            self.send_refunds(self.clock.uptime_us());
            match self.calls.join_next().await {
                Some(ended) => self.call_ended(ended),
                None => break,
            }
        }
        self.report();
    }

    fn report(&mut self) {
        let unspent = self.leases.unspent();
        let gauge = |hits: u64| i64::try_from(hits).unwrap_or(i64::MAX);
        let more = gauge(unspent).saturating_sub(gauge(self.reported_unspent));
        self.metrics.leases.hits_held.add(more);
        self.reported_unspent = unspent;
        let levels = &self.levels;
        levels.buckets.store(self.leases.len(), Ordering::Relaxed);
        levels.bytes.store(self.leases.bytes(), Ordering::Relaxed);
        levels.set_decided(self.decided);
    }

    /// Frees the queue space of answered checks.
    fn free_queue_space(&self, checks: usize) {
        self.levels.waiting.fetch_sub(checks, Ordering::AcqRel);
    }
}

impl Drop for LeaseWorker {
    /// Answers every caller, however the worker ends.
    fn drop(&mut self) {
        self.queue.close();
        while let Ok(message) = self.queue.try_recv() {
            if let Message::Decide(mut batch) = message {
                self.free_queue_space(batch.checks.len());
                batch.answer_all(&StoreError::Stopped);
                batch.send_back();
            }
        }
        for (_, pending) in self.pending.drain() {
            pending.batch.send_back();
        }
    }
}

// === Calls to the shared store ===

impl LeaseWorker {
    /// Asks the shared store in a task of its own. `then` gets each check with its answer, and the
    /// uptime at the end of the call.
    fn ask_shared(
        &mut self,
        checks: Vec<Check>,
        purpose: Purpose,
        then: impl FnOnce(&mut Self, Vec<(Check, CheckResult)>, u64) + Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        self.calls.spawn(async move {
            let reply = shared.ask(checks.clone(), Deadline::NEVER, purpose).await;
            let answers = match reply {
                Ok(reply) => reply.answers,
                Err(error) => vec![Err(error); checks.len()],
            };
            let answered = checks.into_iter().zip(answers).collect();
            Box::new(move |worker: &mut Self, now_us| then(worker, answered, now_us)) as CallEnd
        });
    }

    /// Asks the shared store about one check.
    fn ask_shared_about(
        &mut self,
        check: Check,
        purpose: Purpose,
        then: impl FnOnce(&mut Self, CheckResult, u64) + Send + 'static,
    ) {
        self.metrics.leases.calls.inc();
        self.ask_shared(vec![check], purpose, move |worker, answered, now_us| {
            let answer = answered.into_iter().next().map(|(_, answer)| answer);
            then(worker, answer.unwrap_or(Err(StoreError::Stopped)), now_us);
        });
    }

    /// A call to the shared store has ended. When it panicked it is not known which call it was:
    /// all waiting checks are answered with an error, so that none waits for ever.
    fn call_ended(&mut self, ended: Result<CallEnd, JoinError>) {
        if let Ok(end) = ended {
            let now_us = self.clock.uptime_us();
            return end(self, now_us);
        }
        self.in_flight.clear();
        // It is not known what of these was counted.
        for (_, refused) in self.refused.drain() {
            self.metrics.leases.refused_hits_lost.inc_by(refused.hits);
        }
        self.refused_due.clear();
        for (_, pending) in std::mem::take(&mut self.pending) {
            self.send_answers(pending);
        }
    }
}

// === Checks ===

impl LeaseWorker {
    /// Answers what leases can answer, and lets the rest of the batch wait.
    fn answer(&mut self, mut batch: Box<Batch>, now_us: u64) {
        let buckets = &self.metrics.buckets;
        if batch.is_abandoned() {
            self.free_queue_space(batch.checks.len());
            buckets.shed_caller_gone.inc_by(batch.checks.len() as u64);
            return;
        }
        if batch.is_reset() {
            // Stands for missing outcomes; replaced below.
            batch.answer_all(&StoreError::Stopped);
            return self.wait(batch, now_us);
        }
        let mut answered = 0;
        let mut from = 0;
        let mut requests = std::mem::take(&mut batch.requests);
        for request in &mut requests {
            let to = from + request.checks;
            let checks = batch.checks.get(from..to).unwrap_or_default();
            let positions = batch.positions.get(from..to).unwrap_or_default();
            from = to;
            if request.deadline.passed(now_us) {
                let late = &self.metrics.buckets.shed_deadline;
                late.inc_by(checks.len() as u64);
                answered += checks.len();
                let undecided = checks.iter().map(|_| Err(StoreError::DeadlineExceeded));
                batch.answers.extend(undecided);
                continue;
            }
            let decided_before = batch.answers.len();
            for check in checks {
                let outcome = self.decide(check, now_us);
                if let Some(outcome) = &outcome {
                    count_decided(&mut self.decided, outcome.allowed);
                }
                // Stands for a missing outcome; replaced below.
                batch.answers.push(outcome.ok_or(StoreError::Stopped));
            }
            let answers = batch.answers.get(decided_before..).unwrap_or_default();
            if answers.iter().all(Result::is_ok) {
                answered += checks.len();
                request.keep_tentative(batch.refund_sink.as_ref(), checks, answers);
                continue;
            }
            let own = Batch {
                requests: vec![BatchRequest {
                    tentative: None,
                    ..*request
                }],
                checks: checks.to_vec(),
                positions: positions.to_vec(),
                answers: answers.to_vec(),
                refund_sink: batch.refund_sink.clone(),
                reply: batch.reply.clone(),
            };
            request.is_elsewhere = true;
            self.wait(Box::new(own), now_us);
        }
        batch.requests = requests;
        self.free_queue_space(answered);
        batch.send_back();
    }

    /// Decides a check from its lease; none when the store must be asked.
    fn decide(&mut self, check: &Check, now_us: u64) -> Option<Outcome> {
        if !Leases::covers(check) {
            return None;
        }
        let is_awaited = |call: &InFlight| !call.is_ahead || !call.waiters.is_empty();
        if self.in_flight.get(&check.key).is_some_and(is_awaited) {
            self.serve_from_new_window(check.key, now_us);
        }
        let in_flight = self.in_flight.get(&check.key);
        if in_flight.is_some_and(is_awaited) {
            self.take_of_next_window(check, now_us);
            return None;
        }
        let is_asked = in_flight.is_some();
        self.spend(check, is_asked, now_us)
    }

    /// Decides a check from its lease, whatever waits; none when that has too few hits.
    fn spend(&mut self, check: &Check, is_asked: bool, now_us: u64) -> Option<Outcome> {
        let (round_trip_us, refunds) = (self.round_trip_us, &mut self.returned);
        let spent = self.leases.spend(check, now_us, round_trip_us, refunds)?;
        if spent.is_low && !is_asked {
            self.metrics.leases.takes_ahead.inc();
            self.take_more(check.clone(), Vec::new(), now_us);
        }
        if spent.next_is_due {
            self.take_of_next_window(check, now_us);
        }
        let outcome = spent.outcome;
        if !outcome.allowed {
            self.add_refused(check);
        }
        Some(outcome)
    }

    /// Lets a request wait for its checks without an outcome.
    fn wait(&mut self, batch: Box<Batch>, now_us: u64) {
        let is_reset = batch.is_reset();
        let checks = batch.checks.iter().zip(&batch.answers).enumerate();
        let missing: Vec<(usize, Check)> = checks
            .filter(|(_, (_, answer))| answer.is_err())
            .map(|(at, (check, _))| (at, check.clone()))
            .collect();
        let number = self.next_pending;
        self.next_pending += 1;
        let unanswered = missing.len();
        let pending = PendingRequest { batch, unanswered };
        self.pending.insert(number, pending);
        for (at, check) in missing {
            let waiter = Waiter {
                pending: number,
                check: at,
                is_reset,
                rounds: 0,
            };
            // What was refused before it counts before it.
            if let Some(refused) = self.refused.get_mut(&check.key) {
                refused.waiting.push(waiter);
            } else {
                self.ask_store(check, waiter, now_us);
            }
        }
    }

    /// Asks the shared store for a check, or resets its bucket.
    fn ask_store(&mut self, check: Check, waiter: Waiter, now_us: u64) {
        if !waiter.is_reset {
            let is_covered = Leases::covers(&check);
            if is_covered && !self.leases.has_space(check.key) {
                self.metrics.leases.table_full.inc();
                return self.forward(check, waiter);
            }
            if !is_covered {
                return self.forward(check, waiter);
            }
        }
        match self.in_flight.get_mut(&check.key) {
            Some(call) => call.waiters.push(waiter),
            None if waiter.is_reset => self.reset(check, vec![waiter], Vec::new()),
            None => self.take_more(check, vec![waiter], now_us),
        }
    }

    /// Sends one check to the shared store as it is.
    fn forward(&mut self, check: Check, waiter: Waiter) {
        self.leases.note_look(&check);
        let key = check.key;
        let gives_back = check.operation.hits.can_give_back();
        self.ask_shared_about(check, Purpose::Decide, move |worker, answer, _| {
            if gives_back {
                worker.leases.forget_denial(key);
            }
            worker.put_answer(waiter, answer);
        });
    }

    /// Sends one take for all checks that wait for this bucket; none waits for a take in advance.
    fn take_more(&mut self, check: Check, waiters: Vec<Waiter>, now_us: u64) {
        let hits = waiters
            .iter()
            .filter_map(|waiter| Some(self.check_of(*waiter)?.operation.hits.requested()))
            .fold(0, u64::saturating_add);
        let is_ahead = waiters.is_empty();
        let in_flight = InFlight {
            is_reset: false,
            sent_us: now_us,
            is_ahead,
            waiters,
        };
        self.in_flight.insert(check.key, in_flight);
        self.take_of_next_window(&check, now_us);
        let take = self.leases.next_take(&check, hits, now_us);
        let check_hits = check.operation.hits.requested();
        let taken = Check {
            operation: take.operation,
            ..check
        };
        // Fewer hits than a check needs are of no use to it.
        let purpose = match check_hits {
            1 => Purpose::TakeUpTo,
            _ => Purpose::Decide,
        };
        self.ask_shared_about(take, purpose, move |worker, answer, ended_us| {
            worker.took(&taken, now_us, &answer, ended_us);
        });
    }

    /// Takes hits of the next window, if it is time. No check waits for them, and a take of the
    /// present window may be in flight beside it.
    fn take_of_next_window(&mut self, check: &Check, now_us: u64) {
        let round_trip_us = self.round_trip_us;
        let Some(take) = self.leases.next_window_take(check, now_us, round_trip_us) else {
            return;
        };
        self.metrics.leases.takes_ahead.inc();
        let taken = Check {
            operation: take.operation,
            ..check.clone()
        };
        self.ask_shared_about(take, Purpose::TakeAhead, move |worker, answer, ended_us| {
            let (leases, refunds) = (&mut worker.leases, &mut worker.returned);
            let outcome = answer.as_ref().ok();
            let hits = leases.record_next_window(&taken, outcome, now_us, ended_us, refunds);
            worker.metrics.leases.hits_taken.inc_by(hits);
        });
    }

    /// A take has ended: answers the checks that waited for it, as far as it goes.
    fn took(&mut self, taken: &Check, sent_us: u64, answer: &CheckResult, now_us: u64) {
        if !self.in_flight.contains_key(&taken.key) {
            // Another call panicked, and a reset may have come between.
            return;
        }
        if answer.is_ok() {
            let took_us = now_us.saturating_sub(sent_us);
            self.round_trip_us = match self.round_trip_us {
                0 => took_us,
                before => before.saturating_mul(7).saturating_add(took_us) / 8,
            };
        }
        match answer {
            Ok(outcome) if outcome.allowed => {
                let (leases, refunds) = (&mut self.leases, &mut self.returned);
                let hits = leases.record_grant(taken, outcome, sent_us, now_us, refunds);
                self.metrics.leases.hits_taken.inc_by(hits);
            }
            Ok(outcome) => {
                let refunds = &mut self.returned;
                self.leases.record_denial(taken, outcome, sent_us, refunds);
            }
            Err(_) => self.leases.record_failure(taken, now_us),
        }
        self.serve_waiters(taken, Some(answer), now_us);
    }

    /// Resets a bucket in the shared store, for all resets that wait. `rest` waits meanwhile.
    fn reset(&mut self, check: Check, resets: Vec<Waiter>, mut rest: Vec<Waiter>) {
        // Refused hits that are sent beside the reset could count after it.
        if let Some(mut refused) = self.refused.remove(&check.key) {
            self.metrics.leases.refused_hits_lost.inc_by(refused.hits);
            refused.hits = 0;
            if refused.in_flight {
                refused.waiting.extend(resets.into_iter().chain(rest));
                self.refused.insert(check.key, refused);
                return;
            }
            self.refused_due.retain(|due| *due != check.key);
            rest.extend(refused.waiting);
        }
        let in_flight = InFlight {
            is_reset: true,
            sent_us: 0,
            is_ahead: false,
            waiters: rest,
        };
        self.in_flight.insert(check.key, in_flight);
        let bucket = check.clone();
        self.ask_shared_about(check, Purpose::Reset, move |worker, answer, now_us| {
            // The lease of a bucket that could not be reset is still held.
            if answer.is_ok() {
                worker.leases.reset(&bucket, now_us, REFUND_LATE_MAX_US);
            }
            for waiter in resets {
                worker.put_answer(waiter, answer.clone());
            }
            worker.serve_waiters(&bucket, None, now_us);
        });
    }

    /// Answers the checks that wait for a bucket, as far as its lease goes, when a take (its answer
    /// is `took`) or a reset has ended. The others wait for the next reset or take.
    fn serve_waiters(&mut self, bucket: &Check, took: Option<&CheckResult>, now_us: u64) {
        // The entry stays meanwhile, so that no take in advance is sent: those that wait may need
        // more.
        let waiters = self.in_flight.get_mut(&bucket.key).map(|call| {
            (call.is_reset, call.is_ahead) = (false, true);
            std::mem::take(&mut call.waiters)
        });
        let waiters = waiters.into_iter().flatten();
        let (resets, waiters) = waiters.partition::<Vec<_>, _>(|waiter| waiter.is_reset);
        let mut rest = Vec::new();
        let mut first = None;
        for mut waiter in waiters {
            let Some(check) = self.check_of(waiter) else {
                continue;
            };
            if let Some(Err(error)) = took {
                self.put_answer(waiter, Err(error.clone()));
                continue;
            }
            waiter.rounds += u32::from(took.is_some());
            if let Some(outcome) = self.decide(&check, now_us) {
                self.put_answer(waiter, Ok(outcome));
            } else if let Some(Ok(last)) = took
                && waiter.rounds >= ROUNDS_MAX
            {
                // The store's answers changed faster than takes could be sent.
                self.add_refused(&check);
                let refusal = Outcome {
                    allowed: false,
                    retry_us: Some(last.retry_us.unwrap_or(1).max(1)),
                    ..*last
                };
                self.put_answer(waiter, Ok(refusal));
            } else {
                first.get_or_insert(check);
                rest.push(waiter);
            }
        }
        self.in_flight.remove(&bucket.key);
        if !resets.is_empty() {
            self.reset(bucket.clone(), resets, rest);
        } else if let Some(first) = first {
            self.take_more(first, rest, now_us);
        }
    }

    /// Answers checks that wait for a take of the last window from hits of the present one, which
    /// were taken before it began. The others wait on, and so do all where the bucket is to be
    /// reset.
    fn serve_from_new_window(&mut self, key: Key, now_us: u64) {
        let Some(call) = self.in_flight.get_mut(&key) else {
            return;
        };
        let began_us = self
            .leases
            .begin_next_window(key, now_us, &mut self.returned);
        if call.is_reset || call.sent_us >= began_us {
            return;
        }
        // Once: what the window has then does not suffice for those that wait on.
        call.sent_us = began_us;
        if call.waiters.iter().any(|waiter| waiter.is_reset) {
            return;
        }
        call.is_ahead = true;
        let mut waiters = VecDeque::from(std::mem::take(&mut call.waiters));
        while let Some(waiter) = waiters.front().copied() {
            if let Some(check) = self.check_of(waiter) {
                let Some(outcome) = self.spend(&check, true, now_us) else {
                    break;
                };
                self.put_answer(waiter, Ok(outcome));
            }
            waiters.pop_front();
        }
        if let Some(call) = self.in_flight.get_mut(&key) {
            call.waiters = waiters.into();
        }
    }

    fn check_of(&self, waiter: Waiter) -> Option<Check> {
        let pending = self.pending.get(&waiter.pending)?;
        pending.batch.checks.get(waiter.check).cloned()
    }

    fn put_answer(&mut self, waiter: Waiter, answer: CheckResult) {
        let Some(pending) = self.pending.get_mut(&waiter.pending) else {
            return;
        };
        if let Ok(outcome) = &answer {
            count_decided(&mut self.decided, outcome.allowed);
        }
        if let Some(slot) = pending.batch.answers.get_mut(waiter.check) {
            *slot = answer;
        }
        pending.unanswered = pending.unanswered.saturating_sub(1);
        if pending.unanswered == 0
            && let Some(pending) = self.pending.remove(&waiter.pending)
        {
            self.send_answers(pending);
        }
    }

    fn send_answers(&self, pending: PendingRequest) {
        let mut batch = pending.batch;
        if let Some(request) = batch.requests.first_mut() {
            request.keep_tentative(batch.refund_sink.as_ref(), &batch.checks, &batch.answers);
        }
        self.free_queue_space(batch.checks.len());
        batch.send_back();
    }
}

// === Refused hits ===

impl LeaseWorker {
    /// Notes hits that a lease refused, if their limit counts them.
    fn add_refused(&mut self, check: &Check) {
        let hits = self.leases.count_refused(check);
        if hits == 0 {
            return;
        }
        if let Some(refused) = self.refused.get_mut(&check.key) {
            refused.hits = refused.hits.saturating_add(hits);
            refused.check.limit = check.limit;
            return;
        }
        if self.refused.len() >= REFUSED_KEYS_MAX {
            self.metrics.leases.refused_hits_lost.inc_by(hits);
            return;
        }
        self.refused_due.push(check.key);
        let refused = RefusedHits {
            check: check.clone(),
            hits,
            in_flight: false,
            waiting: Vec::new(),
        };
        self.refused.insert(check.key, refused);
    }

    /// Sends what was refused since the last call, of each bucket without one in flight.
    fn send_refused(&mut self) {
        while !self.refused_due.is_empty() {
            let rest = self.refused_due.len().saturating_sub(CALL_CHECKS_MAX);
            let keys = self.refused_due.split_off(rest);
            let takes = keys.iter().filter_map(|key| {
                let refused = self.refused.get_mut(key)?;
                refused.in_flight = true;
                let hits = Hits::Take(std::mem::take(&mut refused.hits));
                Some(Check {
                    operation: hits.into(),
                    ..refused.check.clone()
                })
            });
            let takes = takes.collect();
            self.metrics.leases.calls.inc();
            self.ask_shared(takes, Purpose::Decide, Self::refused_counted);
        }
    }

    /// A call with refused hits has ended: sends what was refused meanwhile, and asks for the
    /// checks that waited.
    fn refused_counted(&mut self, answered: Vec<(Check, CheckResult)>, now_us: u64) {
        for (check, answer) in answered {
            let hits = check.operation.hits.requested();
            match answer {
                Ok(outcome) => {
                    self.metrics.leases.refused_hits.inc_by(hits);
                    self.leases.refused_counted(&check, &outcome);
                }
                Err(_) => self.metrics.leases.refused_hits_lost.inc_by(hits),
            }
            let Some(refused) = self.refused.get_mut(&check.key) else {
                continue;
            };
            refused.in_flight = false;
            let waiting = std::mem::take(&mut refused.waiting);
            if refused.hits > 0 {
                self.refused_due.push(check.key);
            } else {
                self.refused.remove(&check.key);
            }
            for waiter in waiting {
                self.resume(waiter, now_us);
            }
        }
    }

    /// Answers a check that waited for refused hits, or asks the store.
    fn resume(&mut self, waiter: Waiter, now_us: u64) {
        let Some(check) = self.check_of(waiter) else {
            return;
        };
        if !waiter.is_reset
            && let Some(outcome) = self.decide(&check, now_us)
        {
            self.put_answer(waiter, Ok(outcome));
        } else {
            self.ask_store(check, waiter, now_us);
        }
    }
}

// === Refunds: unspent hits of ended leases, and tentative takes that were rolled back ===

impl LeaseWorker {
    fn take_back(&mut self, refunds: Vec<Check>, now_us: u64) {
        let refunded = &self.metrics.buckets.given_back;
        refunded.inc_by(refunds.len() as u64);
        for refund in refunds {
            if !self.leases.reclaim(&refund, now_us) {
                self.returned.push(refund);
            }
        }
    }

    /// Sends new refunds, and those that are due again.
    fn send_refunds(&mut self, now_us: u64) {
        while !self.returned.is_empty() {
            let rest = self.returned.len().saturating_sub(CALL_CHECKS_MAX);
            let refunds = self.returned.split_off(rest);
            self.refund(refunds, now_us.saturating_add(RETRY_FOR_US));
        }
        let lost = self.refunds.pass(now_us);
        self.lose(lost);
        while let Some((refunds, until_us)) = self.refunds.pop() {
            self.refund(refunds, until_us);
        }
    }

    fn refund(&mut self, refunds: Vec<Check>, until_us: u64) {
        self.ask_shared(refunds, Purpose::Decide, move |worker, answered, now_us| {
            let (mut done, mut lost, mut kept) = (0, 0, Vec::new());
            for (refund, answer) in answered {
                match answer {
                    Ok(_) => done += 1,
                    Err(StoreError::Unavailable(fault))
                        if fault.lets_refunds_retry() && now_us < until_us =>
                    {
                        kept.push(refund);
                    }
                    Err(_) => lost += 1,
                }
            }
            worker.metrics.leases.returns.inc_by(done);
            let again_us = now_us.saturating_add(REFUND_AGAIN_US);
            lost += worker.refunds.add_again(kept, until_us, again_us);
            worker.lose(lost);
        });
    }

    fn lose(&self, refunds: usize) {
        self.metrics.leases.returns_lost.inc_by(refunds as u64);
    }
}
