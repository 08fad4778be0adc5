//! The operation that each check of a call becomes, and what a peek would be refused.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::rc::Rc;

use tollgate_limiter::algorithm::count_refused;
use tollgate_limiter::key::hash_holder;
use tollgate_limiter::reservation::COST_ONE;
use tollgate_limiter::{
    Cost, CountRefused, Expiry, Hits, Holder, Key, LimitOrigin, OnExpiry, Operation, PlannedCheck,
    Request, Step,
};

use crate::estimates::Estimates;
use crate::pipeline::api_call::{ApiCall, ApiStep};
use crate::pipeline::pending::{PendingRequest, Stage};
use crate::pipeline::reservations;
use tollgate_admin_api::rule_name;
use tollgate_system::keyed_hash::KeyedHash;

/// What a call asks of its limits.
pub(super) struct Operations<'c> {
    step: ApiStep,
    /// The hits of each descriptor.
    hits: Vec<Hits>,
    /// The id of the reservation, if there is one.
    id: Option<Holder>,
    estimates: &'c Estimates,
}

/// The price of a hit under a limit.
pub(super) fn cost_of(origin: LimitOrigin<'_>) -> Cost {
    origin.rule().map_or(COST_ONE, |rule| rule.cost)
}

/// When a reservation under this limit ends by itself.
pub(super) fn expiry_of(
    origin: LimitOrigin<'_>,
    expires_ms: Option<NonZeroU32>,
    on_expiry: Option<OnExpiry>,
) -> Expiry {
    let reserve = origin.rule().and_then(|rule| rule.reserve.as_ref());
    let rule = reserve.map(|reserve| reserve.expiry).unwrap_or_default();
    Expiry {
        after_ms: expires_ms.unwrap_or(rule.after_ms),
        on_expiry: on_expiry.unwrap_or(rule.on_expiry),
    }
}

// === impl Operations ===

impl<'c> Operations<'c> {
    /// What this call asks of the limits of this request.
    pub(super) fn new(
        api: &ApiCall,
        request: &Request<'_>,
        hash: &KeyedHash,
        estimates: &'c Estimates,
    ) -> Self {
        let hits = request.descriptors();
        Self {
            step: api.step,
            hits: hits.map(|descriptor| descriptor.hits).collect(),
            id: (!api.id.is_empty()).then(|| hash_holder(&api.id, hash)),
            estimates,
        }
    }

    /// Whether limits that share a budget take the sum of what each takes.
    pub(super) fn add_prices(&self) -> bool {
        match self.step {
            ApiStep::Peek => false,
            ApiStep::Reserve {
                uses_rule_amount, ..
            } => !uses_rule_amount,
            _ => true,
        }
    }

    /// The operation of one check of the descriptor at this position.
    pub(super) fn of(
        &self,
        descriptor: usize,
        planned: PlannedCheck<'_, '_>,
    ) -> Result<Operation, String> {
        let PlannedCheck { check, origin } = planned;
        let hits = self.hits.get(descriptor).copied().unwrap_or(Hits::PEEK);
        let hits = hits.priced(cost_of(origin));
        let plain = |hits| Operation {
            hits,
            holder: check.operation.holder,
        };
        let step = match self.step {
            ApiStep::Check | ApiStep::Told { .. } => return Ok(plain(hits)),
            ApiStep::Peek => return Ok(plain(Hits::PEEK)),
            ApiStep::Report => return Ok(plain(Hits::Charge(hits.count()))),
            ApiStep::Reserve {
                expires_ms,
                on_expiry,
                uses_rule_amount,
            } => Step::Reserve {
                hits: if uses_rule_amount {
                    amount_of(self.estimates, planned)?
                } else {
                    hits.count()
                },
                expiry: expiry_of(origin, expires_ms, on_expiry),
                remember_refused: false,
            },
            ApiStep::Extend { expires_ms } => Step::Extend(expires_ms),
            ApiStep::Commit { otherwise } => Step::Commit {
                hits: hits.count(),
                otherwise,
            },
            ApiStep::Release => Step::Release,
        };
        if !check.algorithm.facts().can_reserve {
            return Err(format!(
                "{} has the algorithm {}, which cannot reserve; use check for it, or give the limit another algorithm",
                name_of(origin),
                check.algorithm.name()
            ));
        }
        Ok(Operation {
            hits: Hits::Reservation(step),
            holder: self.id,
        })
    }
}

/// What a rule says to reserve.
fn amount_of(estimates: &Estimates, planned: PlannedCheck<'_, '_>) -> Result<u64, String> {
    let rule = planned.origin.rule();
    let amount = rule.and_then(|rule| reservations::amount_of(estimates, rule, planned.check));
    amount.ok_or_else(|| {
        format!(
            "hits is missing, and {} has no reserve.amount; say how many hits to reserve",
            name_of(planned.origin)
        )
    })
}

fn name_of(origin: LimitOrigin<'_>) -> String {
    let name = origin.rule().map(rule_name);
    name.map_or_else(
        || "the limit of the request".to_owned(),
        |name| format!("the rule {name}"),
    )
}

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
    for (descriptor, position) in plan.descriptor_checks() {
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
