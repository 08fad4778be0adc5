//! Amounts to reserve, learnt from what commits said.
//!
//! A rule with `reserve.amount: p95` reserves the 95th percentile of the amounts that were
//! committed, per rule or per bucket. Learnt amounts are those of one replica. They are found by
//! the fingerprint of the rule, so they outlive reloads.
//!
//! | whose | method | memory | error |
//! | --- | --- | --- | --- |
//! | of a rule | `histogram`: logarithmic buckets, halved every 512 commits | 1.7 KiB | at most 1/16 too much |
//! | of a bucket | `key_estimate`: one number that each commit moves up or down | 8 bytes | about 19 % off |
//!
//! A key has its own estimate after [`KEY_COMMITS_MIN`](key_table::KEY_COMMITS_MIN) commits, and
//! until then that of the rule. A rule has one after
//! [`RULE_COMMITS_MIN`](rule_table::RULE_COMMITS_MIN) commits, and until then the floor.
//!
//! Both tables have a fixed size, made at the first use: a plain rule costs nothing. They take no
//! lock: every change is one atomic operation. Two threads that race can lose one commit of many,
//! which an estimate does not notice. In a full table a new rule or key takes the place of one that
//! was not used recently, and a counter says so.
//!
//! What it deliberately does not do: share estimates between replicas, or keep them over a restart.

mod histogram;
mod key_estimate;
mod key_table;
mod rule_table;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use tollgate_limiter::Key;
use tollgate_limiter::reservation::{Estimate, EstimateScope};

use self::key_table::KeyTable;
use self::rule_table::RuleTable;
use tollgate_telemetry::metrics::EstimateMetrics;

/// The part of the memory that is for rules. The rest is for keys.
const RULES_PART: usize = 4;

/// What was learnt of the amounts that commits said.
#[derive(Debug)]
pub struct Estimates {
    memory_max: usize,
    rules: OnceLock<RuleTable>,
    keys: OnceLock<KeyTable>,
    metrics: EstimateMetrics,
}

// === impl Estimates ===

impl Estimates {
    /// Nothing is learnt yet. Uses at most `memory_max` bytes.
    pub fn new(memory_max: usize, metrics: EstimateMetrics) -> Self {
        Self {
            memory_max,
            rules: OnceLock::new(),
            keys: OnceLock::new(),
            metrics,
        }
    }

    /// How much to reserve in the bucket `key` of the rule with this fingerprint: from the floor to
    /// the ceiling of `estimate`.
    pub fn amount(&self, rule: u64, key: Key, estimate: &Estimate) -> u64 {
        let learnt = self
            .key_amount(rule, key, estimate)
            .or_else(|| self.rules.get()?.amount(rule, estimate.percent));
        // A floor above the ceiling is an error of the rules, which `clamp` would panic at.
        let amount = learnt.unwrap_or(estimate.floor);
        amount.max(estimate.floor).min(estimate.ceiling)
    }

    /// Learns what a commit said, in the units of the limit.
    pub fn learn(&self, rule: u64, key: Key, estimate: &Estimate, committed: u64) {
        let rules = self.rules.get_or_init(|| {
            let table = RuleTable::new(self.memory_max / RULES_PART);
            self.metrics.memory_bytes.add(bytes(table.bytes()));
            table
        });
        if rules.learn(rule, committed) {
            self.metrics.rules_replaced.inc();
        }
        if estimate.scope == EstimateScope::Key {
            let keys = self.keys.get_or_init(|| {
                let table = KeyTable::new(self.memory_max - self.memory_max / RULES_PART);
                self.metrics.memory_bytes.add(bytes(table.bytes()));
                table
            });
            let first = || rules.amount(rule, estimate.percent).unwrap_or(committed);
            if keys.learn(
                key_table::identity(rule, key),
                estimate.percent,
                committed,
                first,
            ) {
                self.metrics.keys_replaced.inc();
            }
        }
    }

    fn key_amount(&self, rule: u64, key: Key, estimate: &Estimate) -> Option<u64> {
        if estimate.scope == EstimateScope::Rule {
            return None;
        }
        self.keys.get()?.amount(key_table::identity(rule, key))
    }
}

fn bytes(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
