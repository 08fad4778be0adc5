//! How a worker fills its calls from the batches that wait, and what it does when a call ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::JoinError;

use super::{CALLS_MAX, GIVE_BACK_AGAIN_US, NodeWorker};
use crate::store::queue::{Batch, BatchRequest};
use crate::store::redis::call::{Call, CallBatch, CallReport};
use crate::store::redis::script;
use crate::store::{Deadline, Purpose};
use tollgate_limiter::Check;

/// The weight of these checks in a call.
fn weigh(checks: &[Check]) -> usize {
    let weights = checks.iter().map(script::weight);
    weights.fold(0, usize::saturating_add)
}

impl NodeWorker {
    /// Puts what waits into calls, up to the number of calls in flight.
    pub(super) fn send(&mut self) {
        while self.calls.len() < CALLS_MAX {
            let Some(connected) = &self.connected else {
                return;
            };
            let connection = connected.opened.connection.clone();
            let now_us = self.now_us();
            let mut parts = VecDeque::new();
            let mut weight = 0_usize;
            // Refunds free hits in buckets, so they go first.
            while weight < script::CHECKS_MAX
                && let Some((undoing, until_us)) = self.refunds.pop()
            {
                weight = weight.saturating_add(weigh(&undoing));
                parts.push_back(self.undoing(undoing, now_us, until_us));
            }
            while let Some(part) = self.waiting.front() {
                let more = weight.saturating_add(weigh(&part.batch.checks));
                if more > script::CHECKS_MAX && !parts.is_empty() {
                    break;
                }
                let Some(part) = self.waiting.pop_front() else {
                    break;
                };
                if part.batch.is_abandoned() {
                    let count = part.batch.checks.len() as u64;
                    self.node.shed_caller_gone.inc_by(count);
                    self.node.send_back(part);
                    continue;
                }
                weight = more;
                parts.push_back(part);
            }
            if parts.is_empty() {
                return;
            }
            let call = Call {
                node: Arc::clone(&self.node),
                parts,
                began_us: now_us,
                connection: self.connection,
                address: self.address(),
                kept: Vec::new(),
            };
            self.calls.spawn(call.run(connection));
        }
    }

    /// A batch of refunds, which no caller waits for.
    pub(super) fn undoing(&self, checks: Vec<Check>, now_us: u64, until_us: u64) -> CallBatch {
        let mut batch = Box::<Batch>::default();
        batch.requests.push(BatchRequest {
            ticket: 0,
            checks: checks.len(),
            deadline: Deadline::NEVER,
            purpose: Purpose::Decide,
            is_elsewhere: false,
            tentative: None,
            stamp: None,
        });
        // `send_back` frees the queue space of every batch, and this one has none.
        let waiting = &self.node.levels.waiting;
        waiting.fetch_add(checks.len(), Ordering::AcqRel);
        batch.checks = checks;
        CallBatch {
            batch,
            due_us: now_us.saturating_add(self.node.deadline_us),
            gives_back_until_us: Some(until_us),
        }
    }

    pub(super) fn call_ended(&mut self, ended: Result<CallReport, JoinError>) {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // Its batches are gone; their callers see a closed channel.
                tracing::error!(%error, "this is a defect in tollgate: a call to the store was lost");
                return;
            }
        };
        let again_us = self.now_us().saturating_add(GIVE_BACK_AGAIN_US);
        for (checks, until_us) in ended.kept {
            if self.is_vacant() {
                self.give_back_elsewhere(checks);
            } else {
                let lost = self.refunds.add_again(checks, until_us, again_us);
                self.lost(lost);
            }
        }
        match ended.fault {
            None => self.breaker.answered(),
            // An old connection says nothing about the present one.
            Some(_) if ended.connection != self.connection => {}
            Some(fault) => self.failed(fault, ended.words),
        }
    }
}
