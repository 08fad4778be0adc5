//! Metrics of rule sets, from files or from an xDS server.

use super::declaration::{Counter, Gauge, metrics};

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

        /// Hash of the rules in use: the same on replicas that have the same files.
        Gauge "tollgate_rules_hash" => pub hash;

        /// 1 while the newest rules are not in use because they were refused, else 0.
        Gauge "tollgate_rules_refused" => pub newest_refused;
    }
}
