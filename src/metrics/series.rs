//! The series of limits that `/metrics` shows, by their labels.
//!
//! Why a table in front of the library's: several label sets may be one series, since Prometheus
//! sees two levels of a limit and statsd all of them. The series stays until the last of them is
//! freed.
//!
//! What it deliberately does not do: bound how many there are (`rule_sets`, `request_sets`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{IntCounter, IntCounterVec, Registry};

use super::register::counters;

/// The labels of a limit's counters, as the reference's mapping gives them: levels deeper than the
/// second are dropped.
type Labels = [String; 3];

/// The counters that readers see under one set of labels.
#[derive(Debug)]
pub(super) struct Series {
    labels: Labels,
    pub(super) total_hits: IntCounter,
    pub(super) over_limit: IntCounter,
    pub(super) near_limit: IntCounter,
    pub(super) within_limit: IntCounter,
    pub(super) shadow_mode: IntCounter,
    pub(super) negative_hits: IntCounter,
}

/// All series of limits.
#[derive(Debug)]
pub(super) struct SeriesTable {
    total_hits: IntCounterVec,
    over_limit: IntCounterVec,
    near_limit: IntCounterVec,
    within_limit: IntCounterVec,
    shadow_mode: IntCounterVec,
    negative_hits: IntCounterVec,
    known: Mutex<HashMap<Labels, Arc<Series>>>,
}

// === impl Series ===

impl Series {
    /// The domain, as its label has it.
    pub(super) fn domain(&self) -> &str {
        let [domain, ..] = &self.labels;
        domain
    }
}

// === impl SeriesTable ===

impl SeriesTable {
    pub(super) fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        let of = |name: &str, help: &str| {
            let name = format!("ratelimit_service_rate_limit_{name}");
            counters(r, &name, help, &["domain", "key1", "key2"])
        };
        Ok(Self {
            total_hits: of("total_hits", "Hits asked for")?,
            over_limit: of("over_limit", "Hits beyond the limit")?,
            near_limit: of("near_limit", "Hits beyond the near mark, not the limit")?,
            within_limit: of("within_limit", "Hits of requests that passed")?,
            shadow_mode: of(
                "shadow_mode",
                "Hits beyond the limit of a rule in shadow mode",
            )?,
            negative_hits: of("total_negative_hits", "Hits given back")?,
            known: Mutex::default(),
        })
    }

    /// The series of these names, a domain and levels.
    pub(super) fn of(&self, names: &[String]) -> Arc<Series> {
        let level = |at: usize| names.get(at).cloned().unwrap_or_default();
        let labels = [level(0), level(1), level(2)];
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.get(&labels) {
            return Arc::clone(series);
        }
        let of = |counters: &IntCounterVec| counters.with_label_values(&labels);
        let series = Arc::new(Series {
            total_hits: of(&self.total_hits),
            over_limit: of(&self.over_limit),
            near_limit: of(&self.near_limit),
            within_limit: of(&self.within_limit),
            shadow_mode: of(&self.shadow_mode),
            negative_hits: of(&self.negative_hits),
            labels: labels.clone(),
        });
        known.insert(labels, Arc::clone(&series));
        series
    }

    /// Frees the series that no label set has any more.
    pub(super) fn free_unused(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|labels, series| {
            // Another owner can only come from this table, which is locked.
            let is_used = Arc::strong_count(series) > 1;
            if !is_used {
                for counters in self.counters() {
                    // It fails where there is no such series: then nothing is left to do.
                    let _ = counters.remove_label_values(labels);
                }
            }
            is_used
        });
        let len = known.len();
        known.shrink_to(len.saturating_mul(2));
    }

    fn counters(&self) -> [&IntCounterVec; 6] {
        [
            &self.total_hits,
            &self.over_limit,
            &self.near_limit,
            &self.within_limit,
            &self.shadow_mode,
            &self.negative_hits,
        ]
    }
}
