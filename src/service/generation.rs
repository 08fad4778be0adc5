//! The rule set in use, and how it is exchanged.
//!
//! A request takes one [`Generation`] and keeps it to its end: rules and the counters that belong to them change
//! together or not at all. Taking one is a count on a pointer, not a lock.
//!
//! What it deliberately does not do: read rules (`config`), or keep buckets; those survive a change of rules, because
//! what a bucket is does not depend on where its rule stands.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::limiter::RuleSet;
use crate::metrics::{Metrics, RuleCounters};

/// A rule set and its counters.
#[derive(Debug)]
pub struct Generation {
    /// The rules.
    pub rules: RuleSet,
    /// Their counters.
    pub counters: RuleCounters,
    /// Counted from 1.
    pub number: i64,
}

/// Where the present generation is found. None before the first.
#[derive(Debug)]
pub struct Generations {
    present: ArcSwapOption<Generation>,
    metrics: Arc<Metrics>,
}

// === impl Generations ===

impl Generations {
    /// No rules yet.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            present: ArcSwapOption::empty(),
            metrics,
        }
    }

    /// The present one.
    pub fn present(&self) -> Option<Arc<Generation>> {
        self.present.load_full()
    }

    /// Whether there are rules.
    pub fn any(&self) -> bool {
        self.present.load().is_some()
    }

    /// Makes `rules` the present ones, for requests that come from now on.
    pub fn publish(&self, rules: RuleSet) {
        let counters = self.metrics.rule_counters(&rules);
        // Publishing is rare and done by one task; two at once would only count the same number twice.
        let number = self.metrics.rules_generation.get().saturating_add(1);
        self.present.store(Some(Arc::new(Generation {
            rules,
            counters,
            number,
        })));
        self.metrics.rules_generation.set(number);
        self.metrics.config_load_success.inc();
    }
}
