//! Metrics of top keys.

use super::PolledGauge;
use super::declaration::{Counter, metrics};

metrics! {
    /// Metrics of top keys.
    pub struct TopKeysMetrics {
        /// Bytes that top keys use, within --top-keys-memory-max.
        PolledGauge "tollgate_top_keys_memory_bytes" => pub memory_bytes;

        /// Checks of rules without memory for top keys of their own; their keys share a summary.
        Counter "tollgate_top_keys_shared_total" => pub shared;

        /// Descriptors of top keys that were not kept because of the memory limit.
        Counter "tollgate_top_keys_texts_not_kept_total" => pub texts_not_kept;
    }
}
