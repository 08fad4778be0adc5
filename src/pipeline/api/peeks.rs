//! Peeks: what a check would be refused, from what a look says is left.

use std::collections::HashMap;
use std::rc::Rc;

use tollgate_limiter::algorithm::count_refused;
use tollgate_limiter::{Cost, CountRefused, Key};

use super::checks_of;
use super::operations::cost_of;
use crate::pipeline::pending::{PendingRequest, Stage};

/// Marks as refused what a check of the hits of a peek would be refused.
pub(in crate::pipeline) fn refuse_peeks(pending: &mut PendingRequest) {
    let (Stage::Planned(rules), Some(api)) = (&pending.stage, &pending.api) else {
        return;
    };
    if api.peeked.is_empty() {
        return;
    }
    let (rules, hits) = (Rc::clone(rules), api.peeked.clone());
    let mut outcomes = std::mem::take(&mut pending.results.outcomes);
    let plan = pending.take_plan(&rules.rules);
    // What descriptors take from a shared budget is one sum.
    let mut prices = vec![0_u128; outcomes.len()];
    for (descriptor, position) in checks_of(&plan) {
        if let (Some(planned), Some(hits), Some(price)) = (
            plan.planned_check(position),
            hits.get(descriptor),
            prices.get_mut(plan.deciding(position)),
        ) {
            let cost = cost_of(planned.origin);
            *price = price.saturating_add(cost.millionths_of(hits.count()));
        }
    }
    // Others take from one bucket one after the other.
    let mut taken = HashMap::<Key, u64>::new();
    for (position, (price, outcome)) in prices.into_iter().zip(&mut outcomes).enumerate() {
        let (Some(planned), Some(outcome)) = (plan.planned_check(position), outcome) else {
            continue;
        };
        if plan.deciding(position) != position {
            continue;
        }
        let check = planned.check;
        let taken = taken.entry(check.key).or_default();
        let after = taken.saturating_add(Cost::rounded_up(price));
        if outcome.allowed && after > outcome.remaining {
            outcome.allowed = false;
            // Nothing says when so many would pass.
            outcome.retry_us = None;
        }
        if outcome.allowed || count_refused(check.algorithm, &check.limit) != CountRefused::None {
            *taken = after;
        }
    }
    pending.put_plan(plan);
    pending.results.outcomes = outcomes;
}
