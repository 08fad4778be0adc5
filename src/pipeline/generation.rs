//! One rule set with its counters and warnings.
//!
//! A request keeps one [`Generation`] from beginning to end, so rules and their counters change
//! together.
//!
//! What it deliberately does not do: become current (`generations`), or hold buckets. Buckets
//! survive a reload, because a bucket's key does not depend on the position of its rule.

use std::sync::Arc;

use super::candidate_rules::CandidateRules;
use super::quota_orders::QuotaOrders;
use crate::metrics::RuleCounters;
use crate::rules::file::{LoadedRules, RuleOrigins};
use tollgate_limiter::{LimitTable, RuleSet, TableDifference, Timestamp};

/// How many warnings of one load are logged and kept for `/readyz?verbose`.
const WARNINGS_KEPT_MAX: usize = 10;

/// A rule set and its counters.
#[derive(Debug)]
pub struct Generation {
    /// The rules.
    pub rules: RuleSet,
    /// Their counters.
    pub counters: RuleCounters,
    /// The names of the rules, by their index.
    pub names: Arc<[Arc<str>]>,
    /// Number of files, or of resources of an xDS server.
    pub sources: usize,
    /// Where the rules were written.
    pub origins: Arc<RuleOrigins>,
    /// Warnings of the rules.
    pub warnings: RulesWarnings,
    /// Counted from 1. A change of shadow mode by an operator does not change it.
    pub number: i64,
    /// When the rules were loaded; none without a clock.
    pub loaded_at: Option<Timestamp>,
    /// Rules that an operator put in shadow mode, by index; their files do not.
    pub(super) shadowed: Vec<usize>,
    /// The same for the same files, on every replica; 48 bits.
    pub hash: u64,
    /// The keys of rules with `rlqs`.
    pub(crate) quota_orders: Arc<QuotaOrders>,
    /// The rules that are tried beside these.
    pub candidate: Option<Arc<CandidateRules>>,
}

/// Warnings of one rule set, in words. At most ten are kept; the others are counted.
#[derive(Clone, Debug, Default)]
pub struct RulesWarnings {
    /// The first ones, each with its place and its help.
    pub first: Vec<String>,
    /// How many more there are.
    pub more: usize,
}

// === impl Generation ===

impl AsRef<Self> for Generation {
    fn as_ref(&self) -> &Self {
        self
    }
}

// === impl RulesWarnings ===

impl RulesWarnings {
    pub(super) fn of(loaded: &LoadedRules) -> Self {
        let first: Vec<_> = loaded
            .warnings
            .iter()
            .take(WARNINGS_KEPT_MAX)
            .map(ToString::to_string)
            .collect();
        let all = loaded
            .warnings
            .len()
            .saturating_add(loaded.warnings_omitted);
        let more = all.saturating_sub(first.len());
        Self { first, more }
    }

    pub(super) fn log(&self) {
        for warning in &self.first {
            tracing::warn!("{warning}");
        }
        if self.more > 0 {
            tracing::warn!(
                more = self.more,
                "the rules have more warnings; `tollgate check` prints them"
            );
        }
    }
}

/// The tables of new rules that are not those of the current ones, and how each differs from the
/// one of its file.
pub(super) fn changed_tables(
    current: Option<&Generation>,
    rules: &RuleSet,
) -> Vec<(Arc<LimitTable>, TableDifference)> {
    let before = |table: &LimitTable| {
        let mut known = current?.rules.limit_tables();
        known.find(|known| known.source() == table.source())
    };
    let changed = rules.limit_tables().filter_map(|table| {
        let difference = match before(table) {
            Some(before) if Arc::ptr_eq(before, table) => return None,
            Some(before) => table.difference(before),
            None => TableDifference {
                added: table.len(),
                ..TableDifference::default()
            },
        };
        Some((Arc::clone(table), difference))
    });
    changed.collect()
}
