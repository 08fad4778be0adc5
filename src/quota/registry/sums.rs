//! Sums of the buckets of a rule.
//!
//! What it deliberately does not do: add them up (`figures`).

use std::sync::Arc;

use bytes::Bytes;

use crate::metrics::RuleRates;
use crate::quota::bucket::figures::BucketFigures;
use crate::quota::convergence::Convergence;

/// Sums of one rule.
#[derive(Debug, Clone)]
pub(crate) struct RuleQuotas {
    pub(crate) domain: Bytes,
    pub(crate) rule: Arc<str>,
    pub(crate) buckets: u64,
    /// How many of them converge.
    pub(crate) converging: u64,
    pub(crate) figures: BucketFigures,
    /// The longest of its buckets.
    pub(crate) convergence: Convergence,
}

/// The sums of the last survey.
pub(super) type KeptSums = Arc<[RuleQuotas]>;

// === impl RuleQuotas ===

impl RuleQuotas {
    pub(super) fn rates(&self) -> RuleRates {
        let figures = &self.figures;
        RuleRates {
            domain: String::from_utf8_lossy(&self.domain).into_owned(),
            rule: self.rule.to_string(),
            micro_rates: [
                figures.limit,
                figures.demand,
                figures.allowed,
                figures.denied,
                figures.assigned,
                figures.in_force,
            ],
            buckets: self.buckets,
            shares: figures.streams,
            converging: self.converging,
            converging_ms: self.convergence.converging_ms.unwrap_or_default(),
        }
    }
}
