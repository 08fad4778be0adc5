//! Resets of buckets: at most one take or one reset of a bucket is in flight.
//!
//! Why: a take in flight at the moment of a reset may have run before it in the shared store. Its
//! grant would bring back a part of what the reset forgets. Refused hits in flight may be counted
//! after it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{CallReport, LeaseWorker, Waiter};
use crate::store::CheckResult;
use crate::store::refund_queue::REFUND_LATE_MAX_US;
use tollgate_limiter::{Check, Outcome, ReservationOutcome, Timestamp};

impl LeaseWorker {
    /// Resets a bucket, as soon as no take of it is in flight.
    pub(super) fn wait_for_reset(&mut self, check: Check, waiter: Waiter) {
        if let Some(waiting) = self.waiters.get_mut(&check.key) {
            waiting.push_back(waiter);
        } else {
            self.reset(check, VecDeque::from([waiter]), VecDeque::new());
        }
    }

    /// Separates the resets among these waiters from the checks.
    pub(super) fn resets_of(
        &self,
        waiters: VecDeque<Waiter>,
    ) -> (VecDeque<Waiter>, VecDeque<Waiter>) {
        waiters.into_iter().partition(|waiter| {
            let pending = self.pending.get(waiter.pending).and_then(Option::as_ref);
            pending.is_some_and(|pending| pending.batch.is_reset())
        })
    }

    /// Resets a bucket in the shared store, for all resets that wait. `rest` waits meanwhile.
    pub(super) fn reset(
        &mut self,
        check: Check,
        waiters: VecDeque<Waiter>,
        mut rest: VecDeque<Waiter>,
    ) {
        // Refused hits that are sent beside the reset could count after it.
        if let Some(mut refused) = self.refused.remove(&check.key) {
            self.metrics.leases.refused_hits_lost.inc_by(refused.hits);
            refused.hits = 0;
            if refused.in_flight {
                refused.waiting.extend(waiters.into_iter().chain(rest));
                self.refused.insert(check.key, refused);
                return;
            }
            self.refused_due.retain(|due| *due != check.key);
            rest.extend(refused.waiting);
        }
        self.waiters.insert(check.key, rest);
        self.metrics.leases.calls.inc();
        let shared = Arc::clone(&self.shared);
        self.under_way.spawn(async move {
            let answer = shared.reset(vec![check.clone()]).await;
            let counted = answer.map(|counted| counted.contains(&true));
            CallReport::Reset {
                check,
                waiters,
                answer: counted.map(outcome),
            }
        });
    }

    /// A reset has ended: forgets the lease, and takes for the checks that waited. The lease of a
    /// bucket that could not be reset is still held.
    pub(super) fn was_reset(
        &mut self,
        check: &Check,
        waiters: VecDeque<Waiter>,
        answer: &CheckResult,
        now_us: u64,
    ) {
        if answer.is_ok() {
            self.leases.reset(check, now_us, REFUND_LATE_MAX_US);
        }
        for waiter in waiters {
            self.put_answer(waiter, answer.clone());
        }
        let rest = self.waiters.remove(&check.key).unwrap_or_default();
        let (resets, rest) = self.resets_of(rest);
        let mut dry = VecDeque::new();
        let mut first = None;
        for waiter in rest {
            let Some(check) = self.check_of(waiter) else {
                continue;
            };
            if let Some(outcome) = self.decide(&check, now_us) {
                self.put_answer(waiter, Ok(outcome));
            } else {
                first.get_or_insert(check);
                dry.push_back(waiter);
            }
        }
        if !resets.is_empty() {
            self.reset(check.clone(), resets, dry);
        } else if let Some(first) = first {
            self.take_more(first, dry, now_us);
        }
    }
}

/// The outcome of a reset: whether hits counted in the bucket.
fn outcome(counted: bool) -> Outcome {
    Outcome {
        reservation: ReservationOutcome::None,
        allowed: true,
        used_before: u64::from(counted),
        remaining: 0,
        reset_us: 0,
        retry_us: Some(0),
        bucket_time: Timestamp::default(),
    }
}
