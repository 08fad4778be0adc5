//! Metrics of learnt amounts.

use super::declaration::{Counter, Gauge, metrics};

metrics! {
    /// Metrics of amounts that are learnt from commits.
    pub struct EstimateMetrics {
        /// Bytes that learnt amounts may use by now, within --estimates-memory-max.
        Gauge "tollgate_estimates_memory_bytes" => pub memory_bytes;

        /// Learnt amounts that were forgotten because others took their memory, by whose they were.
        Counter "tollgate_estimates_forgotten_total" by of {
            keys_replaced = "key",
            rules_replaced = "rule",
        }
    }
}
