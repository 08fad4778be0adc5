//! What goes back to the shared store: unspent hits of ended leases, and tentative takes that were
//! rolled back.

use std::sync::Arc;

use super::{AGAIN_US, CallReport, GIVE_BACK_CHECKS_MAX, LeaseWorker};
use crate::store::refund_queue;
use crate::store::{Deadline, Purpose, StoreError, StoreFault};
use tollgate_limiter::Check;

impl LeaseWorker {
    pub(super) fn take_back(&mut self, checks: Vec<Check>, now_us: u64) {
        self.metrics.buckets.given_back.inc_by(checks.len() as u64);
        for check in checks {
            if !self.leases.reclaim(&check, now_us) {
                self.returned.push(check);
            }
        }
    }

    /// Sends new refunds, and those that are due again.
    pub(super) fn send_back(&mut self, now_us: u64) {
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

    pub(super) fn give_back(&mut self, checks: Vec<Check>, until_us: u64) {
        let shared = Arc::clone(&self.shared);
        self.under_way.spawn(async move {
            let asked = checks.clone();
            let applied = shared.ask(asked, Deadline::NEVER, Purpose::Decide).await;
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

    /// Keeps failed refunds while there is time and space.
    pub(super) fn keep(&mut self, checks: Vec<Check>, until_us: u64, now_us: u64) {
        let lost = if until_us <= now_us {
            checks.len()
        } else {
            let again_us = now_us.saturating_add(AGAIN_US);
            self.refunds.add_again(checks, until_us, again_us)
        };
        self.lose(lost);
    }

    pub(super) fn lose(&self, checks: usize) {
        self.metrics.leases.returns_lost.inc_by(checks as u64);
    }
}
