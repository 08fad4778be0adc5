//! What is measured of rule sets, wherever they come from.
//!
//! What it deliberately does not do: count by rule (`limits`).

use prometheus::{IntCounter, IntGauge, Registry};

use super::register::{counter, gauge};

/// The metrics of rule sets.
#[derive(Debug)]
pub struct RulesMetrics {
    /// Rule sets taken.
    pub taken: IntCounter,
    /// Rule sets refused.
    pub refused: IntCounter,
    /// Which rule set is in use, counted from 1.
    pub generation: IntGauge,
    /// The hash of the files that it came from.
    pub hash: IntGauge,
    /// 1 while newer ones were refused, 0 otherwise.
    pub newest_refused: IntGauge,
}

// === impl RulesMetrics ===

impl RulesMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            taken: counter(
                r,
                "ratelimit_service_config_load_success",
                "Rule sets taken",
            )?,
            refused: counter(
                r,
                "ratelimit_service_config_load_error",
                "Rule sets refused",
            )?,
            generation: gauge(
                r,
                "tollgate_rules_generation",
                "Which rule set is in use, counted from 1; 0 before the first",
            )?,
            hash: gauge(
                r,
                "tollgate_rules_hash",
                "The hash of the rules in use: the same on replicas that have the same files",
            )?,
            newest_refused: gauge(
                r,
                "tollgate_rules_refused",
                "1 while the newest rules are not those in use, because they were refused",
            )?,
        })
    }
}
