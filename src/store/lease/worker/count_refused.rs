//! Refused hits that their limit counts: they reach the shared store behind the answer.
//!
//! A bucket has one call in flight. What is refused meanwhile is added up and sent in the next, so
//! a flood costs one check per bucket and round trip. Hits that do not reach the store are counted
//! and not sent again: a window may have turned meanwhile.

use std::sync::Arc;

use super::{CallReport, LeaseWorker, RefusedHits, Waiter};
use crate::store::lease::leases::Leases;
use crate::store::{CheckResult, Deadline, Purpose, StoreError};
use tollgate_limiter::{Check, Hits, Operation, Outcome};

/// How many buckets may have refused hits that are not counted yet.
const KEYS_MAX: usize = 16_384;

/// How many buckets are in one call.
const CHECKS_MAX: usize = 256;

// === impl LeaseWorker ===

impl LeaseWorker {
    /// Decides a check from its lease; none when the store must be asked.
    pub(super) fn decide(&mut self, check: &Check, now_us: u64) -> Option<Outcome> {
        let outcome = self.leases.spend(check, now_us, &mut self.returned)?;
        if !outcome.allowed {
            self.add_refused(check);
        }
        Some(outcome)
    }

    /// Notes hits that a lease refused, if their limit counts them.
    pub(super) fn add_refused(&mut self, check: &Check) {
        let hits = self.leases.count_refused(check);
        if hits == 0 {
            return;
        }
        if let Some(refused) = self.refused.get_mut(&check.key) {
            refused.hits = refused.hits.saturating_add(hits);
            refused.check.limit = check.limit;
            return;
        }
        if self.refused.len() >= KEYS_MAX {
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
    pub(super) fn send_refused(&mut self) {
        while !self.refused_due.is_empty() {
            let rest = self.refused_due.len().saturating_sub(CHECKS_MAX);
            let keys = self.refused_due.split_off(rest);
            let asked: Vec<Check> = keys
                .iter()
                .filter_map(|key| {
                    let refused = self.refused.get_mut(key)?;
                    refused.in_flight = true;
                    let hits = std::mem::take(&mut refused.hits);
                    Some(Check {
                        operation: Operation {
                            hits: Hits::Take(hits),
                            holder: None,
                        },
                        ..refused.check.clone()
                    })
                })
                .collect();
            let shared = Arc::clone(&self.shared);
            self.metrics.leases.calls.inc();
            self.under_way.spawn(async move {
                let applied = shared
                    .ask(asked.clone(), Deadline::NEVER, Purpose::Decide)
                    .await;
                let answers = match applied {
                    Ok(applied) => applied.answers,
                    Err(error) => asked.iter().map(|_| Err(error.clone())).collect(),
                };
                CallReport::RefusedCounted { asked, answers }
            });
        }
    }

    /// A call with refused hits has ended: sends what was refused meanwhile, and asks for the
    /// checks that waited.
    pub(super) fn refused_counted(
        &mut self,
        asked: Vec<Check>,
        answers: Vec<CheckResult>,
        now_us: u64,
    ) {
        let mut answers = answers.into_iter();
        for check in asked {
            let hits = check.operation.hits.requested();
            match answers.next().unwrap_or(Err(StoreError::Stopped)) {
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
                self.ask_again(waiter, now_us);
            }
        }
    }

    /// Answers a check that waited for refused hits, or asks the store.
    fn ask_again(&mut self, waiter: Waiter, now_us: u64) {
        let pending = self.pending.get(waiter.pending).and_then(Option::as_ref);
        let is_reset = pending.is_some_and(|pending| pending.batch.is_reset());
        let Some(check) = self.check_of(waiter) else {
            return;
        };
        if !is_reset
            && Leases::covers(&check)
            && !self.waiters.contains_key(&check.key)
            && let Some(outcome) = self.decide(&check, now_us)
        {
            self.put_answer(waiter, Ok(outcome));
        } else {
            self.ask_store(check, waiter, is_reset, now_us);
        }
    }

    /// Forgets refused hits: it is not known what of them was counted.
    pub(super) fn lose_refused(&mut self) {
        let hits = self.refused.drain().map(|(_, refused)| refused.hits);
        let hits = hits.fold(0, u64::saturating_add);
        self.metrics.leases.refused_hits_lost.inc_by(hits);
        self.refused_due.clear();
    }
}
