//! Reservations in the decision path: amounts that are learnt, and what became of each step.
//!
//! What it deliberately does not do: decide (`crates/limiter`), or count hits (`count`), which
//! include what was reserved and what was charged beyond it.

use tollgate_limiter::reservation::{Estimate, ReserveAmount};
use tollgate_limiter::{Check, Code, Hits, LimitOrigin, Plan, Request, Rule, Step};

use crate::ended::Matched;
use crate::estimates::Estimates;
use crate::pipeline::{Generation, Pipeline};
use tollgate_telemetry::metrics::{ReservationCount, ReservationResult};

/// How a rule learns the amount to reserve, if it does.
fn learnt_by(rule: &Rule) -> Option<Estimate> {
    match rule.reserve.as_deref()?.amount? {
        ReserveAmount::Learnt(estimate) => Some(estimate),
        ReserveAmount::Hits(_) => None,
    }
}

/// How much a rule reserves in the bucket of this check; none where the request must say it.
pub(super) fn amount_of(estimates: &Estimates, rule: &Rule, check: &Check) -> Option<u64> {
    let amount = rule.reserve.as_deref()?.amount?;
    Some(match amount {
        ReserveAmount::Hits(hits) => hits,
        ReserveAmount::Learnt(estimate) => {
            estimates.amount(check.fingerprint, check.key, &estimate)
        }
    })
}

impl Pipeline {
    /// Sets the amounts that are learnt in a plan that starts reservations.
    #[cold]
    pub(super) fn set_learnt_amounts(&self, plan: &mut Plan<'_>) {
        for (rule, check) in plan.starts_mut() {
            let Some(amount) = amount_of(&self.estimates, rule, check) else {
                continue;
            };
            if let Hits::Reservation(Step::Reserve { hits, .. }) = &mut check.operation.hits {
                *hits = amount;
            }
        }
    }

    /// Counts the steps of reservations by limit, and learns what commits said.
    #[inline]
    pub(super) fn count_reservations(
        &self,
        rules: &Generation,
        request: &Request<'_>,
        matched: &Matched<'_>,
        code: Code,
    ) {
        let is_step = |check: &Check| matches!(check.operation.hits, Hits::Reservation(_));
        if matched.plan.checks().iter().any(is_step) {
            self.count_steps(rules, request, matched, code);
        }
    }

    #[cold]
    fn count_steps(
        &self,
        rules: &Generation,
        request: &Request<'_>,
        matched: &Matched<'_>,
        code: Code,
    ) {
        let (plan, outcomes) = (matched.plan, matched.outcomes);
        for (descriptor, position) in plan.descriptor_checks() {
            let (Some(planned), Some(Some(outcome))) =
                (plan.planned_check(position), outcomes.get(position))
            else {
                continue;
            };
            let Hits::Reservation(step) = planned.check.operation.hits else {
                continue;
            };
            let Some(count) = ReservationCount::of(step, outcome, code) else {
                continue;
            };
            let origin = planned.origin;
            if let Some(counters) = self.counters_of(rules, request, descriptor, origin) {
                counters.count_reservation(&count);
            }
            self.learn(origin, planned.check, &count);
        }
    }

    /// Learns the true amount of one request.
    fn learn(&self, origin: LimitOrigin<'_>, check: &Check, count: &ReservationCount) {
        let says_amount = matches!(
            count.result,
            ReservationResult::Committed | ReservationResult::Charged
        );
        if says_amount
            && let LimitOrigin::Rule(rule) = origin
            && let Some(estimate) = learnt_by(rule)
        {
            let (rule, key) = (check.fingerprint, check.key);
            self.estimates.learn(rule, key, &estimate, count.committed);
        }
    }
}
