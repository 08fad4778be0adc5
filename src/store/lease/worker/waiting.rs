//! Checks that a lease does not answer: they wait for one take per bucket, or are sent to the
//! shared store as they are.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{CallReport, LeaseWorker, PendingRequest, ROUNDS_MAX, Waiter};
use crate::metrics::count_decided;
use crate::store::lease::leases::Leases;
use crate::store::queue::Batch;
use crate::store::{CheckResult, Deadline, Purpose, Store, StoreError, StoreReply, TentativeTake};
use tollgate_limiter::{Check, Outcome};

impl LeaseWorker {
    /// Lets a request wait for its checks without an outcome.
    pub(super) fn wait(&mut self, batch: Box<Batch>, now_us: u64) {
        let missing: Vec<usize> = (0..batch.checks.len())
            .filter(|at| batch.answers.get(*at).is_none_or(Result::is_err))
            .collect();
        let checks: Vec<(usize, Check)> = missing
            .iter()
            .filter_map(|at| Some((*at, batch.checks.get(*at)?.clone())))
            .collect();
        let is_reset = batch.is_reset();
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
            // What was refused before it counts before it.
            if let Some(refused) = self.refused.get_mut(&check.key) {
                refused.waiting.push(waiter);
            } else {
                self.ask_store(check, waiter, is_reset, now_us);
            }
        }
    }

    /// Asks the shared store for a check, or resets its bucket.
    pub(super) fn ask_store(&mut self, check: Check, waiter: Waiter, is_reset: bool, now_us: u64) {
        if is_reset {
            self.wait_for_reset(check, waiter);
        } else if !Leases::covers(&check) {
            self.forward(check, waiter);
        } else if self.leases.has_space(check.key) {
            if let Some(waiting) = self.waiters.get_mut(&check.key) {
                waiting.push_back(waiter);
            } else {
                self.take_more(check, VecDeque::from([waiter]), now_us);
            }
        } else {
            self.metrics.leases.table_full.inc();
            self.forward(check, waiter);
        }
    }

    /// Sends one check to the shared store as it is.
    pub(super) fn forward(&mut self, check: Check, waiter: Waiter) {
        self.leases.note_look(&check);
        self.metrics.leases.calls.inc();
        let shared = Arc::clone(&self.shared);
        self.under_way.spawn(async move {
            let answer = one(&*shared, check).await;
            CallReport::Forwarded { waiter, answer }
        });
    }

    /// Sends one take for all checks that wait for this bucket.
    pub(super) fn take_more(&mut self, check: Check, waiters: VecDeque<Waiter>, now_us: u64) {
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

    /// A take has ended: answers the checks that waited for it, as far as it goes.
    pub(super) fn took(&mut self, asked: &Check, sent_us: u64, answer: CheckResult, now_us: u64) {
        let Some(waiters) = self.waiters.remove(&asked.key) else {
            return;
        };
        let outcome = match answer {
            Ok(outcome) => outcome,
            Err(error) => {
                let (resets, waiters) = self.resets_of(waiters);
                for waiter in waiters {
                    self.put_answer(waiter, Err(error.clone()));
                }
                if !resets.is_empty() {
                    self.reset(asked.clone(), resets, VecDeque::new());
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
        let (resets, waiters) = self.resets_of(waiters);
        let mut rest = VecDeque::new();
        let mut first = None;
        for mut waiter in waiters {
            let Some(check) = self.check_of(waiter) else {
                continue;
            };
            waiter.rounds = waiter.rounds.saturating_add(1);
            if let Some(outcome) = self.decide(&check, now_us) {
                self.put_answer(waiter, Ok(outcome));
            } else if waiter.rounds < ROUNDS_MAX {
                first.get_or_insert(check);
                rest.push_back(waiter);
            } else {
                self.add_refused(&check);
                self.put_answer(waiter, Ok(refusal(&outcome)));
            }
        }
        if !resets.is_empty() {
            self.reset(asked.clone(), resets, rest);
        } else if let Some(check) = first {
            self.take_more(check, rest, now_us);
        }
    }

    pub(super) fn check_of(&self, waiter: Waiter) -> Option<Check> {
        let pending = self.pending.get(waiter.pending)?.as_ref()?;
        pending.batch.checks.get(waiter.check).cloned()
    }

    pub(super) fn put_answer(&mut self, waiter: Waiter, answer: CheckResult) {
        let Some(place) = self.pending.get_mut(waiter.pending) else {
            return;
        };
        let Some(pending) = place.as_mut() else {
            return;
        };
        if let Ok(outcome) = &answer {
            count_decided(&mut self.decided, outcome.allowed);
        }
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

    pub(super) fn send_answers(&self, pending: PendingRequest) {
        let mut batch = pending.batch;
        let Batch {
            requests,
            checks,
            answers,
            refund_sink,
            ..
        } = &mut *batch;
        if let (Some(request), Some(store)) = (requests.first_mut(), refund_sink)
            && request.purpose == Purpose::DecideTentatively
        {
            let decided = checks.iter().zip(answers.iter());
            request.tentative = Some(TentativeTake::new(Arc::clone(store), decided));
        }
        self.left(batch.checks.len());
        batch.send_back();
    }
}

/// Sends one check and returns its result.
async fn one(shared: &dyn Store, check: Check) -> CheckResult {
    let StoreReply { mut answers, .. } = shared
        .ask(vec![check], Deadline::NEVER, Purpose::Decide)
        .await?;
    answers.pop().unwrap_or(Err(StoreError::Stopped))
}

/// The answer when the store's answers changed faster than takes could be sent.
fn refusal(last: &Outcome) -> Outcome {
    Outcome {
        allowed: false,
        retry_us: Some(last.retry_us.unwrap_or(1).max(1)),
        ..*last
    }
}
