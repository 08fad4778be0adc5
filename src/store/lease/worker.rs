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
use crate::store::refund_queue::{self, RefundQueue};
use crate::store::{
    CheckResult, CommitMode, Deadline, Store, StoreError, StoreFault, StoreReply, TentativeTake,
};
use tollgate_limiter::{Check, CountRefused, Key, LeasePolicy, Outcome};

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

    /// Lets a request wait for the checks of it that have no outcome.
    fn wait(&mut self, batch: Box<Batch>, now_us: u64) {
        let missing: Vec<usize> = (0..batch.checks.len())
            .filter(|at| batch.answers.get(*at).is_none_or(Result::is_err))
            .collect();
        let checks: Vec<(usize, Check)> = missing
            .iter()
            .filter_map(|at| Some((*at, batch.checks.get(*at)?.clone())))
            .collect();
        let pending = PendingRequest {
            batch,
            unanswered: missing.len(),
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len().saturating_sub(1)
        });
        if let Some(place) = self.pending.get_mut(number) {
            *place = Some(pending);
        }
        for (check_at, check) in checks {
            let waiter = Waiter {
                pending: number,
                check: check_at,
                rounds: 0,
            };
            if !Leases::covers(&check) {
                self.forward(check, waiter);
            } else if self.leases.has_room(check.key) {
                if let Some(waiting) = self.waiters.get_mut(&check.key) {
                    waiting.push_back(waiter);
                } else {
                    self.take_more(check, VecDeque::from([waiter]), now_us);
                }
            } else {
                self.metrics.leases.no_room.inc();
                self.forward(check, waiter);
            }
        }
    }

    /// Asks the shared store one check as it is, but that nothing refused is written where leases are.
    fn forward(&mut self, mut check: Check, waiter: Waiter) {
        if check.algorithm.lease_policy() != LeasePolicy::Never {
            check.limit = check.limit.with_count_refused(CountRefused::None);
        }
        self.metrics.leases.calls.inc();
        let shared = Arc::clone(&self.shared);
        self.under_way.spawn(async move {
            let answer = one(&*shared, check).await;
            CallReport::Forwarded { waiter, answer }
        });
    }

    /// Takes for all that wait for this check's bucket.
    fn take_more(&mut self, check: Check, waiters: VecDeque<Waiter>, now_us: u64) {
        let hits = waiters
            .iter()
            .filter_map(|waiter| Some(self.check_of(*waiter)?.operation.hits.requested()))
            .fold(0, u64::saturating_add);
        self.waiters.insert(check.key, waiters);
        let asked = self.leases.next_take(&check, hits, now_us);
        self.metrics.leases.calls.inc();
        let shared = Arc::clone(&self.shared);
        let sent_us = now_us;
        let granted = Check {
            operation: asked.operation,
            ..check
        };
        self.under_way.spawn(async move {
            let answer = one(&*shared, asked).await;
            CallReport::Taken {
                asked: granted,
                sent_us,
                answer,
            }
        });
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

    /// A take came back: answers those who waited for it, as far as it goes.
    fn took(&mut self, asked: &Check, sent_us: u64, answer: CheckResult, now_us: u64) {
        let Some(waiters) = self.waiters.remove(&asked.key) else {
            return;
        };
        let outcome = match answer {
            Ok(outcome) => outcome,
            Err(error) => {
                for waiter in waiters {
                    self.put_answer(waiter, Err(error.clone()));
                }
                return;
            }
        };
        let hits = asked.operation.hits.requested();
        if outcome.allowed {
            self.metrics.leases.hits_taken.inc_by(hits);
            let times_us = (sent_us, now_us);
            self.leases
                .record_grant(asked, hits, &outcome, times_us, &mut self.returned);
        } else {
            self.leases.record_denial(asked, &outcome, sent_us);
        }
        let mut rest = VecDeque::new();
        let mut first = None;
        for mut waiter in waiters {
            let Some(check) = self.check_of(waiter) else {
                continue;
            };
            waiter.rounds = waiter.rounds.saturating_add(1);
            if let Some(outcome) = self.leases.spend(&check, now_us, &mut self.returned) {
                self.put_answer(waiter, Ok(outcome));
            } else if waiter.rounds < ROUNDS_MAX {
                first.get_or_insert(check);
                rest.push_back(waiter);
            } else {
                self.put_answer(waiter, Ok(refusal(&outcome)));
            }
        }
        if let Some(check) = first {
            self.take_more(check, rest, now_us);
        }
    }

    fn check_of(&self, waiter: Waiter) -> Option<Check> {
        let pending = self.pending.get(waiter.pending)?.as_ref()?;
        pending.batch.checks.get(waiter.check).cloned()
    }

    fn put_answer(&mut self, waiter: Waiter, answer: CheckResult) {
        let Some(place) = self.pending.get_mut(waiter.pending) else {
            return;
        };
        let Some(pending) = place.as_mut() else {
            return;
        };
        if let Some(slot) = pending.batch.answers.get_mut(waiter.check) {
            *slot = answer;
        }
        pending.unanswered = pending.unanswered.saturating_sub(1);
        if pending.unanswered > 0 {
            return;
        }
        if let Some(pending) = place.take() {
            self.free.push(waiter.pending);
            self.send_answers(pending);
        }
    }

    fn send_answers(&self, pending: PendingRequest) {
        let mut batch = pending.batch;
        let Batch {
            requests,
            checks,
            answers,
            refund_sink,
            ..
        } = &mut *batch;
        if let (Some(request), Some(store)) = (requests.first_mut(), refund_sink) {
            request.tentative = request
                .is_tentative
                .then(|| TentativeTake::new(Arc::clone(store), checks.iter().zip(answers.iter())));
        }
        self.left(batch.checks.len());
        batch.send_back();
    }

    /// Checks that were answered give their room back.
    fn left(&self, checks: usize) {
        self.levels.waiting.fetch_sub(checks, Ordering::AcqRel);
    }

    fn take_back(&mut self, checks: Vec<Check>, now_us: u64) {
        self.metrics.buckets.given_back.inc_by(checks.len() as u64);
        for check in checks {
            if !self.leases.reclaim(&check, now_us) {
                self.returned.push(check);
            }
        }
    }

    /// Sends what goes back, and what did not a while ago.
    fn send_back(&mut self, now_us: u64) {
        while !self.returned.is_empty() {
            let rest = self.returned.len().saturating_sub(GIVE_BACK_CHECKS_MAX);
            let checks = self.returned.split_off(rest);
            self.give_back(checks, now_us.saturating_add(refund_queue::RETRY_FOR_US));
        }
        let lost = self.refunds.pass(now_us);
        self.lose(lost);
        while let Some((checks, until_us)) = self.refunds.pop() {
            self.give_back(checks, until_us);
        }
    }

    fn give_back(&mut self, checks: Vec<Check>, until_us: u64) {
        let shared = Arc::clone(&self.shared);
        self.under_way.spawn(async move {
            let asked = checks.clone();
            let applied = shared
                .apply(asked, Deadline::NEVER, CommitMode::Immediate)
                .await;
            let answers = applied.map(|applied| applied.answers);
            let (mut done, mut lost, mut kept) = (0_usize, 0_usize, Vec::new());
            for (at, check) in checks.into_iter().enumerate() {
                let answer = match &answers {
                    Ok(answers) => answers.get(at).map(Result::as_ref),
                    Err(error) => Some(Err(error)),
                };
                match answer {
                    Some(Ok(_)) => done = done.saturating_add(1),
                    Some(Err(StoreError::Unavailable(fault)))
                        if !fault.outcome_unknown() && *fault != StoreFault::InvalidBucket =>
                    {
                        kept.push(check);
                    }
                    _ => lost = lost.saturating_add(1),
                }
            }
            CallReport::Refunded {
                done,
                lost,
                kept,
                until_us,
            }
        });
    }

    /// Keeps what did not go back, as long as there is time and room.
    fn keep(&mut self, checks: Vec<Check>, until_us: u64, now_us: u64) {
        let lost = if until_us <= now_us {
            checks.len()
        } else {
            let again_us = now_us.saturating_add(AGAIN_US);
            self.refunds.add_again(checks, until_us, again_us)
        };
        self.lose(lost);
    }

    fn lose(&self, checks: usize) {
        self.metrics.leases.returns_lost.inc_by(checks as u64);
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

/// One check's answer.
async fn one(shared: &dyn Store, check: Check) -> CheckResult {
    let StoreReply { mut answers, .. } = shared
        .apply(vec![check], Deadline::NEVER, CommitMode::Immediate)
        .await?;
    answers.pop().unwrap_or(Err(StoreError::Stopped))
}

/// What is said when the store's answers changed faster than could be asked.
fn refusal(last: &Outcome) -> Outcome {
    Outcome {
        allowed: false,
        retry_us: Some(last.retry_us.unwrap_or(1).max(1)),
        ..*last
    }
}
