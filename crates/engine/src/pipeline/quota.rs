//! Which rule a bucket's id of the rate limit quota service belongs to.
//!
//! An id is pairs of keys and values in no order. Rules with `rlqs` have paths of keys, and the
//! loader refuses two orders of the same keys. So the keys of an id give the order, and the rules
//! are then matched as for a request.

use std::sync::Arc;

use bytes::Bytes;
use tollgate_limiter::{Allowance, Entry, Hits, Key, KeyHasher, LimitOrigin, Plan, Request, Rule};

use crate::pipeline::{Generation, Generations, Pipeline};
use tollgate_admin_api::rule_name;
use tollgate_store::shared::RateLeases;
use tollgate_system::clock::Clock;
use tollgate_system::keyed_hash::KeyedHash;
use tollgate_telemetry::metrics::Metrics;

/// The parts of a pipeline that quotas need.
#[derive(Clone)]
pub struct QuotaParts {
    pub(crate) generations: Arc<Generations>,
    pub(crate) hash: KeyedHash,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    /// Leases by which replicas share limits; none without a shared store.
    pub(crate) leases: Option<Arc<dyn RateLeases>>,
}

/// The rule of a bucket.
#[derive(Clone, Debug)]
pub struct QuotaRule {
    /// The bucket.
    pub(crate) key: Key,
    /// Tokens a second, in millionths.
    pub(crate) rate: u64,
    /// The index of the rule.
    pub index: usize,
    /// The name of the rule, after its domain.
    pub(crate) rule: Arc<str>,
    /// Whether everything passes.
    pub(crate) shadow: bool,
}

/// The rule of an id, whose pairs are sorted by key; none if it fits none.
pub fn find_quota(
    generation: &Generation,
    domain: &[u8],
    id: &[(Bytes, Bytes)],
    hasher: &impl KeyHasher,
) -> Option<QuotaRule> {
    let order = generation
        .quota_orders
        .of_keys(domain, id.iter().map(|(key, _)| &**key))?;
    let mut entries = vec![None; id.len()];
    for ((key, value), place) in id.iter().zip(order) {
        *entries.get_mut(*place)? = Some(Entry { key, value });
    }
    let mut request = Request::new(domain);
    for entry in entries {
        request.push_entry(entry?);
    }
    request.finish_descriptor(Hits::Take(1));
    let plan = Plan::new(&generation.rules, &request, hasher);
    let rule = plan.quota_rule()?;
    let planned = plan.planned_checks().find(|planned| {
        let same = |origin: &Rule| std::ptr::eq(origin, rule);
        matches!(planned.origin, LimitOrigin::Rule(origin) if same(origin))
    })?;
    let Allowance::Limited { limit, .. } = &rule.allowance else {
        return None;
    };
    let rate =
        u128::from(limit.requests()) * 1_000_000_000_000 / u128::from(limit.window().as_us());
    Some(QuotaRule {
        key: planned.check.key,
        rate: u64::try_from(rate).unwrap_or(u64::MAX),
        index: rule.index,
        rule: rule_name(rule).into(),
        shadow: rule.shadow_mode,
    })
}

// === impl Generation ===

impl Generation {
    /// Whether rules of a domain have `rlqs`.
    pub(crate) fn has_quotas(&self, domain: &[u8]) -> bool {
        self.quota_orders.has_domain(domain)
    }

    /// Whether any rule has `rlqs`.
    pub fn has_any_quota(&self) -> bool {
        !self.quota_orders.is_empty()
    }
}

// === impl Pipeline ===

impl Pipeline {
    /// What quotas need of it.
    pub fn quota_parts(&self) -> QuotaParts {
        QuotaParts {
            generations: Arc::clone(&self.generations),
            hash: self.hash,
            clock: Arc::clone(&self.clock),
            metrics: Arc::clone(&self.metrics),
            leases: self.store.rate_leases(),
        }
    }
}
