//! Metrics of rule sets, from files or from an xDS server.

use super::declaration::{Counter, Gauge, LabelValues, metrics};
use super::label_gauge::LabelGauge;

const HASH: LabelValues = LabelValues::Bounded("one at a time");

metrics! {
    /// Metrics of rule sets.
    pub struct RulesMetrics {
        /// Rule sets accepted.
        Counter "ratelimit_service_config_load_success" as "ratelimit.service.config_load_success"
            => pub taken;

        /// Rule sets refused.
        Counter "ratelimit_service_config_load_error" as "ratelimit.service.config_load_error"
            => pub refused;

        /// Number of the rule set in use, counted from 1; 0 before the first.
        Gauge "tollgate_rules_generation" => pub generation;

        /// Hash of the rules in use, as a label, the same on replicas with the same files; the
        /// value is always 1.
        LabelGauge "tollgate_rules_info" [hash: HASH] as "" => pub hash_label;

        /// Hash of the rules in use, as a number; deprecated: use tollgate_rules_info.
        Gauge "tollgate_rules_hash" => pub hash;

        /// Rules that an operator keeps in shadow mode by POST /shadow.
        Gauge "tollgate_shadowed_rules" => pub shadowed;

        /// Whether the newest rules were refused and so are not in use: 1 or 0.
        Gauge "tollgate_rules_refused" => pub newest_refused;
    }
}
