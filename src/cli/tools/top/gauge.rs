//! Gauges: how much of the memory, of a quota, or of a key's limit is in use.

use super::numbers::{bytes, rate};
use super::rows::QuotaRow;
use crate::admin_api::{DecisionRecord, StateEvent};
use crate::cli::tools::admin::time_of_day;

/// From this share on, a gauge is an alert.
const ALERT_SHARE: f64 = 0.9;

/// What is in use, of a bound.
#[derive(Clone, Debug)]
pub(super) struct Gauge {
    pub(super) words: String,
    /// From 0 to 1.
    pub(super) share: f64,
}

// === impl Gauge ===

impl Gauge {
    fn new(words: &str, used: f64, bound: f64) -> Self {
        let share = if bound > 0.0 { used / bound } else { 0.0 };
        let share = share.clamp(0.0, 1.0);
        let percent = 100.0 * share;
        Self {
            words: format!("{words}, {percent:.0} %"),
            share,
        }
    }

    /// The memory of the buckets of all replicas; none if no replica has a bound of it.
    #[allow(clippy::cast_precision_loss)] // a bar
    pub(super) fn of_memory<'s>(states: impl Iterator<Item = &'s StateEvent>) -> Option<Self> {
        let bounded = states.filter_map(|state| {
            let partitions = &state.partitions.partitions;
            let used = partitions.iter().map(|it| it.memory_bytes).sum::<u64>();
            Some((used, state.partitions.store.memory_max_bytes?))
        });
        let (used, bound) =
            bounded.reduce(|(used, bound), (more, most)| (used + more, bound + most))?;
        let words = format!("memory    {} of {} in use", bytes(used), bytes(bound));
        Some(Self::new(&words, used as f64, bound as f64))
    }

    /// What is assigned of a quota.
    pub(super) fn of_quota(row: &QuotaRow) -> Self {
        let (assigned, limit) = (row.sum.figures.assigned, row.sum.figures.limit);
        let words = format!("quota     {} of {} assigned", rate(assigned), rate(limit));
        Self::new(&words, assigned, limit)
    }

    /// What the newest decision about a key found in use of the limit of a rule.
    #[allow(clippy::cast_precision_loss)] // a bar
    pub(super) fn of_limit(decisions: &[DecisionRecord], rule: &str) -> Option<Self> {
        decisions.iter().find_map(|decision| {
            let mut parts = decision.descriptors.iter();
            let part = parts.find(|part| part.rule.as_deref() == Some(rule))?;
            let bound = part.limit.as_ref()?.burst;
            let used = bound.saturating_sub(part.remaining?);
            let at = time_of_day(&decision.at);
            let words = format!("in use    {used} of {bound} at {at}");
            Some(Self::new(&words, used as f64, bound as f64))
        })
    }

    /// Whether little is left.
    pub(super) fn is_alert(&self) -> bool {
        self.share >= ALERT_SHARE
    }
}
